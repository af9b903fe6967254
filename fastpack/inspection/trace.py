"""`trace`: the rows of any step of a run, and the steps that contain a document."""

from __future__ import annotations

import functools
import json
import warnings
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.datasets.concatenation import Concatenation
from fastpack.datasets.dataset_description import check_described, open_described
from fastpack.datasets.file_documents import FileDocuments
from fastpack.datasets.file_spans import NamedSamples, OpenFiles, RowSpans, Traceable
from fastpack.datasets.mixture import MixtureDataset
from fastpack.datasets.window_dataset import WindowDataset
from fastpack.errors import DataWarning
from fastpack.io import PathLike
from fastpack.loading.run_description import RunOrder
from fastpack.tokens.document_lines import DocumentLines, read_lines

SEARCHED = 1 << 20  # samples that are searched at a time


def trace(
    run: Mapping[str, Any] | PathLike,
    *,
    step: int | None = None,
    document: str | None = None,
    rank: int | None = None,
    documents: bool = True,
    dataset: Any = None,
) -> list[dict[str, Any]]:
    """Return what a step of a run contained, or which steps contained a document, from the description of the run.

    Parameters
    ----------
    run
        What `StatefulDataLoader.describe` returned, or the JSON file that contains it.
    step
        The global step, counted from 0. Later steps than those of the description are predicted, as if the run
        continued without a change.
    document
        Instead of a step: a document, as "FILE:NUMBER" (numbers count from 0). All steps so far are searched, which
        takes about 0.1 us per sample of the run; a DataWarning says which ones a description no longer has.
    rank
        The rank; by default all ranks.
    documents
        Whether to divide rows at document boundaries. That reads the index of each file, or the whole file if it has
        none, once.
    dataset
        The dataset of the run, if it is open already or has moved. By default the one that the run describes.

    Returns
    -------
    list of dict
        One entry per document of a row: "rank", "row" (in the batch of the rank), "source" (the name of the dataset in
        a mixture), "sample" (its number), and for token files "file", "document" (its number in the file, from 0; None
        if the boundaries are unknown), "start" and "end": tokens of the file, end exclusive. The last token of a row is
        a label only, except in the rows of plans; padding has no entry. "corpus" and "line", the file and the line or
        row (from 1) that the document was packed from, if `pack` had record_lines=True. For a `WebDataset`, "key"; for
        a `MemMapDataset`, "corpus" and "line".
        Entries of a step that was skipped have "skipped": True. For `document`: one entry per row that contains tokens
        of it, "step", "rank", "row", "source" and "sample".

    Raises
    ------
    IndexError
        If the run does not have this step or rank, or the description does not have the mixture of the step any more.
    ValueError
        If `run` is no description, the data files are others, or not one of `step` and `document` is given.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/a.npy", np.arange(40, dtype=np.uint16))
    >>> dataset = fastpack.MemoryMappedDataset(folder, seq_len=4)
    >>> sampler = fastpack.DistributedSampler(dataset, 1, 0, shuffle=False)
    >>> loader = fastpack.StatefulDataLoader(dataset, 2, sampler, prefetch=0)
    >>> batch = next(iter(loader))
    >>> rows = fastpack.trace(loader.describe(), step=3)
    >>> [(row["row"], row["start"], row["end"]) for row in rows]
    [(0, 24, 28), (1, 28, 32)]
    """
    if (step is None) == (document is None):
        raise ValueError("trace() needs either step= or document=")
    traced = TracedRun(run, dataset)
    if document is not None:
        if traced.order.first_step:
            text = (
                f"steps before {traced.order.first_step} are not in this description of the run: search an earlier one"
            )
            warnings.warn(text, DataWarning, stacklevel=2)
        return traced.steps_of(document, rank)
    assert step is not None
    return traced.rows(step, rank, documents)


def read_run(path: PathLike) -> dict[str, Any]:
    """Return the JSON document in a file; ValueError if it is none."""
    try:
        found: dict[str, Any] = json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON, which the description of a run is: {error}") from error
    return found


class TracedRun:
    """A described run, opened once for many questions."""

    def __init__(self, run: Mapping[str, Any] | PathLike, dataset: Any = None) -> None:
        description = run if isinstance(run, Mapping) else read_run(run)
        self.order = RunOrder(description)
        if dataset is None:
            dataset = open_described(description["dataset"])
        else:
            check_described(dataset, description["dataset"])
        self.dataset = dataset
        self._lines: dict[str, DocumentLines | None] = {}  # by token file
        self._bounds, self._sources = [0, len(self.dataset)], ["dataset"]
        if isinstance(self.dataset, Concatenation):
            self._bounds = self.dataset._bounds
            self._sources = [str(number) for number in range(len(self._bounds) - 1)]
        if isinstance(self.dataset, MixtureDataset):
            self._sources = self.dataset.dataset_names

    @functools.cached_property
    def files(self) -> FileDocuments:
        """The documents of the dataset's files."""
        return FileDocuments(self.dataset)

    def rows(self, step: int, rank: int | None = None, documents: bool = True) -> list[dict[str, Any]]:
        """Return the entries of a step, as `trace`."""
        ranks, samples = self.order.samples(step, rank)
        skipped = {"skipped": True} if self.order.record.is_skipped(step) else {}
        is_named = isinstance(self.dataset, NamedSamples)
        names = self.dataset._sample_names(samples) if is_named else [{}] * len(samples)
        n_rows = len(samples) // len(np.unique(ranks))
        heads = [
            {"rank": one, "row": number % n_rows, "source": self._source(sample), "sample": sample, **skipped, **name}
            for number, (one, sample, name) in enumerate(zip(ranks.tolist(), samples.tolist(), names, strict=True))
        ]
        if not isinstance(self.dataset, Traceable):
            return heads
        spans = self.dataset.row_spans(samples)
        return self._entries(self.files.split(spans) if documents else spans, heads)

    def _source(self, sample: int) -> str:
        return self._sources[bisect_right(self._bounds, sample) - 1]

    def _entries(self, spans: RowSpans, heads: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return an entry for each span, and one for each row without any."""
        found: list[list[dict[str, Any]]] = [[] for _ in heads]
        for row, offset, source, file, start, end, document in zip(*(one.tolist() for one in spans), strict=True):
            path = self.files.path(source, file)
            place = {"file": path, "document": document if document >= 0 else None}
            corpus = self._corpus(path, document) if document >= 0 else {}
            found[row].append({**heads[row], "column": offset, **place, **corpus, "start": start, "end": end})
        return [entry for head, entries in zip(heads, found, strict=True) for entry in entries or [head]]

    def _corpus(self, path: str, document: int) -> dict[str, Any]:
        """Return where a document comes from, if `pack` recorded that."""
        if path not in self._lines:
            self._lines[path] = read_lines(path)
        lines = self._lines[path]
        if lines is None or document >= len(lines.places):
            return {}
        source, line = lines.place(document)
        return {"corpus": source, "line": line}

    def tokens(self, entry: Mapping[str, Any]) -> npt.NDArray[Any]:
        """Return the tokens of an entry of `rows`, as the dataset reads them."""
        assert isinstance(self.dataset, Traceable)
        spans = self.dataset.row_spans(np.array([entry["sample"]], np.int64))
        own = np.flatnonzero(spans.offsets <= entry["column"])[-1]
        source = self.files.sources[int(spans.sources[own])].dataset
        if isinstance(source, OpenFiles):
            with source._open_file(int(spans.files[own])) as file:
                return np.array(file.tokens(entry["start"], entry["end"]))
        assert isinstance(source, WindowDataset)
        start = int(spans.starts[own])
        window = source._windows.window(int(spans.files[own]), start)
        return np.array(window[entry["start"] - start : entry["end"] - start])

    def steps_of(self, document: str, rank: int | None = None) -> list[dict[str, Any]]:
        """Return the rows so far that contain tokens of a document, as `trace`."""
        samples = self._samples_of(document)
        entries = []
        for first, ranks, batch_size, numbers in self.order.blocks(SEARCHED):
            for place in np.flatnonzero(np.isin(numbers, samples)).tolist():
                step, rest = divmod(place, ranks * batch_size)
                row, one = divmod(rest, ranks)
                if rank in (None, one):
                    sample = int(numbers[place])
                    skipped = {"skipped": True} if self.order.record.is_skipped(first + step) else {}
                    where = {"step": first + step, "rank": one, "row": row}
                    entries.append({**where, "source": self._source(sample), "sample": sample, **skipped})
        return entries

    def _samples_of(self, document: str) -> npt.NDArray[np.int64]:
        """Return the samples that contain tokens of a document, sorted."""
        if not isinstance(self.dataset, Traceable):
            raise ValueError(f"a {type(self.dataset).__name__} does not know the documents of its samples")
        places, number = self.files.places_of(document)
        found = [self._samples_at(source, file, number) for source, file in places]
        return np.unique(np.concatenate(found))

    def _samples_at(self, source: int, file: int, number: int) -> npt.NDArray[np.int64]:
        ends, (dataset, first_sample, end_sample) = self.files.ends(source, file), self.files.sources[source]
        assert ends is not None
        start, end = int(ends[number - 1]) if number else 0, int(ends[number])
        found = [np.empty(0, np.int64)]
        for first in range(first_sample, end_sample, SEARCHED):
            samples = np.arange(first, min(first + SEARCHED, end_sample))
            spans = dataset.row_spans(samples - first_sample)
            own = (spans.files == file) & (spans.starts < end) & (spans.ends > start)
            found.append(samples[np.unique(spans.rows[own])])
        return np.concatenate(found)
