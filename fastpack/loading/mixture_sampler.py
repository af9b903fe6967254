"""KempnerForge's sampler over several datasets, drawn by weight."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fastpack.datasets.permutations import Indices, TorchGenerator, index_dtype
from fastpack.loading import mixing
from fastpack.loading.base_sampler import EpochSampler, Resume
from fastpack.loading.mixture_orders import FeistelMixture, interleave, repeated
from fastpack.loading.mixture_schedule import ScheduledMixture
from fastpack.loading.order import HeldOrder, Order, Steps, StraightOrder

# What a saved state calls the order of no_repeat=True. Another schedule needs another name.
NO_REPEAT_ORDER = "passes-1"


class MixtureSampler(EpochSampler):
    """Draw each rank's sample numbers of a `MixtureDataset` by weight (index for index as KempnerForge, without torch).

    Parameters
    ----------
    cumulative_sizes : [0, n0, n0 + n1, ...], the dataset's own.
    weights : one per dataset, >= 0. `probs` are their shares, `target_counts` this rank's samples of each dataset in an
        epoch. A share above a dataset's size repeats its samples in the same order.
    num_replicas, rank : those of torch.distributed where it is initialized, else 1 and 0.
    temperature : 1 takes the weights as they are, higher ones bring them closer together; see `mixing.probabilities`.
    order : "feistel" holds no array and computes any place (`at`). Shares and lengths are the same; one permutation of
        the epoch says which dataset and which of its draws a place takes, one per dataset which sample that is. No
        dataset is too small for the ranks, and none loses a remainder.
    no_repeat : within an epoch, repeat no sample of a dataset before all of its samples have come, whatever weights are
        set in the epoch and however many ranks resume it: a dataset's second pass begins when its first is complete.
        The order is fastpack's own from the first step, and computed as by "feistel" (`order` must be "torch"). After
        every step each dataset has its share of the samples since the last change of weights, to within 1 sample for
        two datasets and 4 for any number of them.

    Notes
    -----
    `update_weights` holds from the next iteration on, also in the middle of an epoch: without `no_repeat` the list is
    drawn again, and samples that came before come again. With it, `set_skip` or `resume_at` says at which place the new
    weights begin, and `state_dict` holds "segments", the weights of the epoch so far, from which a resumed run computes
    the same order. Setting the same weights again (phases that are replayed) changes nothing. An iteration from the
    epoch's first sample begins the epoch again, with the current weights.

    As in KempnerForge, a dataset too small to give every rank a sample is left out, and the epoch is then shorter than
    `len()`; a UserWarning says so. This applies neither to "feistel" nor to `no_repeat`.

    Raises ValueError for weights that cannot be, and with `no_repeat` where all datasets with a weight above 0 are
    empty.
    """

    def __init__(
        self,
        cumulative_sizes: Sequence[int],
        weights: Sequence[float],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        temperature: float = 1.0,
        *,
        order: str = "torch",
        no_repeat: bool = False,
    ) -> None:
        super().__init__(num_replicas, rank, order)
        if no_repeat and order != "torch":
            raise ValueError(
                f"no_repeat=True needs order='torch' (the default), got {order!r}: it has an order of its own, which "
                "takes no memory either"
            )
        mixing.check_weights(weights, "MixtureSampler(weights=...)")
        self.sizes = [after - before for before, after in pairwise(cumulative_sizes)]
        self.offsets = list(cumulative_sizes[:-1])
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.no_repeat = no_repeat
        # Of the epoch whose number stands with them: (places before it, weights, temperature).
        self._history: tuple[int, list[tuple[int, list[float], float]]] = (0, [])
        self._set_weights(weights, temperature)

    def update_weights(self, weights: Sequence[float], temperature: float = 1.0) -> None:
        """Use other weights from the next iteration on; `len()` stays. Raises ValueError as the constructor does."""
        if len(weights) != len(self.sizes):
            raise ValueError(f"Expected {len(self.sizes)} weights, got {len(weights)}")
        mixing.check_weights(weights, "MixtureSampler.update_weights")
        self._set_weights(weights, temperature)

    def _set_weights(self, weights: Sequence[float], temperature: float) -> None:
        if self.no_repeat:
            self._shares(weights, temperature)
        self.weights, self.temperature = list(weights), temperature
        self.probs = mixing.probabilities(weights, temperature)
        self.target_counts = self._targets(self.probs, self.num_replicas)
        self.num_samples = sum(self.target_counts)
        lost = self.num_samples - self._length_of(self.rank, self.num_replicas, self.target_counts)
        if lost > 0 and not self.no_repeat:
            warnings.warn(
                f"datasets of sizes {self.sizes} over {self.num_replicas} ranks: one is too small to give rank "
                f"{self.rank} a sample, so {lost} of its {self.num_samples} samples an epoch are not drawn",
                stacklevel=3,
            )

    def _targets(self, shares: Sequence[float], num_replicas: int) -> list[int]:
        return mixing.targets(shares, sum(mixing.available(n, num_replicas, self.drop_last) for n in self.sizes))

    def _slice_length(self, size: int, rank: int, num_replicas: int) -> int:
        """Samples of a dataset that this rank may draw: strided, after one pass of padding."""
        padding = 0 if self.drop_last else min(-size % num_replicas, size)
        usable = size - size % num_replicas if self.drop_last else size + padding
        return len(range(rank, usable, num_replicas))

    def _length_of(self, rank: int, num_replicas: int, counts: Sequence[int]) -> int:
        drawn = [(size, n) for size, n in zip(self.sizes, counts, strict=True) if n > 0 and size]
        if self._computed:
            return sum(n for _, n in drawn)
        return sum(n for size, n in drawn if self._slice_length(size, rank, num_replicas))

    def global_order_length(self, base_num_replicas: int) -> int:
        """Samples of all ranks in an epoch, as so many ranks share them out."""
        if self.no_repeat:
            return base_num_replicas * sum(mixing.available(n, base_num_replicas, self.drop_last) for n in self.sizes)
        counts = self._targets(self.probs, base_num_replicas)
        return sum(self._length_of(rank, base_num_replicas, counts) for rank in range(base_num_replicas))

    @property
    def _computed(self) -> bool:
        """Whether any place of the order can be computed."""
        return self.no_repeat or self.order == "feistel"

    @property
    def _segments(self) -> list[tuple[int, list[float], float]]:
        """The weights that the current epoch has had so far."""
        epoch, segments = self._history
        return segments if epoch == self._epoch else []

    def at(self, position: int, epoch: int | None = None) -> int:
        """The sample at a place of the global order of an epoch (the current one), for the ranks and weights of now.

        Rank r of R has the places r, r + R, ... Needs order="feistel" or no_repeat (ValueError); IndexError outside the
        order.
        """
        if not self._computed:
            raise ValueError("torch's order is only known as a whole: at() needs order='feistel' or no_repeat=True")
        order = self._computed_order(self.num_replicas, self._epoch if epoch is None else epoch)
        if not 0 <= position < order.n:
            raise IndexError(f"position {position} out of range [0, {order.n})")
        return int(order.take(position, 1, 1)[0])

    def fingerprint(self) -> dict[str, Any]:
        """What the global order depends on beside epoch and number of ranks."""
        mix = {"sizes": self.sizes, "weights": self.weights, "temperature": self.temperature}
        order = {"order": NO_REPEAT_ORDER} if self.no_repeat else {}
        return {**super().fingerprint(), **order, **mix, "no_repeat": self.no_repeat}

    def state_dict(self) -> dict[str, Any]:
        """`{"epoch", "seed", "num_replicas", "rank"}`, and with no_repeat "segments"; weights are not in it."""
        state = super().state_dict()
        if self.no_repeat:
            epoch, segments = self._history
            state["segments"] = [list(segment) for segment in segments]
            if epoch != self._epoch:
                state["segments_epoch"] = epoch
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the epoch, and with no_repeat the weights this epoch had so far and from which place on."""
        super().load_state_dict(state)
        if self.no_repeat:
            segments = [(int(n), list(weights), float(t)) for n, weights, t in state.get("segments", [])]
            self._history = (state.get("segments_epoch", self._epoch), segments)

    def _computed_order(self, num_replicas: int, epoch: int) -> Order:
        if not self.no_repeat:
            counts = [max(0, n) * num_replicas for n in self._targets(self.probs, num_replicas)]
            return FeistelMixture(self.sizes, self.offsets, counts, self.seed, epoch, self.shuffle)
        n = self.global_order_length(num_replicas)
        if n == 0:
            return StraightOrder(0)
        known = self._segments if epoch == self._epoch else []
        history = known or [(0, self.weights, self.temperature)]
        segments = [(place, self._shares(weights, temperature)) for place, weights, temperature in history]
        return ScheduledMixture(self.sizes, self.offsets, n, segments, self.seed, epoch, self.shuffle)

    def _shares(self, weights: Sequence[float], temperature: float) -> list[float]:
        """The weights as shares of 1 of the datasets that have samples."""
        pairs = zip(mixing.probabilities(weights, temperature), self.sizes, strict=True)
        shares = [share if size else 0.0 for share, size in pairs]
        if any(self.sizes) and not any(shares):
            raise ValueError(f"every dataset with a weight above 0 is empty: weights {weights}, sizes {self.sizes}")
        return shares

    def _lists(self, ranks: Sequence[int], num_replicas: int, counts: Sequence[int]) -> list[Indices]:
        """The epoch's list of each of these ranks out of `num_replicas`, exactly as the peer draws it."""
        generator = TorchGenerator(self.seed + self._epoch)
        dtype = index_dtype(self.offsets[-1] + self.sizes[-1])
        parts: list[list[Indices]] = [[] for _ in ranks]
        for size, offset, count in zip(self.sizes, self.offsets, counts, strict=True):
            if count <= 0 or size == 0:
                continue  # and the generator is not moved on
            order: Order = HeldOrder(generator.permutation(size)) if self.shuffle else StraightOrder(size)
            for part, rank in zip(parts, ranks, strict=True):
                n = self._slice_length(size, rank, num_replicas)
                if n:
                    drawn = Steps(order, size + num_replicas, rank, num_replicas, n).take(0, min(n, count))
                    part.append(repeated(drawn, count).astype(dtype, copy=False) + dtype.type(offset))
        lists = [np.concatenate(part) if part else np.empty(0, dtype) for part in parts]
        return [generator.copy().shuffle(one) for one in lists] if self.shuffle else lists

    def _drawn(self, base_num_replicas: int, shares: Sequence[float]) -> Indices:
        """The whole global order by these shares."""
        counts = self._targets(shares, base_num_replicas)
        return interleave(self._lists(range(base_num_replicas), base_num_replicas, counts))

    def _layout(self, base_num_replicas: int) -> tuple[Order, int]:
        if self._computed:
            order = self._computed_order(base_num_replicas, self._epoch)
        else:
            order = HeldOrder(self._drawn(base_num_replicas, self.probs))
        return order, order.n

    def _steps(self) -> Steps:
        if self.no_repeat:
            start = self._resume or Resume(0, self.num_replicas)
            self._note_weights(start.consumed + max(0, self._skip) * self.num_replicas)
        return super()._steps()

    def _note_weights(self, consumed: int) -> None:
        """Record that the current weights hold from place `consumed` on; the places before it stay as they were."""
        now = (self.weights, self.temperature)
        segments = [segment for segment in self._segments if segment[0] < consumed] or [(0, *now)]
        if segments[-1][1:] != now:
            segments.append((consumed, *now))
        self._history = (self._epoch, segments)

    def _own_steps(self) -> Steps:
        if self._computed:
            order = self._computed_order(self.num_replicas, self._epoch)
            return Steps(order, max(1, order.n), self.rank, self.num_replicas, order.n // self.num_replicas)
        (own,) = self._lists([self.rank], self.num_replicas, self.target_counts)
        return Steps(HeldOrder(own), max(1, len(own)), 0, 1, len(own))
