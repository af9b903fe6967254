"""Phases of training: other weights of a mixture, and another factor of the learning rate, from a given step on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fastpack.display import Described, facts


@dataclass(frozen=True, repr=False)
class TrainingPhase(Described):
    """From optimizer step `start_step` on: weights by dataset name (unnamed ones as at the start), and `lr_scale`."""

    _shown = facts("start_step", datasets="dataset_weights", lr_scale="lr_scale")

    start_step: int
    dataset_weights: Mapping[str, float] = field(default_factory=dict)
    lr_scale: float = 1.0


class PhaseChange(NamedTuple):
    """weights_changed: the sampler has other weights, so iterate the loader anew; lr_scale: what holds now."""

    weights_changed: bool
    lr_scale: float


class Weighted(Protocol):
    """A sampler whose weights can be changed: `MixtureSampler`."""

    def update_weights(self, weights: Sequence[float], temperature: float = 1.0) -> None: ...


class PhaseSchedule(Described):
    """Applies phases as KempnerForge's training loop does.

        change = schedule.advance(step)          # after each optimizer step, with the step already counted
        if change.weights_changed:
            batches = iter(loader)               # goes on in the same epoch, drawn by the new weights
        for group in optimizer.param_groups:     # after scheduler.step()
            group["lr"] *= change.lr_scale

    sampler: given the weights of each phase that begins (None: only lr_scale is followed). names, weights: of the
    datasets, as at the start; each phase begins from these, phases do not compound. After a restart one call
    `advance(step)` with the step to go on from replays every phase up to it, and the sampler draws the same list.
    Weights act at once, in the middle of an epoch; see `MixtureSampler(no_repeat=True)` for what that repeats.

    Raises ValueError when start_step is negative or does not increase, a weight is negative, lr_scale is not above 0,
    or names and weights differ in number. A phase that names an unknown dataset is a UserWarning.
    """

    _shown = facts("phases", begun="phase_idx", datasets="names", lr_scale="lr_scale")

    def __init__(
        self,
        phases: Sequence[TrainingPhase],
        sampler: Weighted | None = None,
        names: Sequence[str] = (),
        weights: Sequence[float] = (),
        temperature: float = 1.0,
    ) -> None:
        if len(names) != len(weights):
            raise ValueError(f"{len(names)} names and {len(weights)} weights: one of each per dataset is needed")
        self.phases = sorted(phases, key=lambda phase: phase.start_step)
        self.names, self.weights, self.temperature = list(names), list(weights), temperature
        self.sampler = sampler
        self.lr_scale = 1.0
        self.phase_idx = 0  # phases that have begun
        self._check()

    @classmethod
    def annealing(
        cls,
        start_step: int,
        dataset_weights: Mapping[str, float],
        sampler: Weighted | None = None,
        names: Sequence[str] = (),
        weights: Sequence[float] = (),
        temperature: float = 1.0,
    ) -> PhaseSchedule:
        """KempnerForge's anneal_start_step and anneal_weights: one phase, and none when the step is 0 or no weights."""
        phases = [TrainingPhase(start_step, dataset_weights)] if start_step > 0 and dataset_weights else []
        return cls(phases, sampler, names, weights, temperature)

    def _check(self) -> None:
        before = -1
        for phase in self.phases:
            unknown = sorted(set(phase.dataset_weights) - set(self.names)) if self.sampler is not None else []
            if phase.start_step <= before:
                raise ValueError(f"start_step must be >= 0 and strictly increasing, got {phase.start_step}")
            if any(weight < 0 for weight in phase.dataset_weights.values()):
                raise ValueError(f"dataset_weights must be non-negative, got {dict(phase.dataset_weights)}")
            if phase.lr_scale <= 0:
                raise ValueError(f"lr_scale must be > 0, got {phase.lr_scale}")
            if unknown:  # the peer passes over them
                text = f"the phase at step {phase.start_step} names {unknown}, the datasets are {self.names}"
                warnings.warn(text, stacklevel=4)
            before = phase.start_step

    def advance(self, step: int) -> PhaseChange:
        """Begin every phase with start_step <= `step` that has not begun yet, in turn; say what holds now."""
        began = self.phase_idx
        while self.phase_idx < len(self.phases) and step >= self.phases[self.phase_idx].start_step:
            phase = self.phases[self.phase_idx]
            if self.sampler is not None:
                pairs = zip(self.names, self.weights, strict=True)
                weights = [phase.dataset_weights.get(name, weight) for name, weight in pairs]
                self.sampler.update_weights(weights, self.temperature)
            self.lr_scale = phase.lr_scale
            self.phase_idx += 1
        return PhaseChange(self.phase_idx > began and self.sampler is not None, self.lr_scale)
