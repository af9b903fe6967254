"""The samples of each rank in an epoch of a mixture, exactly as KempnerForge draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastpack.datasets.permutations import Indices, TorchGenerator, index_dtype
from fastpack.loading.mixture_orders import repeated
from fastpack.loading.order import HeldOrder, Order, Steps, StraightOrder


def slice_length(size: int, rank: int, num_replicas: int, drop_last: bool) -> int:
    """Return the samples of a dataset that a rank may draw: strided, after padding."""
    padding = 0 if drop_last else min(-size % num_replicas, size)
    usable = size - size % num_replicas if drop_last else size + padding
    return len(range(rank, usable, num_replicas))


class RankLists(NamedTuple):
    """The datasets of a mixture, and the seed of an epoch."""

    sizes: Sequence[int]
    offsets: Sequence[int]
    shuffle: bool
    drop_last: bool
    seed: int

    def of(self, ranks: Sequence[int], num_replicas: int, counts: Sequence[int]) -> list[Indices]:
        """Return the epoch's list of each of these ranks, with `counts` samples of each dataset."""
        generator = TorchGenerator(self.seed)
        dtype = index_dtype(self.offsets[-1] + self.sizes[-1])
        drawn_of: list[list[Indices]] = [[] for _ in ranks]
        for size, offset, count in zip(self.sizes, self.offsets, counts, strict=True):
            if count <= 0 or size == 0:
                continue  # without advancing the generator
            order: Order = HeldOrder(generator.permutation(size)) if self.shuffle else StraightOrder(size)
            for lists, rank in zip(drawn_of, ranks, strict=True):
                n = slice_length(size, rank, num_replicas, self.drop_last)
                if n:
                    drawn = Steps(order, size + num_replicas, rank, num_replicas, n).take(0, min(n, count))
                    lists.append(repeated(drawn, count).astype(dtype, copy=False) + dtype.type(offset))
        orders = [np.concatenate(lists) if lists else np.empty(0, dtype) for lists in drawn_of]
        return [generator.copy().shuffle(one) for one in orders] if self.shuffle else orders
