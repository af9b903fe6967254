"""Modalities' sampler over one dataset, resumed by a number of samples that all ranks together skip."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from fastpack.datasets.permutations import TorchGenerator
from fastpack.loading.base_sampler import EpochSampler
from fastpack.loading.order import HeldOrder, Order, Steps, StraightOrder


class ResumableDistributedSampler(EpochSampler):
    """Yield each rank's sample numbers of a dataset, after a global skip (exactly Modalities', without torch).

    Parameters
    ----------
    dataset
        Anything with a length.
    rank
        This rank, counted from 0.
    num_replicas
        By default that of torch.distributed if it is initialized, else 1.
    epoch
        The epoch of the next iteration, counted from 0.
    shuffle
        Whether an epoch's order is `torch.randperm` seeded by seed + epoch; otherwise it is 0..n-1.
    seed
        The seed, the same on every rank.
    drop_last
        Whether the rest of the order is cut to a multiple of the ranks, or extended to one by the order's start.
    skip_num_global_samples
        The samples that all ranks together skip, in every epoch: create another sampler after the resumed epoch.

    Raises
    ------
    ValueError
        If the skip is negative; on iteration, if it exceeds the dataset.

    Examples
    --------
    >>> import fastpack
    >>> sampler = fastpack.ResumableDistributedSampler(range(8), rank=1, num_replicas=2, skip_num_global_samples=4)
    >>> list(sampler)
    [5, 7]
    """

    def __init__(
        self,
        dataset: Sized,
        rank: int,
        num_replicas: int | None = None,
        epoch: int = 0,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        skip_num_global_samples: int = 0,
    ) -> None:
        super().__init__(num_replicas, rank, "torch")
        if skip_num_global_samples < 0:
            raise ValueError(f"skip_num_global_samples must be >= 0, got {skip_num_global_samples}")
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.skip_num_global_samples = skip_num_global_samples
        self._epoch = epoch
        self.global_num_samples = len(dataset) - skip_num_global_samples
        self.global_num_samples_effective = self.global_order_length(self.num_replicas)
        self.local_num_samples = self.num_samples = self.global_num_samples_effective // self.num_replicas

    def global_order_length(self, base_num_replicas: int) -> int:
        """Return the length of an epoch's global order for this number of ranks: a multiple of it.

        Parameters
        ----------
        base_num_replicas
            The number of ranks.

        Returns
        -------
        int
            Number of samples.
        """
        n = self.global_num_samples
        return (n if self.drop_last else n + base_num_replicas - 1) // base_num_replicas * base_num_replicas

    def fingerprint(self) -> dict[str, Any]:
        """Return what the global order depends on, in addition to the epoch and the number of ranks.

        Returns
        -------
        dict
            JSON values by name. Equal values mean equal orders, for the same epoch and number of ranks.
        """
        return {**super().fingerprint(), "sizes": [len(self.dataset)], "skipped": self.skip_num_global_samples}

    def _order(self) -> Order:
        n = len(self.dataset)
        return HeldOrder(TorchGenerator(self.seed + self._epoch).permutation(n)) if self.shuffle else StraightOrder(n)

    def _layout(self, base_num_replicas: int) -> tuple[Order, int]:
        order = self._order()
        length = self.global_order_length(base_num_replicas)
        every = Steps(order, self.skip_num_global_samples + length, self.skip_num_global_samples, 1, length)
        return HeldOrder(every.take(0, length)), length

    def _own_steps(self) -> Steps:
        n, skip, length = len(self.dataset), self.skip_num_global_samples, self.global_num_samples_effective
        found = self._found(n, skip, length)
        if found != length:
            raise ValueError(
                f"global_num_samples_effective ({length}) does not match the actual number of samples ({found}): "
                f"{skip} of {n} samples are skipped"
            )
        return Steps(self._order(), max(1, skip + length), skip + self.rank, self.num_replicas, self.num_samples)

    def _found(self, n: int, skip: int, length: int) -> int:
        """Return the length of Modalities' list slices; unlike `length` where a bound is out of range."""
        left = len(range(n)[skip:])
        if self.drop_last:
            return len(range(left)[:length])
        padding = length - left
        return left + (padding if padding >= 0 and n else len(range(n)[:padding]))
