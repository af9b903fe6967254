"""KempnerForge's sampler over several datasets, drawn by weight."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fastpack.datasets.permutations import Indices, TorchGenerator, feistel_keys, index_dtype
from fastpack.loading import mixing
from fastpack.loading.base_sampler import EpochSampler, Resume
from fastpack.loading.mixture_orders import FeistelMixture, interleave, repeated, undrawn
from fastpack.loading.order import HeldOrder, Order, Steps, StraightOrder


class MixtureSampler(EpochSampler):
    """Each rank's sample numbers of a `MixtureDataset`, index for index those of KempnerForge's class, without torch.

    cumulative_sizes: [0, n0, n0 + n1, ...], the dataset's own. weights: one per dataset, >= 0; `probs` are their shares
    (see `mixing.probabilities` for `temperature`), `target_counts` this rank's samples of each dataset in an epoch.
    A share above a dataset's size repeats its samples in the same order.

    As the peer, a dataset too small to give every rank a sample is left out and the epoch is then shorter than `len()`;
    a UserWarning says so here. `update_weights` holds from the next iteration on, also in the middle of an epoch: the
    list is drawn anew, and samples seen before come again.

    no_repeat=True: after a change of weights in the middle of an epoch, samples already seen in it do not come again
    until their dataset is exhausted. What was seen follows from `set_skip` or `resume_at` at the next iteration: the
    places before are kept as they were, the rest of the epoch is split by the new weights and drawn from the samples
    seen least often, at random. Until weights change the order is the peer's. `state_dict` then holds "segments", from
    which a resumed run finds the same order; weights set again as they were (phases replayed) change nothing.

    order="feistel": no array is held, any place is computed (`at`). Shares and lengths are the same, the rest is
    simpler: one permutation over the whole epoch says which dataset and which of its draws a place takes, one
    permutation per dataset which sample that is. No dataset is too small for the ranks, and none loses a remainder.
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
        if no_repeat and order == "feistel":
            raise ValueError("no_repeat=True needs order='torch': what was seen takes memory, which 'feistel' does not")
        mixing.check_weights(weights, "MixtureSampler(weights=...)")
        self.sizes = [after - before for before, after in pairwise(cumulative_sizes)]
        self.offsets = list(cumulative_sizes[:-1])
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.no_repeat = no_repeat
        self._segments: list[tuple[int, list[float], float]] = []  # (places before it, weights, temperature)
        self._set_weights(weights, temperature)

    def update_weights(self, weights: Sequence[float], temperature: float = 1.0) -> None:
        """Use other weights from the next iteration on; `len()` stays. Raises ValueError as the constructor does."""
        if len(weights) != len(self.sizes):
            raise ValueError(f"Expected {len(self.sizes)} weights, got {len(weights)}")
        mixing.check_weights(weights, "MixtureSampler.update_weights")
        self._set_weights(weights, temperature)

    def _set_weights(self, weights: Sequence[float], temperature: float) -> None:
        self.weights, self.temperature = list(weights), temperature
        self.probs = mixing.probabilities(weights, temperature)
        self.target_counts = self._targets(self.probs, self.num_replicas)
        self.num_samples = sum(self.target_counts)
        lost = self.num_samples - self._length_of(self.rank, self.num_replicas, self.target_counts)
        if lost > 0:
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
        if self.order == "feistel":
            return sum(n for _, n in drawn)
        return sum(n for size, n in drawn if self._slice_length(size, rank, num_replicas))

    def global_order_length(self, base_num_replicas: int) -> int:
        """Samples of all ranks in an epoch, as so many ranks share them out."""
        shares = self.probs
        if self._segments:  # the epoch's length stays what its first weights made it
            shares = mixing.probabilities(*self._segments[0][1:])
        counts = self._targets(shares, base_num_replicas)
        return sum(self._length_of(rank, base_num_replicas, counts) for rank in range(base_num_replicas))

    def at(self, position: int, epoch: int | None = None) -> int:
        """The sample at a place of the global order of an epoch (the current one), for the ranks and weights of now.

        Rank r of R has the places r, r + R, ... Needs order="feistel" (ValueError); IndexError outside the order.
        """
        if self.order != "feistel":
            raise ValueError("torch's order is only known as a whole: at() needs order='feistel'")
        mixture = self._mixture(self.num_replicas, self._epoch if epoch is None else epoch)
        if not 0 <= position < mixture.n:
            raise IndexError(f"position {position} out of range [0, {mixture.n})")
        return int(mixture.take(position, 1, 1)[0])

    def fingerprint(self) -> dict[str, Any]:
        """What the global order depends on beside epoch and number of ranks."""
        mix = {"sizes": self.sizes, "weights": self.weights, "temperature": self.temperature}
        return {**super().fingerprint(), **mix, "no_repeat": self.no_repeat}

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, counted from 0; another one than now forgets `resume_at` and what was seen."""
        if epoch != self._epoch:
            self._segments = []
        super().set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """`{"epoch", "seed", "num_replicas", "rank"}`, and with no_repeat "segments"; weights are not in it."""
        state = super().state_dict()
        if self.no_repeat:
            state["segments"] = [list(segment) for segment in self._segments]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the epoch, and with no_repeat the weights this epoch had so far and from which place on."""
        super().load_state_dict(state)
        if self.no_repeat:
            self._segments = [(int(n), list(weights), float(t)) for n, weights, t in state.get("segments", [])]

    def _mixture(self, num_replicas: int, epoch: int) -> FeistelMixture:
        counts = [max(0, n) * num_replicas for n in self._targets(self.probs, num_replicas)]
        return FeistelMixture(self.sizes, self.offsets, counts, self.seed, epoch, self.shuffle)

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
        order: Order
        if self.order == "feistel":
            order = self._mixture(base_num_replicas, self._epoch)
        elif len(self._segments) > 1:
            order = HeldOrder(self._without_repeats(base_num_replicas))
        else:
            order = HeldOrder(self._drawn(base_num_replicas, self.probs))
        return order, order.n

    def _steps(self) -> Steps:
        if not self.no_repeat:
            return super()._steps()
        start = self._resume or Resume(0, self.num_replicas)
        self._note_weights(start.consumed + max(0, self._skip) * self.num_replicas)
        return super()._steps() if len(self._segments) == 1 else self._steps_from(start)

    def _note_weights(self, consumed: int) -> None:
        """Whatever was drawn before place `consumed` was drawn as noted; from there on the weights of now hold."""
        now = (self.weights, self.temperature)
        self._segments = [segment for segment in self._segments if segment[0] < consumed]
        if not self._segments:
            self._segments = [(0, *now)]
        elif self._segments[-1][1:] != now:
            self._segments.append((consumed, *now))

    def _without_repeats(self, base_num_replicas: int) -> Indices:
        """The global order with each change of weights at its place."""
        _, weights, temperature = self._segments[0]
        held = self._drawn(base_num_replicas, mixing.probabilities(weights, temperature))
        for place, weights, temperature in self._segments[1:]:
            shares = mixing.probabilities(weights, temperature)
            shares = [share if size else 0.0 for share, size in zip(shares, self.sizes, strict=True)]
            if any(shares):
                counts = mixing.targets(mixing.probabilities(shares, 1.0), max(0, len(held) - place))
                seed = int(feistel_keys(self.seed, self._epoch, place)[0])  # another stream than the epoch's own
                generator = TorchGenerator(seed) if self.shuffle else None
                rest = undrawn(held[:place], self.sizes, self.offsets, counts, generator)
                held = np.concatenate([held[:place], rest])
        return held

    def _own_steps(self) -> Steps:
        if self.order == "feistel":
            mixture = self._mixture(self.num_replicas, self._epoch)
            return Steps(mixture, max(1, mixture.n), self.rank, self.num_replicas, mixture.n // self.num_replicas)
        (own,) = self._lists([self.rank], self.num_replicas, self.target_counts)
        return Steps(HeldOrder(own), max(1, len(own)), 0, 1, len(own))
