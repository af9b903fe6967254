"""KempnerForge's sampler over one dataset: shuffled by seed and epoch, strided over the ranks."""

from __future__ import annotations

import warnings
from collections.abc import Sized
from typing import Any

from fastpack.datasets.permutations import FeistelOrder, TorchGenerator
from fastpack.loading.base_sampler import EpochSampler
from fastpack.loading.order import HeldOrder, Order, Steps, StraightOrder


class DistributedSampler(EpochSampler):
    """Each rank's sample numbers of `dataset`, index for index those of KempnerForge's class, without torch.

    dataset: anything with a length, read here and again at every iteration. num_replicas, rank: of torch.distributed
    where it runs already, else 1 and 0. The order of an epoch is `torch.randperm` seeded by seed + epoch (or 0..n-1
    without `shuffle`), cut to a multiple of the ranks (`drop_last`) or filled up from its start, then dealt out
    strided.

    order: "torch" holds 4 bytes a sample of the whole order while an epoch starts, of this rank's part from then on;
    "feistel" is another permutation, which takes no memory at all and knows any place of it (`at`): 10^12 samples.

    As the peer: without `drop_last`, fewer samples than places to fill raise AssertionError on the ranks left short
    when iterating. With it, fewer samples than ranks are an empty epoch; a UserWarning says so here.
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
        """Samples in an epoch's global order for so many ranks: cut to a multiple of them, or filled up to one."""
        n = len(self.dataset)
        return (n if self.drop_last else n + base_num_replicas - 1) // base_num_replicas * base_num_replicas

    def at(self, position: int, epoch: int | None = None) -> int:
        """The sample at a place of the global order of an epoch (the current one), for the ranks of now, at once.

        Rank r of R has the places r, r + R, ... Needs order="feistel" or no shuffling (ValueError); IndexError for a
        place outside [0, total_size).
        """
        if self.shuffle and self.order == "torch":
            raise ValueError("torch's order is only known as a whole: at() needs order='feistel'")
        if not 0 <= position < self.total_size:
            raise IndexError(f"position {position} out of range [0, {self.total_size})")
        order = self._order(self._epoch if epoch is None else epoch)
        return int(order.take(position % order.n, 1, 1)[0])

    def fingerprint(self) -> dict[str, Any]:
        """What the global order depends on beside epoch and number of ranks."""
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
        padding = 0 if self.drop_last else max(0, min(self.total_size - n, n))  # one pass over the order, no more
        places = range(self.rank, min(self.total_size, n + padding), ranks)
        if len(places) != self.num_samples:
            raise AssertionError(
                f"rank {self.rank} of {ranks} has {len(places)} samples, {self.num_samples} were promised: "
                f"the dataset has {n} samples and {self.total_size} places are to be filled"
            )
        return Steps(self._order(self._epoch), max(1, self.total_size), self.rank, ranks, self.num_samples)
