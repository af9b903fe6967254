"""What a training loop may ask of its run, and change in it, at any step: the base class of the loader."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from fastpack.datasets.file_spans import Traceable
from fastpack.io import PathLike
from fastpack.loading.exclusion import ExcludingFetch, Exclusion
from fastpack.loading.fetch import BatchOptions, Fetch, output_names
from fastpack.loading.progress import Progress, SourceCount
from fastpack.loading.run_description import describe_run


class RunControl:
    """Counts, skips, exclusions and the description of a loader's run."""

    dataset: Any
    sampler: Any
    shapes_only: bool
    share_memory: bool | None
    _lock: threading.RLock
    _progress: Progress
    _fetch: Fetch
    _exclusions: dict[str, Exclusion]  # by digest

    def _attach_lock(self) -> None:
        self._lock = threading.RLock()  # re-entrant: a signal handler may request the state within next()
        _LOADERS.add(self)

    def _make_fetch(self) -> Fetch:
        raise NotImplementedError

    def _options(self) -> BatchOptions:
        raise NotImplementedError

    def counts(self) -> dict[str, SourceCount]:
        """Return what each source has delivered to all ranks so far; nothing is communicated.

        Exact at every step and after every resume: batches that were produced ahead and skipped steps do not count.

        Returns
        -------
        dict
            By the name of the source, {"samples", "tokens", "epochs"}: tokens are those of whole rows, padding included
            (0 if samples are no rows of tokens), epochs are samples as a share of the source. A dataset that is no
            mixture is one source, "dataset".

        Raises
        ------
        ValueError
            For a mixture without names, or without `no_repeat`.
        """
        with self._lock:
            return self._progress.counts(self.dataset)

    def skip(self, *, steps: tuple[int, int]) -> None:
        """Do not deliver these global steps; call it on every rank, before the steps.

        Skipped steps consume their samples and keep their numbers: the other steps stay what they are. Skips are part
        of the state. In this process they also apply after `load_state_dict`, so they may be set before or after it.

        Parameters
        ----------
        steps
            The first and the last step, inclusive, counted from 0 over the run (see `step`). Steps that were delivered
            are skipped if an earlier state is loaded.

        Raises
        ------
        ValueError
            If the range is empty or begins below 0.
        """
        with self._lock:
            self._progress.skip(*steps)

    @property
    def step(self) -> int:
        """The number of the next global step of the run: the batches of a rank so far, skipped ones included."""
        return self._progress.step

    def exclude(self, *, documents: PathLike) -> int:
        """Train on no token of these documents from the next batch on: their labels become -100.

        A loss_mask becomes 0 there. Rows keep their places and their other labels, so nothing else in the run changes;
        the tokens remain in input_ids, as context of the documents after them. Call it on every rank at the same step,
        also on ranks with context_parallel= and shapes_only=. The list is part of the state by its path and digest:
        keep the file. In this process it also applies after `load_state_dict`.

        Parameters
        ----------
        documents
            A text file with one document per line, FILE:NUMBER: a token file of the dataset, and the number of a
            document in it, from 0 (as `fastpack trace` prints them).

        Returns
        -------
        int
            The number of documents.

        Raises
        ------
        ValueError
            If batches have no labels, samples are no rows of token files (of a `WebDataset`), or a line is no document
            of the dataset.
        """
        with self._lock:
            exclusion = self._read_exclusion(documents)
            self._progress.record.excluded.append(
                {"path": exclusion.path, "digest": exclusion.digest, "step": self._progress.step}
            )
            self._apply_exclusions()
            return exclusion.n_documents

    def _read_exclusion(self, path: PathLike) -> Exclusion:
        if self.share_memory:
            raise ValueError("exclude() masks labels, which share the memory of input_ids: omit share_memory=True")
        exclusion = Exclusion(path, self.dataset)
        if not self.shapes_only and "labels" not in output_names(self.dataset, self._options()):
            raise ValueError(
                "exclude() masks labels, which the batches lack: request them with outputs=, without a collate_fn"
            )
        self._exclusions[exclusion.digest] = exclusion
        return exclusion

    def _apply_exclusions(self) -> None:
        """Use the exclusions of the record from the next batch on, reading their files if needed."""
        for one in self._progress.record.excluded:
            if one["digest"] not in self._exclusions and self._read_exclusion(one["path"]).digest != one["digest"]:
                raise ValueError(f"{one['path']} is not the list of documents that the state records: it has changed")
        self._fetch = self._make_fetch()
        self._progress.changed()

    def _masked(self, fetch: Fetch) -> Fetch:
        """Return `fetch`, with the labels of excluded documents masked."""
        if not self._progress.record.excluded or self.shapes_only:
            return fetch
        assert isinstance(self.dataset, Traceable)
        used = [self._exclusions[one["digest"]] for one in self._progress.record.excluded]
        return ExcludingFetch(fetch, self.dataset, used)

    def describe(self) -> dict[str, Any]:
        """Return a JSON document from which, with the data files, `fastpack.trace` reconstructs any batch so far.

        It contains the arguments and fingerprints of the datasets, the order, the history of a mixture, the changes of
        the number of ranks, and skips. Save it next to each checkpoint: a mixture whose weights change at every step
        keeps only its newest changes. Every version of the format stays readable.

        Returns
        -------
        dict
            JSON values; the format is described in the documentation ("Operating a long run").

        Raises
        ------
        ValueError
            If the dataset or the sampler is not one of fastpack, or an argument of the dataset is a function.
        """
        with self._lock:
            return describe_run(self.dataset, self.sampler, self._progress.state(whole=True))


_LOADERS: weakref.WeakSet[RunControl] = weakref.WeakSet()


def _unlock_all() -> None:
    """In a forked child, replace locks that threads of the parent may hold."""
    for loader in list(_LOADERS):
        loader._lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock_all)
