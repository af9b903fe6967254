"""KempnerForge's sampler over several datasets, drawn by weight."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fastpack.datasets.permutations import Indices, TorchGenerator, index_dtype
from fastpack.loading import mixing
from fastpack.loading.base_sampler import EpochSampler
from fastpack.loading.mixture_orders import FeistelMixture, interleave, repeated
from fastpack.loading.mixture_schedule import ScheduledMixture
from fastpack.loading.order import HeldOrder, Order, Steps, StraightOrder
from fastpack.loading.resume import EpochPosition

# The name of the order of no_repeat=True in a saved state. Another schedule needs another name.
NO_REPEAT_ORDER = "passes-1"


class MixtureSampler(EpochSampler):
    """Draw each rank's sample numbers of a `MixtureDataset` by weight (exactly KempnerForge's, without torch).

    Parameters
    ----------
    cumulative_sizes
        [0, n0, n0 + n1, ...]: the `cumulative_sizes` of the dataset.
    weights
        One per dataset, >= 0. A share above a dataset's size repeats its samples in the same order.
    num_replicas, rank
        By default those of torch.distributed if it is initialized, else 1 and 0.
    shuffle
        Whether samples are shuffled, by seed and epoch.
    seed
        The seed, the same on every rank.
    drop_last
        Whether each dataset is cut to a multiple of the ranks, or extended to one by its own start.
    temperature
        1 uses the weights as they are; higher temperatures make them more equal, by a softmax of
        log(weight) / temperature.
    order
        "torch", or "feistel", which stores no array and can be read at any position (`at`). Shares and lengths are the
        same. One permutation per epoch selects the dataset and the draw of each position, one per dataset selects the
        sample of each draw. No dataset is too small for the ranks, and none loses a remainder.
    no_repeat
        Within an epoch, repeat no sample of a dataset before all of its samples were drawn, whatever weights are set
        in the epoch and however many ranks resume it. The order is fastpack's own from the first step and is computed
        as for "feistel" (`order` must be "torch"). After every step each dataset has its share of the samples since the
        last change of weights, to within 1 sample for two datasets and 4 for any number of them.

    Attributes
    ----------
    probs : list of float
        The share of each dataset.
    target_counts : list of int
        This rank's samples of each dataset in an epoch.

    Raises
    ------
    ValueError
        If a weight is negative or all are 0, and, with `no_repeat`, if all datasets with a weight above 0 are empty.

    Warns
    -----
    UserWarning
        If a dataset is too small to give every rank a sample: it is left out (as in KempnerForge), and the epoch is
        shorter than `len()`. Not with order="feistel" or `no_repeat`.

    Notes
    -----
    `update_weights` takes effect at the next iteration, also in the middle of an epoch. Without `no_repeat` the list is
    drawn again, and samples that were drawn before are repeated. With it, `set_skip` or `resume_at` determines the
    position of the change, and `state_dict` holds "segments", the weights of the epoch so far, from which a resumed run
    computes the same order. Setting the same weights again (replayed phases) changes nothing. An iteration from the
    epoch's first sample starts the epoch again with the current weights.

    Examples
    --------
    >>> import fastpack
    >>> sampler = fastpack.MixtureSampler([0, 4, 10], weights=[1, 1], num_replicas=1, rank=0, no_repeat=True)
    >>> sampler.target_counts
    [5, 5]
    >>> numbers = list(sampler)
    >>> sorted(numbers)[:5]
    [0, 1, 2, 3, 3]
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
                f"no_repeat=True needs order='torch' (the default), got {order!r}: its own order takes no memory either"
            )
        mixing.check_weights(weights, "MixtureSampler(weights=...)")
        self.sizes = [after - before for before, after in pairwise(cumulative_sizes)]
        self.offsets = list(cumulative_sizes[:-1])
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.no_repeat = no_repeat
        # The epoch, and its segments: (positions before the segment, weights, temperature).
        self._history: tuple[int, list[tuple[int, list[float], float]]] = (0, [])
        self._set_weights(weights, temperature)

    def update_weights(self, weights: Sequence[float], temperature: float = 1.0) -> None:
        """Use other weights from the next iteration on; `len()` does not change.

        Parameters
        ----------
        weights, temperature
            As for the constructor.

        Raises
        ------
        ValueError
            As for the constructor, or if the number of weights is not that of the datasets.
        """
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
        """Return the samples of a dataset that this rank may draw: strided, after padding."""
        padding = 0 if self.drop_last else min(-size % num_replicas, size)
        usable = size - size % num_replicas if self.drop_last else size + padding
        return len(range(rank, usable, num_replicas))

    def _length_of(self, rank: int, num_replicas: int, counts: Sequence[int]) -> int:
        drawn = [(size, n) for size, n in zip(self.sizes, counts, strict=True) if n > 0 and size]
        if self._computed:
            return sum(n for _, n in drawn)
        return sum(n for size, n in drawn if self._slice_length(size, rank, num_replicas))

    def global_order_length(self, base_num_replicas: int) -> int:
        """Return the samples of all ranks in an epoch for this number of ranks.

        Parameters
        ----------
        base_num_replicas
            The number of ranks.

        Returns
        -------
        int
            Number of samples.
        """
        if self.no_repeat:
            return base_num_replicas * sum(mixing.available(n, base_num_replicas, self.drop_last) for n in self.sizes)
        counts = self._targets(self.probs, base_num_replicas)
        return sum(self._length_of(rank, base_num_replicas, counts) for rank in range(base_num_replicas))

    @property
    def _computed(self) -> bool:
        """Whether any position of the order can be computed."""
        return self.no_repeat or self.order == "feistel"

    @property
    def _segments(self) -> list[tuple[int, list[float], float]]:
        """The weights of the current epoch so far."""
        epoch, segments = self._history
        return segments if epoch == self._epoch else []

    def at(self, position: int, epoch: int | None = None) -> int:
        """Return the sample at a position of the global order of an epoch, for the current ranks and weights.

        Rank r of R has the positions r, r + R, ...

        Parameters
        ----------
        position
            Counted from 0.
        epoch
            By default the current one.

        Returns
        -------
        int
            The sample number.

        Raises
        ------
        ValueError
            Unless order="feistel" or no_repeat=True: torch's order is only known as a whole.
        IndexError
            If the position is out of range.
        """
        if not self._computed:
            raise ValueError("torch's order is only known as a whole: at() needs order='feistel' or no_repeat=True")
        order = self._computed_order(self.num_replicas, self._epoch if epoch is None else epoch)
        if not 0 <= position < order.n:
            raise IndexError(f"position {position} out of range [0, {order.n})")
        return int(order.take(position, 1, 1)[0])

    def fingerprint(self) -> dict[str, Any]:
        """Return what the global order depends on, in addition to the epoch and the number of ranks.

        Returns
        -------
        dict
            JSON values by name. Equal values mean equal orders, for the same epoch and number of ranks.
        """
        mix = {"sizes": self.sizes, "weights": self.weights, "temperature": self.temperature}
        order = {"order": NO_REPEAT_ORDER} if self.no_repeat else {}
        return {**super().fingerprint(), **order, **mix, "no_repeat": self.no_repeat}

    def state_dict(self) -> dict[str, Any]:
        """Return the state, without the current weights.

        Returns
        -------
        dict
            "epoch", "seed", "num_replicas" and "rank"; with `no_repeat` also "segments".
        """
        state = super().state_dict()
        if self.no_repeat:
            epoch, segments = self._history
            state["segments"] = [list(segment) for segment in segments]
            if epoch != self._epoch:
                state["segments_epoch"] = epoch
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the epoch and, with no_repeat, the segments: the weights of the epoch so far and their positions.

        Parameters
        ----------
        state
            A state of `state_dict`.
        """
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
        segments = [(position, self._shares(weights, temperature)) for position, weights, temperature in history]
        return ScheduledMixture(self.sizes, self.offsets, n, segments, self.seed, epoch, self.shuffle)

    def _shares(self, weights: Sequence[float], temperature: float) -> list[float]:
        """Return the weights as shares of 1, with 0 for empty datasets."""
        pairs = zip(mixing.probabilities(weights, temperature), self.sizes, strict=True)
        shares = [share if size else 0.0 for share, size in pairs]
        if any(self.sizes) and not any(shares):
            raise ValueError(f"every dataset with a weight above 0 is empty: weights {weights}, sizes {self.sizes}")
        return shares

    def _lists(self, ranks: Sequence[int], num_replicas: int, counts: Sequence[int]) -> list[Indices]:
        """Return the epoch's list of each of these ranks out of `num_replicas`, exactly as KempnerForge draws it."""
        generator = TorchGenerator(self.seed + self._epoch)
        dtype = index_dtype(self.offsets[-1] + self.sizes[-1])
        drawn_of: list[list[Indices]] = [[] for _ in ranks]
        for size, offset, count in zip(self.sizes, self.offsets, counts, strict=True):
            if count <= 0 or size == 0:
                continue  # without advancing the generator
            order: Order = HeldOrder(generator.permutation(size)) if self.shuffle else StraightOrder(size)
            for lists, rank in zip(drawn_of, ranks, strict=True):
                n = self._slice_length(size, rank, num_replicas)
                if n:
                    drawn = Steps(order, size + num_replicas, rank, num_replicas, n).take(0, min(n, count))
                    lists.append(repeated(drawn, count).astype(dtype, copy=False) + dtype.type(offset))
        orders = [np.concatenate(lists) if lists else np.empty(0, dtype) for lists in drawn_of]
        return [generator.copy().shuffle(one) for one in orders] if self.shuffle else orders

    def _drawn(self, base_num_replicas: int, shares: Sequence[float]) -> Indices:
        """Return the whole global order for these shares."""
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
            start = self._resume or EpochPosition(0, self.num_replicas)
            self._note_weights(start.consumed + max(0, self._skip) * self.num_replicas)
        return super()._steps()

    def _note_weights(self, consumed: int) -> None:
        """Record that the current weights apply from position `consumed` on; the positions before keep theirs."""
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
