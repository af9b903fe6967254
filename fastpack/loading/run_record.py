"""What a run has done so far: where each global step is in the order of its epoch, what was skipped, and counts.

A step is one batch on every rank, counted from 0 over the whole run. The record is a few lines of JSON: one per change
of the number of ranks, of the batch size or of the epoch's length.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.loading.resume import EpochPosition

MAX_ENCODED = 2048  # bytes of the changes of weights in a state
MAX_CHANGES = 4096  # that are kept in memory

Counts: TypeAlias = npt.NDArray[np.int64]
# Samples of each source before ascending positions of the run: int64 [n] -> int64 [n, sources].
Drawn: TypeAlias = Callable[[npt.NDArray[np.int64]], Counts]


@dataclass
class Leg:
    """Steps of the run with one number of ranks and one batch size.

    Attributes
    ----------
    step
        Its first step.
    epoch, consumed, base
        The position of that step: samples of the epoch's order for `base` ranks.
    num_replicas, batch_size
        The samples of a step are `num_replicas` * `batch_size`.
    samples
        The samples of the run before the first step, skipped ones included.
    period
        The steps of an epoch, if the leg continues with whole epochs; 0 while it is in one epoch.
    micro_batch
        The micro_batch_size of Megatron's samplers; 0 for others.
    """

    step: int
    epoch: int
    consumed: int
    base: int
    num_replicas: int
    batch_size: int
    samples: int
    period: int = 0
    micro_batch: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """What stays the same in a leg: ranks, batch size, micro-batch size."""
        return self.num_replicas, self.batch_size, self.micro_batch

    def values(self) -> list[int]:
        """Return the leg as a list, without a micro_batch of 0."""
        values = list(astuple(self))
        return values if self.micro_batch else values[:-1]

    def continued(self, other: Leg) -> bool:
        """Continue with the epoch that `other` begins; return False if it is not the next one of this leg."""
        same = self.shape == other.shape
        n_steps, n_epochs = other.step - self.step, other.epoch - self.epoch
        whole = not self.consumed and not other.consumed and self.base == other.base == self.num_replicas
        period = self.period or n_steps
        if not (same and whole and n_epochs >= 1 and period * n_epochs == n_steps and period):
            return False
        if other.samples != self.samples + n_steps * self.num_replicas * self.batch_size:
            return False
        self.period = period
        return True


class StepPosition(NamedTuple):
    """Where a step is.

    Attributes
    ----------
    epoch
        The epoch.
    start
        The position in the epoch's order that its leg counts from.
    batch
        The batches of a rank from there to this step.
    samples
        The samples of the run before this step.
    leg
        The leg that the step is in.
    """

    epoch: int
    start: EpochPosition
    batch: int
    samples: int
    leg: Leg


class WeightChange(NamedTuple):
    """The weights of a mixture without `no_repeat` from a step on."""

    step: int
    weights: list[float]
    temperature: float


@dataclass
class RunRecord:
    """The record of a run; it is part of the loader's state and the same on every rank."""

    legs: list[Leg] = field(default_factory=list)
    skips: list[tuple[int, int]] = field(default_factory=list)  # that take effect; first and last step
    requested_skips: list[tuple[int, int]] = field(default_factory=list)  # of this process
    excluded: list[dict[str, Any]] = field(default_factory=list)  # lists of documents, as `ExcludedFile`
    weights: list[WeightChange] = field(default_factory=list)  # the newest; none if the order does not need them
    counted: list[int] = field(default_factory=list)  # delivered samples by source before `counted_to`
    counted_to: int = 0  # in samples of the run

    def begin(self, leg: Leg) -> None:
        """Add a leg, or continue the last one; a leg that had no step is replaced."""
        while self.legs and self.legs[-1].step >= leg.step and not self.legs[-1].period:
            self.legs.pop()
        if not self.legs or not self.legs[-1].continued(leg):
            self.legs.append(leg)

    def locate(self, step: int) -> StepPosition:
        """Return where a step is; IndexError for a step before the record."""
        leg = next((leg for leg in reversed(self.legs) if leg.step <= step), None)
        if leg is None or step < 0:
            first = self.legs[0].step if self.legs else 0
            raise IndexError(f"step {step} is not in the record of this run, which begins at step {first}")
        n_steps = step - leg.step
        epochs, batch = divmod(n_steps, leg.period) if leg.period else (0, n_steps)
        samples = leg.samples + n_steps * leg.num_replicas * leg.batch_size
        return StepPosition(leg.epoch + epochs, EpochPosition(leg.consumed, leg.base), batch, samples, leg)

    def skip(self, first: int, last: int, step: int) -> None:
        """Skip the steps [first, last] that come at or after `step`, the current one."""
        self.requested_skips.append((first, last))
        self.add_skip(first, last, step)

    def add_skip(self, first: int, last: int, step: int) -> None:
        """Skip the steps [first, last] from `step` on."""
        if last >= step:
            self.skips = _merged([*self.skips, (max(first, step), last)])

    def is_skipped(self, step: int) -> bool:
        """Return whether a step is not delivered."""
        return bool(self.skips) and any(first <= step <= last for first, last in self.skips)

    def count(self, end: int, drawn: Drawn | None, after: int | None = None) -> None:
        """Count the samples up to `end` of the run as delivered, and those from there to `after` as skipped."""
        if drawn is None:
            return
        if end > self.counted_to:
            (self.counted,) = self.counts([end], drawn).tolist()
        self.counted_to = end if after is None else after

    def counts(self, ends: Sequence[int], drawn: Drawn) -> Counts:
        """Return the delivered samples of each source before ends in the run, ascending: int64 [ends, sources]."""
        counts = drawn(np.maximum(ends, self.counted_to))
        if self.counted_to:
            counts -= drawn(np.array([self.counted_to]))
        counts[:, : len(self.counted)] += np.array(self.counted, np.int64)
        return counts

    def set_weights(self, step: int, weights: list[float], temperature: float) -> None:
        """Draw the steps from `step` on by these weights."""
        while self.weights and self.weights[-1].step >= step:
            self.weights.pop()
        if not self.weights or self.weights[-1][1:] != (weights, temperature):
            self.weights.append(WeightChange(step, weights, temperature))
        del self.weights[:-MAX_CHANGES]

    def weights_at(self, step: int) -> WeightChange | None:
        """Return the weights of a step; None if they are not recorded."""
        return next((one for one in reversed(self.weights) if one.step <= step), None)

    def step_at(self, samples: int) -> int:
        """Return the first step with no sample before `samples` of the run."""
        leg = next((leg for leg in reversed(self.legs) if leg.samples <= samples), self.legs[0])
        return leg.step + max(0, -(-(samples - leg.samples) // (leg.num_replicas * leg.batch_size)))

    def state(self, whole: bool = False) -> dict[str, Any]:
        """Return the record as JSON values; unless `whole`, with no more of the newest weights than fit."""
        weights = [list(one) for one in self.weights]
        while not whole and len(weights) > 1 and len(json.dumps(weights)) > MAX_ENCODED:
            del weights[: -(-len(weights) // 8)]
        state = {
            "legs": [leg.values() for leg in self.legs],
            "skips": [list(skip) for skip in self.skips],
            "excluded": [dict(one) for one in self.excluded],
            "counted": [*self.counted],
            "counted_to": self.counted_to,
        }
        return {**state, "weights": weights} if weights else state

    def load(self, state: Mapping[str, Any], step: int) -> None:
        """Continue the record of a state at `step`; skips and exclusions of this process remain in force."""
        self.legs = [Leg(*leg) for leg in state["legs"]]
        self.skips = [(first, last) for first, last in state["skips"]]
        known = [one["digest"] for one in state["excluded"]]
        here = [{**one, "step": step} for one in self.excluded if one["digest"] not in known]
        self.excluded = [*map(dict, state["excluded"]), *here]
        self.counted, self.counted_to = list(state["counted"]), state["counted_to"]
        self.weights = [WeightChange(*one) for one in state.get("weights", ())]
        for first, last in self.requested_skips:
            self.add_skip(first, last, step)


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges sorted, with those that touch as one."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


class BatchPlan(Iterator[tuple[int, Any]]):
    """The batches of an epoch that are delivered: the number of each in the epoch, and its samples.

    Attributes
    ----------
    number : int
        The number of the next batch, skipped or not; after the last one, how many there are.
    """

    def __init__(self, batches: Iterator[Any], number: int, is_skipped: Callable[[int], bool]) -> None:
        self._batches, self.number, self._is_skipped = batches, number, is_skipped
        self._held: tuple[int, Any] | None = None

    def has_more(self) -> bool:
        """Return whether there is another batch."""
        if self._held is None:
            self._held = next(self, None)
        return self._held is not None

    def __next__(self) -> tuple[int, Any]:
        if self._held is not None:
            held, self._held = self._held, None
            return held
        for samples in self._batches:
            self.number += 1
            if not self._is_skipped(self.number - 1):
                return self.number - 1, samples
        raise StopIteration
