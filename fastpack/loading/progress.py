"""How far a loader is in its run: the global step, the samples of all ranks, and what each source has delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from fastpack.datasets.base import RowDataset
from fastpack.datasets.mixture import MixtureDataset
from fastpack.loading.megatron_samplers import MegatronSampler
from fastpack.loading.mixture_epochs import MixtureEpochs
from fastpack.loading.protocols import ResumableSampler
from fastpack.loading.resume import EpochPosition, json_fingerprint
from fastpack.loading.run_record import Drawn, Leg, RunRecord

MOST_AHEAD = 64  # steps whose counts are computed at once


class SourceCount(TypedDict):
    """What a source has delivered to all ranks."""

    samples: int
    tokens: int
    epochs: float


class Progress:
    """The position of a loader in its run.

    Attributes
    ----------
    step : int
        The next global step.
    samples : int
        The samples of the run before it, of all ranks, skipped ones included.
    record : RunRecord
        What was done at which step.
    """

    _ahead: dict[int, list[int]]  # delivered samples of each source, by the samples of the run
    _n_ahead: int

    def __init__(self, sampler: ResumableSampler, batch_size: int) -> None:
        self._sampler, self._batch_size = sampler, batch_size
        self._mixture = sampler if isinstance(sampler, MixtureEpochs) else None
        self._sources: tuple[Sequence[int], list[tuple[str, int, int]]] | None = None  # sizes; name, row length, size
        self.step = self.samples = self._changes = 0
        self.record = RunRecord()
        self.forget_ahead()

    @property
    def _num_replicas(self) -> int:
        return self._sampler.num_replicas

    @property
    def revision(self) -> int:
        """A number that grows with each change that the next batch must follow."""
        mixture = self._mixture
        return self._changes + (mixture.revision if mixture is not None else 0)

    def changed(self) -> None:
        """Let the loader plan its next batch again."""
        self._changes += 1
        self.forget_ahead()

    def forget_ahead(self) -> None:
        """Forget the counts of coming steps: their samples may be others."""
        self._ahead, self._n_ahead = {}, 1

    def begin(self, epoch: int, position: EpochPosition) -> None:
        """Continue with the next step at a position of an epoch."""
        self.forget_ahead()
        mixture = self._mixture
        samples = self.samples
        if mixture is not None and mixture.no_repeat:
            samples = mixture.run_position(epoch, position.consumed)
        if samples != self.samples:  # another epoch was set: what is in between is not delivered
            self.record.count(self.samples, self._drawn(), samples)
            self.samples = samples
        ranks = self._num_replicas
        micro = self._sampler.micro_batch_size if isinstance(self._sampler, MegatronSampler) else 0
        leg = Leg(self.step, epoch, position.consumed, position.base, ranks, self._batch_size, samples, 0, micro)
        if not self._is_recorded(leg):
            self.record.begin(leg)

    def plan(self) -> None:
        """Record by which weights the next steps are drawn, where the order does not contain their history."""
        mixture = self._mixture
        if mixture is not None and not mixture.no_repeat:
            found = json_fingerprint({"weights": mixture.weights, "temperature": mixture.temperature})
            self.record.set_weights(self.step, **found)

    def _is_recorded(self, leg: Leg) -> bool:
        try:
            found = self.record.locate(leg.step)
        except IndexError:
            return False
        per_step = leg.num_replicas * leg.batch_size
        consumed = found.start.consumed + found.batch * per_step
        ranks, batch_size, micro = found.leg.shape
        here = Leg(leg.step, found.epoch, consumed, found.start.base, ranks, batch_size, found.samples, 0, micro)
        return here == leg

    def advance(self, n_skipped: int, n_delivered: int = 1) -> None:
        """Pass steps that were skipped, and after them some that were delivered."""
        per_step = self._sampler.num_replicas * self._batch_size
        if n_skipped:
            self.forget_ahead()
            self.record.count(self.samples, self._drawn(), self.samples + n_skipped * per_step)
        self.step += n_skipped + n_delivered
        self.samples += (n_skipped + n_delivered) * per_step

    def end_epoch(self, epoch: int, consumed: int) -> None:
        """Let a mixture continue where the epoch's last batch ended."""
        if self._mixture is not None and self._mixture.no_repeat:
            self._mixture.end_epoch(epoch, consumed)

    def skip(self, first: int, last: int) -> None:
        """Skip global steps; ValueError for a range that is none."""
        if not 0 <= first <= last:
            raise ValueError(f"steps=({first}, {last}) are not a first and a last step, counted from 0")
        self.record.skip(first, last, self.step)
        self.changed()

    def _drawn(self) -> Drawn | None:
        """Return what counts the samples of each source before a position of the run; None if that is unknown."""
        if self._mixture is None:
            return lambda samples: samples.reshape(-1, 1).copy()
        return self._mixture.drawn if self._mixture.no_repeat else None

    def counts(self, dataset: Any) -> dict[str, SourceCount]:
        """Return what each source has delivered so far."""
        drawn = self._drawn()
        if drawn is None:
            raise ValueError("counts() of a mixture needs MixtureSampler(..., no_repeat=True)")
        sizes = () if self._mixture is None else self._mixture.sizes
        if self._sources is None or self._sources[0] != sizes:
            self._sources = sizes, self._list_sources(dataset)
        return {
            name: {"samples": n, "tokens": n * length, "epochs": n / size if size else 0.0}
            for (name, length, size), n in zip(self._sources[1], self._delivered(drawn), strict=True)
        }

    def _delivered(self, drawn: Drawn) -> list[int]:
        """Return the delivered samples of each source.

        Those of the next steps are computed with them, twice as many each time: one array operation takes as long as
        looking up all sources does.
        """
        found = self._ahead.get(self.samples)
        if found is None:
            per_step = self._num_replicas * self._batch_size
            ends = [self.samples + k * per_step for k in range(self._n_ahead)]
            self._ahead = dict(zip(ends, self.record.counts(ends, drawn).tolist(), strict=True))
            self._n_ahead = min(2 * self._n_ahead, MOST_AHEAD)
            found = self._ahead[self.samples]
        return found

    def _list_sources(self, dataset: Any) -> list[tuple[str, int, int]]:
        sizes = [_length(dataset)] if self._mixture is None else self._mixture.sizes
        return [*zip(self._names(dataset), _row_lengths(dataset, len(sizes)), sizes, strict=True)]

    def _names(self, dataset: Any) -> Sequence[str]:
        mixture = self._mixture
        if mixture is None:
            return ["dataset"]
        if mixture.all_names:
            return mixture.all_names
        if isinstance(dataset, MixtureDataset):
            return dataset.dataset_names[: len(mixture.sizes)]
        raise ValueError("counts() needs the names of the datasets: MixtureSampler(..., names=[...])")

    def state(self, whole: bool = False) -> dict[str, Any]:
        """Return the progress as JSON values; `whole`, with all that is known, of any size."""
        self.record.count(self.samples, self._drawn())
        return {"step": self.step, "samples": self.samples, **self.record.state(whole)}

    def load(self, state: Mapping[str, Any] | None, epoch: int, position: EpochPosition) -> None:
        """Continue where a state was saved; for a state of another system, assume that all epochs were whole."""
        self.forget_ahead()
        if state is not None:
            self.step, self.samples = state["step"], state["samples"]
            self.record.load(state, self.step)
            return
        ranks = self._num_replicas
        per_epoch = _length(self._sampler) // self._batch_size if epoch else 0
        self.step = epoch * per_epoch + position.batches(ranks, self._batch_size)
        self.samples = epoch * per_epoch * self._batch_size * ranks + position.consumed
        self.record = RunRecord(requested_skips=self.record.requested_skips, excluded=self.record.excluded)
        for first, last in self.record.requested_skips:
            self.record.add_skip(first, last, self.step)


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError:  # a dataset without a length
        return 0


def _row_lengths(dataset: Any, n_sources: int) -> list[int]:
    """Return the tokens of a sample of each source, padding included; 0 where samples are no rows of tokens."""
    sources = dataset.datasets[:n_sources] if isinstance(dataset, MixtureDataset) else [dataset] * n_sources
    return [source._row_format.length if isinstance(source, RowDataset) else 0 for source in sources]
