"""Megatron's samplers: the order of its data-parallel ranks, and resuming by a number of consumed samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.datasets.permutations import Indices, TorchGenerator, index_dtype
from fastpack.loading.base_sampler import EpochSampler
from fastpack.loading.order import HeldOrder, Order, Steps, StraightOrder
from fastpack.loading.resume import EpochPosition


class MegatronSampler(EpochSampler):
    """Base of Megatron's samplers, which continue after `consumed_samples` of all ranks together."""

    drop_last: bool
    seed = 0

    def __init__(
        self, total_samples: int, consumed_samples: int, micro_batch_size: int, rank: int | None, n_ranks: int | None
    ) -> None:
        super().__init__(n_ranks, rank, "torch")
        if total_samples < 1 or micro_batch_size < 1 or consumed_samples < 0:
            raise ValueError(
                f"total_samples is {total_samples}, micro_batch_size {micro_batch_size}, consumed_samples "
                f"{consumed_samples}: at least 1, 1 and 0 are needed"
            )
        self.total_samples, self.micro_batch_size = total_samples, micro_batch_size

    def _start_at(self, epoch: int, consumed: int) -> None:
        self._epoch = epoch
        self._first = epoch, EpochPosition(consumed, self.num_replicas)
        self._resume = self._first[1] if consumed else None

    def first_position(self) -> tuple[int, EpochPosition]:
        """Return the epoch and the position in it that a loader starts at.

        Returns
        -------
        tuple
            The epoch, and the position that `consumed_samples` stands for.
        """
        return self._first

    def consumed_at(self, loader_state: Mapping[str, Any]) -> int:
        """Return Megatron's consumed_samples for a state of `StatefulDataLoader`, to continue there.

        Parameters
        ----------
        loader_state
            A state of a loader with this sampler.

        Returns
        -------
        int
            The samples that all ranks together have consumed since the start of the training run.
        """
        elastic = loader_state["elastic"]
        per_epoch = self.global_order_length(elastic["base_num_replicas"])
        consumed: int = loader_state["epoch"] * per_epoch + elastic["consumed"]
        return consumed

    def global_order_length(self, base_num_replicas: int) -> int:
        """Return the samples of an epoch for this number of ranks.

        Parameters
        ----------
        base_num_replicas
            The number of ranks.

        Returns
        -------
        int
            Number of samples.
        """
        step = self.micro_batch_size * base_num_replicas
        return self.total_samples // step * step if self.drop_last else self.total_samples


class MegatronPretrainingSampler(MegatronSampler):
    """Yield each rank's sample numbers in the order of the dataset, one micro-batch per rank in turn (as Megatron).

    Rank r of R gets the r-th of every R micro-batches. Resuming after any number of consumed samples, on any number of
    ranks and with any micro-batch size, neither loses nor repeats a sample.

    Parameters
    ----------
    total_samples
        The length of the dataset.
    consumed_samples
        The samples that all ranks together have consumed before.
    micro_batch_size
        The samples of a micro-batch: the batch_size of the loader, or a divisor of it.
    data_parallel_rank, data_parallel_size
        By default those of torch.distributed if it is initialized, else 0 and 1.
    drop_last
        Whether samples that do not fill a micro-batch of every rank are left out.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Megatron's class yields lists of one micro-batch, this one sample numbers, which `StatefulDataLoader` cuts into
    batches. `len()` is the number of samples of this rank from the start. To go on with Megatron, pass
    `sampler.consumed_at(loader.state_dict())` as its consumed_samples.

    Examples
    --------
    >>> import fastpack
    >>> samplers = [fastpack.MegatronPretrainingSampler(20, 4, 2, rank, 2) for rank in (0, 1)]
    >>> [list(sampler) for sampler in samplers]
    [[4, 5, 8, 9, 12, 13, 16, 17], [6, 7, 10, 11, 14, 15, 18, 19]]
    """

    shuffle = False

    def __init__(
        self,
        total_samples: int,
        consumed_samples: int,
        micro_batch_size: int,
        data_parallel_rank: int | None = None,
        data_parallel_size: int | None = None,
        drop_last: bool = True,
    ) -> None:
        super().__init__(total_samples, consumed_samples, micro_batch_size, data_parallel_rank, data_parallel_size)
        if consumed_samples >= total_samples:
            raise ValueError(f"{consumed_samples} of {total_samples} samples are consumed: none are left")
        self.drop_last = drop_last
        self.num_samples = self._steps_after(0, 0).count
        self._start_at(0, consumed_samples)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the global order depends on, in addition to the epoch and the number of ranks.

        Returns
        -------
        dict
            JSON values by name. Equal values mean equal orders, for the same epoch and number of ranks.
        """
        return {"order": "megatron", "shuffle": False, "sizes": [self.total_samples]}

    def _layout(self, base_num_replicas: int) -> tuple[Order, int]:
        return StraightOrder(self.total_samples), self.global_order_length(base_num_replicas)

    def _own_steps(self) -> Steps:
        return self._steps_after(0, 0)

    def _steps_from(self, start: EpochPosition) -> Steps:
        return self._steps_after(start.consumed, 0)

    def _open(self) -> tuple[Steps, int]:
        skip, self._skip = max(0, self._skip), 0
        before = 0 if self._resume is None else self._resume.consumed
        return self._steps_after(before + skip * self.num_replicas, skip), skip

    def _steps_after(self, consumed: int, taken: int) -> Steps:
        """Return the rank's steps after `consumed` samples of all ranks, of which it took `taken` of the steps."""
        size, step = self.micro_batch_size, self.micro_batch_size * self.num_replicas
        whole, rest = divmod(max(0, self.total_samples - consumed), step)
        last = 0 if self.drop_last else min(max(rest - self.rank * size, 0), size)
        order = MicroBatchOrder(taken + whole * size + last, taken, consumed + self.rank * size, size, step)
        return Steps(order, max(1, order.n), 0, 1, order.n)


@dataclass(frozen=True)
class MicroBatchOrder:
    """A rank's micro-batches of `size` samples, `step` apart.

    Position `skipped` is sample `start`, the first of a micro-batch; no earlier position is read.
    """

    n: int
    skipped: int
    start: int
    size: int
    step: int

    def take(self, first: int, step: int, count: int) -> Indices:
        return self.at(first + step * np.arange(count, dtype=np.int64))

    def at(self, positions: npt.NDArray[np.int64]) -> Indices:
        batch, within = np.divmod(positions - self.skipped, self.size)
        return (self.start + batch * self.step + within).astype(index_dtype(self.start + self.step * (self.n + 1)))


class MegatronPretrainingRandomSampler(MegatronSampler):
    """Yield each rank's sample numbers, shuffled by the epoch's number (as Megatron, without torch).

    Every epoch is a `torch.randperm` seeded with its number. With data_sharding, each rank shuffles its own contiguous
    share of the dataset; otherwise all ranks take the same order strided.

    Parameters
    ----------
    dataset
        Not used; it is Megatron's first argument.
    total_samples
        The length of the dataset.
    consumed_samples
        The samples that all ranks together have consumed before, over all epochs.
    micro_batch_size
        The batch_size of the loader, or a divisor of it.
    data_parallel_rank, data_parallel_size
        By default those of torch.distributed if it is initialized, else 0 and 1.
    data_sharding
        Whether ranks have shares of their own.

    Raises
    ------
    ValueError
        If an argument is out of range, there are fewer samples than fill a micro-batch of every rank, or
        consumed_samples is not a number of whole micro-batches of all ranks.

    Notes
    -----
    An epoch has the same number of micro-batches on every rank. Megatron gives some ranks one more where total_samples
    is not divisible by micro_batch_size * data_parallel_size, without data_sharding; the ranks then disagree about the
    epoch from there on.

    `consumed_samples` means what it means in Megatron: after a change of the number of ranks or the micro-batch size,
    the position is that of another order. A state of `StatefulDataLoader` instead continues the order of the epoch.

    Examples
    --------
    >>> import fastpack
    >>> samplers = [fastpack.MegatronPretrainingRandomSampler(None, 9, 0, 2, rank, 2, True) for rank in (0, 1)]
    >>> [list(sampler) for sampler in samplers]
    [[0, 1, 3, 2], [4, 5, 7, 6]]
    """

    shuffle = True
    drop_last = True

    def __init__(
        self,
        dataset: object,
        total_samples: int,
        consumed_samples: int,
        micro_batch_size: int,
        data_parallel_rank: int | None = None,
        data_parallel_size: int | None = None,
        data_sharding: bool = True,
    ) -> None:
        del dataset
        super().__init__(total_samples, consumed_samples, micro_batch_size, data_parallel_rank, data_parallel_size)
        self.data_sharding = data_sharding
        per_epoch = self.global_order_length(self.num_replicas)
        if not per_epoch:
            raise ValueError(
                f"{total_samples} samples do not fill a micro-batch of {micro_batch_size} on {self.num_replicas} ranks"
            )
        epoch, consumed = divmod(consumed_samples, per_epoch)
        if consumed % (micro_batch_size * self.num_replicas):
            raise ValueError(
                f"consumed_samples is {consumed_samples}: {consumed} in epoch {epoch}, which is no multiple of "
                f"{micro_batch_size} samples on {self.num_replicas} ranks"
            )
        self.num_samples = per_epoch // self.num_replicas
        self._start_at(epoch, consumed)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the global order depends on, in addition to the epoch and the number of ranks.

        Returns
        -------
        dict
            JSON values by name. Equal values mean equal orders, for the same epoch and number of ranks.
        """
        order = {"order": "megatron", "shuffle": True, "sizes": [self.total_samples]}
        return {**order, "data_sharding": self.data_sharding, "micro_batch_size": self.micro_batch_size}

    def _permutation(self, base_num_replicas: int) -> Indices:
        n = self.total_samples // self.micro_batch_size * self.micro_batch_size
        if self.data_sharding:
            n = self.global_order_length(base_num_replicas) // base_num_replicas
        return TorchGenerator(self._epoch).permutation(n)

    def _layout(self, base_num_replicas: int) -> tuple[Order, int]:
        order = self._permutation(base_num_replicas)
        if self.data_sharding:
            starts = np.arange(base_num_replicas) * len(order)
            order = (order[:, None] + starts).astype(index_dtype(self.total_samples)).reshape(-1)
        return HeldOrder(order), self.global_order_length(base_num_replicas)

    def _own_steps(self) -> Steps:
        order, n = self._permutation(self.num_replicas), self.num_samples
        if self.data_sharding:
            own = (order + np.int64(self.rank * len(order))).astype(index_dtype(self.total_samples))
            return Steps(HeldOrder(own), n, 0, 1, n)
        return Steps(HeldOrder(order), n * self.num_replicas, self.rank, self.num_replicas, n)
