"""The shares of a mixture since the start of the run, and how many samples each source has given at any position."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.datasets.permutations import feistel_state, splitmix
from fastpack.errors import FastpackError
from fastpack.loading.mixture_encoding import Changes, decode_changes, encode_changes
from fastpack.loading.mixture_schedule import SCHEDULE_STREAM, ShareSchedule

Shares: TypeAlias = tuple[float, ...]
Counts: TypeAlias = npt.NDArray[np.int64]

MAX_ENCODED = 3400  # bytes of a history in a state; older changes are left out
MAX_IN_STATE = 256  # changes of which as many are encoded in a state as fit
MAX_CHANGES = 4096  # that are kept in memory


def rounded_shares(shares: Sequence[float]) -> Shares:
    """Return the shares as a history stores them: rounded to float32, without trailing sources of share 0."""
    values = np.array(shares, np.float32).tolist()
    while len(values) > 1 and values[-1] == 0:
        values.pop()
    return tuple(values)


class MixtureHistory:
    """Changes of the shares of a mixture by position in the run, which counts the samples of all ranks and epochs.

    The shares between two changes are those of a `ShareSchedule`, and draws of a source are counted through all
    changes. Old changes may be forgotten: what they drew is kept.

    Parameters
    ----------
    shares
        From position 0 on, as `rounded_shares` returns them.
    seed, shuffle
        Those of the sampler.

    Attributes
    ----------
    state : int
        The state of the seed's permutations.
    shuffle : bool
        Whether the order is shuffled.
    """

    def __init__(self, shares: Shares, seed: int, shuffle: bool) -> None:
        self.state, self.shuffle = feistel_state(seed, 0), shuffle
        self._positions, self._shares = [0], [shares]
        self._drawn = [np.zeros(len(shares), np.int64)]  # by each source before each change
        self._schedules: dict[int, ShareSchedule] = {}  # by position of the change

    @property
    def start(self) -> int:
        """The first position whose shares are known; 0 unless changes were forgotten."""
        return self._positions[0]

    def __len__(self) -> int:
        return len(self._positions)

    def change(self, position: int, shares: Shares) -> None:
        """Set the shares from `position` on, instead of the changes from there on."""
        if position < self.start:
            raise FastpackError(
                f"the mixture's history starts at sample {self.start} of the run, sample {position} is before it: "
                "start from the state of an earlier checkpoint"
            )
        kept = bisect_left(self._positions, position)
        if kept and self._shares[kept - 1] == shares:
            self._forget_from(kept)
            return
        drawn = self.counts(position) if kept else self._drawn[0]
        self._forget_from(kept)
        self._positions.append(position)
        self._shares.append(shares)
        self._drawn.append(drawn)
        if len(self._positions) > MAX_CHANGES:
            self._forget_before(MAX_CHANGES // 2)

    def _forget_from(self, kept: int) -> None:
        for position in self._positions[kept:]:
            self._schedules.pop(position, None)
        del self._positions[kept:], self._shares[kept:], self._drawn[kept:]

    def _forget_before(self, number: int) -> None:
        for position in self._positions[:number]:
            self._schedules.pop(position, None)
        del self._positions[:number], self._shares[:number], self._drawn[:number]

    def draws(self, positions: npt.NDArray[np.int64]) -> tuple[Counts, Counts]:
        """Return the source of each position, and how often it was drawn before: both int64 [n]."""
        first = int(positions.min(initial=self._positions[-1]))
        if first < self.start:
            raise FastpackError(f"the mixture's history starts at sample {self.start} of the run")
        if first >= self._positions[-1]:
            return self._assign(len(self._positions) - 1, positions)
        sources, draws = np.empty_like(positions), np.empty_like(positions)
        segments = np.searchsorted(self._positions, positions, side="right") - 1
        for segment in np.unique(segments).tolist():
            where = np.flatnonzero(segments == segment)
            sources[where], draws[where] = self._assign(segment, positions[where])
        return sources, draws

    def _assign(self, segment: int, positions: npt.NDArray[np.int64]) -> tuple[Counts, Counts]:
        sources, draws = self._schedule(segment).assign(positions - self._positions[segment])
        drawn = _widened(self._drawn[segment], len(self._shares[segment]))
        return sources, draws + drawn[sources]

    def counts(self, position: int) -> Counts:
        """Return how many of the samples before `position` are of each source, int64 [sources]."""
        segment = max(0, bisect_right(self._positions, position) - 1)
        counts = self._schedule(segment).counts(position - self._positions[segment])
        width = max(len(counts), len(self._drawn[segment]))
        return _widened(counts, width) + _widened(self._drawn[segment], width)

    def counts_at(self, positions: npt.NDArray[np.int64]) -> Counts:
        """Return `counts` of ascending positions, int64 [n, sources]."""
        last = len(self._positions) - 1
        if positions[0] < self._positions[last]:
            rows = [self.counts(position) for position in positions.tolist()]
            return np.stack([_widened(row, max(map(len, rows))) for row in rows])
        counts = self._schedule(last).counts_at(positions - self._positions[last])
        drawn = self._drawn[last]
        if len(drawn) > counts.shape[1]:
            counts = np.pad(counts, ((0, 0), (0, len(drawn) - counts.shape[1])))
        counts[:, : len(drawn)] += drawn
        return counts

    def _schedule(self, segment: int) -> ShareSchedule:
        position = self._positions[segment]
        found = self._schedules.get(position)
        if found is None:
            key = splitmix(splitmix(self.state ^ SCHEDULE_STREAM + position)) if self.shuffle else None
            found = self._schedules[position] = ShareSchedule(self._shares[segment], key)
        return found

    def encoded(self, whole: bool = False) -> str:
        """Return the changes as text: all of them, or the newest ones that fit into MAX_ENCODED bytes."""
        n_changes = len(self._positions)
        kept = n_changes if whole else min(n_changes, MAX_IN_STATE)
        text = self._encode(n_changes - kept)
        while not whole and len(text) > MAX_ENCODED and kept > 1:
            kept = max(1, min(kept - 1, kept * MAX_ENCODED // len(text)))
            text = self._encode(n_changes - kept)
        return text

    def _encode(self, first: int) -> str:
        chosen = self._shares[first:]
        shares = np.zeros((len(chosen), max(len(self._drawn[first]), *map(len, chosen))), np.float32)
        for row, values in zip(shares, chosen, strict=True):
            row[: len(values)] = values
        positions = np.array(self._positions[first:], np.int64)
        return encode_changes(Changes(positions, _widened(self._drawn[first], shares.shape[1]), shares))

    @classmethod
    def decoded(cls, text: str, seed: int, shuffle: bool) -> MixtureHistory:
        """Return the history that `encoded` wrote; ValueError if the text is not one."""
        changes = decode_changes(text)
        history = cls((1.0,), seed, shuffle)
        history._positions = changes.positions.tolist()
        history._shares = [rounded_shares(row.tolist()) for row in changes.shares]
        history._drawn = [changes.drawn]
        n, width = changes.shares.shape
        for number in range(1, n):
            before = history._schedule(number - 1).counts(history._positions[number] - history._positions[number - 1])
            history._drawn.append(_widened(before, width) + history._drawn[-1])
        return history


def _widened(counts: Counts, width: int) -> Counts:
    """Return the counts, followed by zeros for sources that were added later."""
    return np.concatenate([counts, np.zeros(width - len(counts), np.int64)]) if len(counts) < width else counts
