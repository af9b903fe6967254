"""Training phases: new mixture weights and a factor of the learning rate from a given step on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fastpack.display import Described, facts


@dataclass(frozen=True, repr=False)
class TrainingPhase(Described):
    """The weights of a mixture and the factor of the learning rate from an optimizer step on.

    Parameters
    ----------
    start_step
        The first optimizer step of the phase, >= 0.
    dataset_weights
        Weights by dataset name, >= 0; datasets that are not named keep their original weights.
    lr_scale
        The factor of the learning rate, > 0.

    Raises
    ------
    ValueError
        If a value is out of range.

    Examples
    --------
    >>> import fastpack
    >>> fastpack.TrainingPhase(1000, {"books": 0.9}, lr_scale=0.5)
    TrainingPhase(start_step=1000, datasets=1, lr_scale=0.5)
    """

    _shown = facts("start_step", datasets="dataset_weights", lr_scale="lr_scale")

    start_step: int
    dataset_weights: dict[str, float] = field(default_factory=dict)
    lr_scale: float = 1.0

    def __post_init__(self) -> None:
        require(self.start_step >= 0, "TrainingPhase.start_step must be non-negative", self.start_step)
        require(self.lr_scale > 0, "TrainingPhase.lr_scale must be positive", self.lr_scale)
        require_weights("TrainingPhase.dataset_weights", self.dataset_weights)


def require(condition: bool, requirement: str, found: object) -> None:
    """Raise a ValueError that starts with KempnerForge's words, which its users match on."""
    if not condition:
        raise ValueError(f"{requirement}, got {found}")


def require_weights(name: str, weights: Mapping[str, float]) -> None:
    """Raise ValueError for a negative weight."""
    for source, weight in weights.items():
        require(weight >= 0, f"{name}['{source}'] must be non-negative", weight)


class PhaseChange(NamedTuple):
    """The result of `PhaseSchedule.advance`.

    Attributes
    ----------
    weights_changed : bool
        Whether the sampler has new weights: call `iter(loader)` again.
    lr_scale : float
        The current factor of the learning rate.
    """

    weights_changed: bool
    lr_scale: float


class Weighted(Protocol):
    """A sampler whose weights can be changed: `MixtureSampler`."""

    def update_weights(self, weights: Sequence[float], temperature: float = 1.0) -> None: ...


class PhaseSchedule(Described):
    """Apply training phases as KempnerForge's training loop does.

    Parameters
    ----------
    phases
        The phases, whose start steps differ.
    sampler
        Receives the weights of each phase that starts; None to follow only lr_scale.
    names, weights
        Of the datasets, at the start. Each phase starts from these weights: phases do not accumulate.
    temperature
        Passed to the sampler with the weights.

    Raises
    ------
    ValueError
        If two phases have the same start step, or names and weights differ in number.

    Warns
    -----
    UserWarning
        If a phase names an unknown dataset.

    Notes
    -----
    After a restart, one `advance(step)` with the step to continue from replays every phase up to it, and the sampler
    draws the same samples. Weights take effect immediately, in the middle of an epoch; see
    `MixtureSampler(no_repeat=True)` for what that repeats.

    Examples
    --------
    In a training loop, after each optimizer step::

        change = schedule.advance(step)
        if change.weights_changed:
            batches = iter(loader)               # continues the epoch with the new weights
        for group in optimizer.param_groups:     # after scheduler.step()
            group["lr"] *= change.lr_scale

    >>> import fastpack
    >>> sampler = fastpack.MixtureSampler([0, 10, 20], weights=[1, 1], num_replicas=1, rank=0)
    >>> phases = [fastpack.TrainingPhase(100, {"books": 3.0}, lr_scale=0.5)]
    >>> schedule = fastpack.PhaseSchedule(phases, sampler, names=["web", "books"], weights=[1, 1])
    >>> schedule.advance(99)
    PhaseChange(weights_changed=False, lr_scale=1.0)
    >>> schedule.advance(100)
    PhaseChange(weights_changed=True, lr_scale=0.5)
    >>> sampler.probs
    [0.25, 0.75]
    """

    _shown = facts("phases", started="phase_idx", datasets="names", lr_scale="lr_scale")

    def __init__(
        self,
        phases: Sequence[TrainingPhase],
        sampler: Weighted | None = None,
        names: Sequence[str] = (),
        weights: Sequence[float] = (),
        temperature: float = 1.0,
    ) -> None:
        if len(names) != len(weights):
            raise ValueError(f"{len(names)} names and {len(weights)} weights: pass one of each per dataset")
        self.phases = sorted(phases, key=lambda phase: phase.start_step)
        self.names, self.weights, self.temperature = list(names), list(weights), temperature
        self.sampler = sampler
        self.lr_scale = 1.0
        self.phase_idx = 0  # phases that have started
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
        """Return the schedule of KempnerForge's anneal_start_step and anneal_weights.

        Parameters
        ----------
        start_step
            The first optimizer step of the phase; 0: there is no phase.
        dataset_weights
            Weights by dataset name; if empty, there is no phase.
        sampler, names, weights, temperature
            As for the constructor.

        Returns
        -------
        PhaseSchedule
            A schedule of one phase, or of none.
        """
        phases = [TrainingPhase(start_step, dict(dataset_weights))] if start_step > 0 and dataset_weights else []
        return cls(phases, sampler, names, weights, temperature)

    def _check(self) -> None:
        before = -1
        for phase in self.phases:
            unknown = sorted(set(phase.dataset_weights) - set(self.names)) if self.sampler is not None else []
            if phase.start_step <= before:
                raise ValueError(f"start_step must be strictly increasing, got {phase.start_step}")
            if unknown:  # KempnerForge ignores them
                text = f"the phase at step {phase.start_step} names {unknown}, the datasets are {self.names}"
                warnings.warn(text, stacklevel=4)
            before = phase.start_step

    def advance(self, step: int) -> PhaseChange:
        """Start every phase up to this step that has not started yet, in order.

        Parameters
        ----------
        step
            The optimizer step.

        Returns
        -------
        PhaseChange
            Whether the sampler has new weights, and the current factor of the learning rate.
        """
        started = self.phase_idx
        while self.phase_idx < len(self.phases) and step >= self.phases[self.phase_idx].start_step:
            phase = self.phases[self.phase_idx]
            if self.sampler is not None:
                pairs = zip(self.names, self.weights, strict=True)
                weights = [phase.dataset_weights.get(name, weight) for name, weight in pairs]
                self.sampler.update_weights(weights, self.temperature)
            self.lr_scale = phase.lr_scale
            self.phase_idx += 1
        return PhaseChange(self.phase_idx > started and self.sampler is not None, self.lr_scale)
