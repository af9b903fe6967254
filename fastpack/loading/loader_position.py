"""Where a loader is: its epoch, the batches of it that were delivered, and the state that continues there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastpack.loading.adapters import SamplerAdapter, as_resumable_sampler
from fastpack.loading.batch_numbers import batches_of
from fastpack.loading.progress import Progress
from fastpack.loading.resume import HOW_TO_CONTINUE, EpochPosition, LoaderShape, check_order, json_fingerprint
from fastpack.loading.run_record import BatchPlan


class LoaderPosition:
    """The position of a loader in its current epoch, and its progress in the run.

    Attributes
    ----------
    sampler : ResumableSampler
        The sampler, adapted if it is not one of fastpack.
    epoch : int
        The current epoch.
    yielded : int
        Its batches that were delivered or skipped, counted from where this process started in it.
    progress : Progress
        The position in the run.
    """

    epoch: int
    yielded: int
    _start: EpochPosition

    def __init__(self, dataset: Any, sampler: Any, batch_size: int, elastic: bool) -> None:
        self._dataset, self._batch_size, self._elastic = dataset, batch_size, elastic
        self.sampler = as_resumable_sampler(sampler)
        self.progress = Progress(self.sampler, batch_size)
        self._order_to_check: Mapping[str, Any] | None = None  # of a loaded state
        # Megatron's samplers may start anywhere.
        start: tuple[int, EpochPosition | None] = getattr(self.sampler, "first_position", lambda: (0, None))()
        self._go_to(*start)

    @property
    def batches_yielded(self) -> int:
        """The batches of a rank from the start of the epoch on."""
        return self._in_epoch().batches(self.sampler.num_replicas, self._batch_size)

    def plan(self) -> BatchPlan:
        """Return the remaining batches of this epoch."""
        sampler = self.sampler
        if self._order_to_check is not None:
            check_order(self._order_to_check, json_fingerprint(sampler.fingerprint()), HOW_TO_CONTINUE)
            self._order_to_check = None
        self.progress.forget_ahead()
        sampler.set_epoch(self.epoch)
        sampler.forget_resume()
        position = self._in_epoch()
        skip = position.skip(sampler.num_replicas)
        if skip is None:
            sampler.resume_at(position.consumed, position.base)
        elif skip:
            sampler.set_skip(skip)
        first_step = self.progress.step - self.yielded
        is_skipped = self.progress.record.is_skipped
        batches = batches_of(sampler, self._batch_size)
        return BatchPlan(batches, self.yielded, lambda number: is_skipped(first_step + number))

    def plan_or_next_epoch(self) -> BatchPlan:
        """Return the plan of this epoch, or of the next one if a loop over `len()` took all batches of this one."""
        plan = self.plan()
        if not self.yielded or plan.has_more():
            return plan
        self.end_epoch(plan)
        return self.plan()

    def advance(self, number: int) -> None:
        """Count batch `number` of the plan as delivered, and those before it as skipped."""
        self.progress.advance(number - self.yielded)
        self.yielded = number + 1

    def end_epoch(self, plan: BatchPlan) -> None:
        """Go to the next epoch; the steps at the end of this one that were not delivered are skipped ones."""
        self.progress.advance(plan.number - self.yielded, 0)
        self.yielded = plan.number
        self.progress.end_epoch(self.epoch, self._in_epoch().consumed)
        self._go_to(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of another epoch."""
        self._order_to_check = None
        self._go_to(epoch)

    def state(self) -> dict[str, Any]:
        """Return the position as JSON values."""
        sampler = self.sampler
        state: dict[str, Any] = {"epoch": self.epoch, "batches_yielded": self.batches_yielded}
        if sampler_state := sampler.state_dict():
            state["sampler"] = sampler_state
        if self._elastic:
            order, run = json_fingerprint(sampler.fingerprint()), self.progress.state()
            state["elastic"] = {**self._shape.elastic_state(self._in_epoch(), order), "run": run}
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to where a state was saved; ValueError for another mapping, or if the rest cannot be determined."""
        _check_is_state(state)
        sampler = self.sampler
        if self._elastic:
            position = self._shape.position(state, json_fingerprint(sampler.fingerprint()))
            if position.skip(sampler.num_replicas) is None and isinstance(sampler, SamplerAdapter):
                sampler.check_resume_at(position.base)
            self._order_to_check = state.get("elastic", {}).get("order") if position.consumed else None
        else:
            consumed = state.get("batches_yielded", 0) * self._batch_size * sampler.num_replicas
            position = EpochPosition(consumed, sampler.num_replicas)
            self._order_to_check = None
        epoch = state.get("epoch", 0)
        if "sampler" in state:
            sampler.load_state_dict(state["sampler"])
        self.progress.load(state.get("elastic", {}).get("run") if self._elastic else None, epoch, position)
        self._go_to(epoch, position)

    def _go_to(self, epoch: int, position: EpochPosition | None = None) -> None:
        """Continue at a position of an epoch (None: its start), from which `yielded` batches are counted."""
        self.epoch, self._start = epoch, position or EpochPosition(0, self.sampler.num_replicas)
        self.yielded = 0
        self.progress.begin(epoch, self._start)

    def _in_epoch(self) -> EpochPosition:
        """Return the position of all ranks together, as every rank yields batches at the same pace."""
        yielded = self.yielded * self._batch_size * self.sampler.num_replicas
        return EpochPosition(self._start.consumed + yielded, self._start.base)

    @property
    def _shape(self) -> LoaderShape:
        try:
            length = len(self._dataset)
        except TypeError:  # a dataset without a length
            length = None
        return LoaderShape(self.sampler.num_replicas, self._batch_size, length)


def _check_is_state(state: Any) -> None:
    """Raise ValueError for anything but the state of a loader, as a whole checkpoint: it would begin the run again."""
    if _is_state(state):
        return
    found = type(state).__name__
    if isinstance(state, Mapping):
        inner = [name for name, value in state.items() if _is_state(value)]
        found = f"the keys {', '.join(map(str, state))}" if state else "an empty mapping"
        found += f"; load the value of {inner[0]!r}" if inner else ""
    raise ValueError(f"this is no state of a loader: expected the keys epoch and batches_yielded, found {found}")


def _is_state(state: Any) -> bool:
    return isinstance(state, Mapping) and ("epoch" in state or "batches_yielded" in state)
