"""KempnerForge's sampler over one dataset: shuffled by seed and epoch, strided over the ranks."""

from __future__ import annotations

import warnings
from collections.abc import Sized
from typing import Any

from fastpack.datasets.permutations import FeistelOrder, TorchGenerator
from fastpack.loading.base_sampler import EpochSampler
from fastpack.loading.order import HeldOrder, Order, Steps, StraightOrder


class DistributedSampler(EpochSampler):
    """Yield each rank's sample numbers of a dataset, shuffled by seed and epoch (exactly as KempnerForge).

    Parameters
    ----------
    dataset
        Anything with a length, which is read here and again at every iteration.
    num_replicas, rank
        By default those of torch.distributed if it is initialized, else 1 and 0.
    shuffle
        Whether an epoch's order is `torch.randperm` seeded by seed + epoch; otherwise it is 0..n-1.
    seed
        The seed, the same on every rank.
    drop_last
        Whether the order is cut to a multiple of the ranks, or extended to one by its own start.
    order
        "torch", which holds 4 bytes per sample of the whole order at the start of an epoch and of this rank's share
        afterwards, or "feistel", another permutation that takes no memory and can be read at any position by `at`,
        for up to 10^12 samples.

    Attributes
    ----------
    num_samples : int
        The samples of this rank in an epoch.
    total_size : int
        The samples of all ranks in an epoch.

    Warns
    -----
    UserWarning
        If drop_last leaves no sample, because there are fewer samples than ranks.

    Notes
    -----
    Iteration without drop_last raises AssertionError on the ranks that get too few samples, if the dataset has fewer
    samples than positions to fill (as in KempnerForge).

    Examples
    --------
    >>> import fastpack
    >>> samplers = [fastpack.DistributedSampler(range(7), num_replicas=2, rank=rank, seed=1) for rank in (0, 1)]
    >>> [list(sampler) for sampler in samplers]
    [[0, 1, 5], [6, 3, 2]]
    >>> samplers[0].set_epoch(1)
    >>> list(samplers[0])
    [2, 3, 6]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        *,
        order: str = "torch",
    ) -> None:
        super().__init__(num_replicas, rank, order)
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        n = len(dataset)
        self.total_size = self.global_order_length(self.num_replicas)
        self.num_samples = self.total_size // self.num_replicas
        if n and not self.num_samples:
            warnings.warn(
                f"{n} samples for {self.num_replicas} ranks with drop_last: every epoch is empty", stacklevel=2
            )

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
        n = len(self.dataset)
        return (n if self.drop_last else n + base_num_replicas - 1) // base_num_replicas * base_num_replicas

    def at(self, position: int, epoch: int | None = None) -> int:
        """Return the sample at a position of the global order of an epoch, in constant time.

        Rank r of R has the positions r, r + R, ...

        Parameters
        ----------
        position
            In [0, total_size).
        epoch
            By default the current one.

        Returns
        -------
        int
            The sample number.

        Raises
        ------
        ValueError
            If the order is torch's and shuffled, which is only known as a whole.
        IndexError
            If the position is out of range.
        """
        if self.shuffle and self.order == "torch":
            raise ValueError("torch's order is only known as a whole: at() needs order='feistel'")
        if not 0 <= position < self.total_size:
            raise IndexError(f"position {position} out of range [0, {self.total_size})")
        order = self._order(self._epoch if epoch is None else epoch)
        return int(order.take(position % order.n, 1, 1)[0])

    def fingerprint(self) -> dict[str, Any]:
        """Return what the global order depends on, in addition to the epoch and the number of ranks.

        Returns
        -------
        dict
            JSON values by name. Equal values mean equal orders, for the same epoch and number of ranks.
        """
        return {**super().fingerprint(), "sizes": [len(self.dataset)]}

    def _order(self, epoch: int) -> Order:
        n = len(self.dataset)
        if not self.shuffle:
            return StraightOrder(n)
        if self.order == "feistel":
            return FeistelOrder(n, self.seed, epoch)
        return HeldOrder(TorchGenerator(self.seed + epoch).permutation(n))

    def _layout(self, base_num_replicas: int) -> tuple[Order, int]:
        return self._order(self._epoch), self.global_order_length(base_num_replicas)

    def _own_steps(self) -> Steps:
        n, ranks = len(self.dataset), self.num_replicas
        padding = 0 if self.drop_last else max(0, min(self.total_size - n, n))  # the order is repeated at most once
        positions = range(self.rank, min(self.total_size, n + padding), ranks)
        if len(positions) != self.num_samples:
            raise AssertionError(
                f"rank {self.rank} of {ranks} has {len(positions)} samples, expected {self.num_samples}: "
                f"the dataset has {n} samples and {self.total_size} positions are to be filled"
            )
        return Steps(self._order(self._epoch), max(1, self.total_size), self.rank, ranks, self.num_samples)
