"""The documents of a packed file that a rule keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.io import AnyPath, ExistencePolicy, PathLike, Progress, as_path, drop_pages
from fastpack.tokens.edit.document_spans import FAULT, Data, Integers, Spans, packed_spans, rows_in
from fastpack.tokens.edit.edit_result import EditResult, is_kept, packed_size
from fastpack.tokens.pbin.packed_file import RETURNED_DTYPE, PackedFile
from fastpack.tokens.pbin.packed_writer import PackedWriter

Tokens: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]
Keep: TypeAlias = Callable[[int, Tokens], object]
# (number of the first document, lengths in tokens, the documents' tokens back to back) -> which to keep
_Decide: TypeAlias = Callable[[int, Integers, Callable[[], Tokens]], Mask]

_GROUP = 8 << 20  # bytes of documents judged and copied at once: file systems take large pieces at less cost a byte
_MOST_ROWS = 1 << 17  # of them


@dataclass(frozen=True, slots=True)
class KeepRules:
    """Keeps the documents that meet every rule; as `keep` of `filter_packed_data` no Python runs for each of them.

    min_length, max_length: in tokens, both included, the end-of-document token counted; contains, lacks: tokens of
    which each, or none, is in the document.
    """

    min_length: int | None = None
    max_length: int | None = None
    contains: tuple[int, ...] = ()
    lacks: tuple[int, ...] = ()

    def __call__(self, i: int, tokens: npt.ArrayLike) -> bool:
        flat = np.asarray(tokens)
        return bool(self.mask(i, np.array([len(flat)]), lambda: flat)[0])

    def mask(self, _first: int, lengths: Integers, read: Callable[[], Tokens]) -> Mask:
        """Which of the documents of these lengths [n], in tokens, are kept; `read` gives their tokens back to back."""
        kept: Mask = np.ones(len(lengths), np.bool_)
        if self.min_length is not None:
            kept &= lengths >= self.min_length
        if self.max_length is not None:
            kept &= lengths <= self.max_length
        if (self.contains or self.lacks) and kept.any():
            tokens, ends = read(), np.cumsum(lengths)
            for token in self.contains:
                kept &= _holds(tokens, token, ends)
            for token in self.lacks:
                kept &= ~_holds(tokens, token, ends)
        return kept


def _holds(tokens: Tokens, token: int, ends: Integers) -> Mask:
    """Which of the documents that end at `ends` hold `token`."""
    before = np.searchsorted(np.flatnonzero(tokens == token), np.concatenate(([0], ends)))
    return np.diff(before) > 0


def filter_packed_data(
    src: PathLike,
    dst: PathLike,
    keep: Keep | KeepRules,
    *,
    file_existence_policy: ExistencePolicy = "error",
    progress: Progress | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Write the documents of a packed file (of any generation) for which `keep(i, tokens)` is true, in their order.

    i: the document's number; tokens: its tokens, end-of-document token included, as uint8, int32 or int64 where they
    take 1, 2 or 4 bytes on disk. Where nothing is kept, a valid empty file is written. Memory: 16 bytes a document
    (24 with every one kept), and 50 MiB. dry_run writes nothing. progress(bytes judged, in all).

    Raises FileNotFoundError and FormatError for the source, ValueError for a target that is the source, TargetExists (a
    ValueError) by the policy "error", and what `keep` raises.
    """
    decide = keep.mask if isinstance(keep, KeepRules) else _by_tokens(keep)
    lengths_tell = isinstance(keep, KeepRules) and not keep.contains and not keep.lacks
    return _filter(
        as_path(src), as_path(dst), decide, file_existence_policy, progress, dry_run, lengths_tell=lengths_tell
    )


def create_filtered_tokenized_dataset(
    input_data_path: PathLike,
    filter_routine: Callable[[int], object],
    output_data_path: PathLike,
    file_existence_policy: ExistencePolicy = "error",
    *,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Write the documents of a packed file for whose number `filter_routine(i)` is true, in their order.

    Where nothing is kept it raises ValueError and writes nothing; else as `filter_packed_data`.
    """
    decide = _by_number(filter_routine)
    paths = as_path(input_data_path), as_path(output_data_path)
    return _filter(*paths, decide, file_existence_policy, progress, dry_run, allow_empty=False)


def _by_tokens(keep: Keep) -> _Decide:
    def decide(first: int, lengths: Integers, read: Callable[[], Tokens]) -> Mask:
        tokens = read()
        widened = tokens.astype(RETURNED_DTYPE[tokens.dtype.itemsize])  # a new one for each group: `keep` may keep it
        ends = np.cumsum(lengths).tolist()
        starts = [0, *ends[:-1]]
        pairs = zip(range(first, first + len(ends)), starts, ends, strict=True)
        return np.array([bool(keep(i, widened[start:end])) for i, start, end in pairs], np.bool_)

    return decide


def _by_number(routine: Callable[[int], object]) -> _Decide:
    def decide(first: int, lengths: Integers, _read: Callable[[], Tokens]) -> Mask:
        return np.array([bool(routine(i)) for i in range(first, first + len(lengths))], np.bool_)

    return decide


def _filter(
    source: AnyPath,
    target: AnyPath,
    decide: _Decide,
    policy: ExistencePolicy,
    progress: Progress | None,
    dry_run: bool,
    *,
    allow_empty: bool = True,
    lengths_tell: bool = False,
) -> EditResult:
    """lengths_tell: `decide` asks for no tokens, so that it can be asked beforehand how much there will be to write."""
    if is_kept([source], target, policy):
        return EditResult(target, written=False, kept_existing=True)
    with PackedFile(source) as file:
        spans, size = packed_spans(file), file.token_size_in_bytes
    sink = _Measure(size) if dry_run else PackedWriter(target, size, file_existence_policy=policy)
    with sink:
        if lengths_tell:
            lengths = spans.rows[:, 1] // size
            sink.reserve(int(lengths[decide(0, lengths, _no_tokens)].sum()))
        for data, lengths in _kept(spans, size, decide, progress):
            sink.append_bytes(data, lengths)
        if not allow_empty and sink.n_documents == 0:
            raise ValueError("The tokenized dataset did not create any data.")
    n_bytes = sink.n_bytes if isinstance(sink, _Measure) else target.stat().st_size
    left_out = len(spans.rows) - sink.n_documents
    return EditResult(target, sink.n_documents, sink.n_tokens, n_bytes, 1, left_out, written=not dry_run)


class _Measure:
    """Takes documents as a PackedWriter does, and only counts them."""

    def __init__(self, token_size: int) -> None:
        self._token_size, self._lengths = token_size, [np.empty(0, np.int64)]

    def reserve(self, _n_tokens: int) -> None:
        pass

    def append_bytes(self, _data: Data, lengths: Integers) -> None:
        self._lengths.append(lengths)

    @property
    def n_documents(self) -> int:
        return sum(map(len, self._lengths))

    @property
    def n_tokens(self) -> int:
        return sum(int(lengths.sum()) for lengths in self._lengths)

    @property
    def n_bytes(self) -> int:
        return packed_size(np.concatenate(self._lengths) * self._token_size)

    def __enter__(self) -> _Measure:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


def _kept(spans: Spans, size: int, decide: _Decide, progress: Progress | None) -> Iterator[tuple[Data, Integers]]:
    """The documents to keep, back to back, and their lengths in tokens, a group at a time."""
    dtype, total, done = np.dtype(f"<u{size}"), int(spans.rows[:, 1].sum()), 0
    scratch = _Scratch(), _Scratch()
    for first, rows in _groups(spans.rows):
        reader = _Reader(spans, rows, *scratch)
        kept = decide(first, rows[:, 1] // size, partial(_tokens, reader, dtype))
        if kept.any():
            yield reader.chosen(kept), rows[kept, 1] // size
        reader.give_back()
        done += int(rows[:, 1].sum())
        if progress is not None:
            progress(done, total)


def _tokens(reader: _Reader, dtype: np.dtype[Any]) -> Tokens:
    return reader.all().view(dtype)


def _no_tokens() -> Tokens:
    raise AssertionError("a rule about lengths asked for tokens")


def _groups(rows: Integers) -> Iterator[tuple[int, Integers]]:
    """The number of the first document and the rows of groups of up to 8 MiB, one document at least."""
    step = min(_MOST_ROWS, rows_in(_GROUP, int(rows[:, 1].sum()), len(rows)))
    first = 0
    while first < len(rows):
        block = rows[first : first + step]
        count = max(1, int(np.searchsorted(np.cumsum(block[:, 1]), _GROUP, "right")))
        yield first, block[:count]
        first += count


class _Scratch:
    """Memory that is taken again and again: fresh pages would cost as much as what is copied into them."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def gather(self, data: Data, starts: Integers, lengths: Integers) -> Data:
        """The spans of `data` back to back; valid until the next call."""
        ends = np.cumsum(lengths)
        n_bytes = int(ends[-1])
        if n_bytes > len(self._memory):
            self._memory = np.empty(n_bytes, np.uint8)
        kernels.copy_spans(data, starts, ends - lengths, np.ascontiguousarray(lengths), self._memory)
        return self._memory[:n_bytes]


class _Reader:
    """The bytes of documents at `rows`, read when they are asked for, and once."""

    def __init__(self, spans: Spans, rows: Integers, read: _Scratch, chosen: _Scratch) -> None:
        self._spans, self._rows = spans, rows
        self._for_all, self._for_chosen = read, chosen
        self._all: Data | None = None

    def all(self) -> Data:
        """All documents back to back, tokens little-endian."""
        if self._all is None:
            self._all = self._read(self._rows)
        return self._all

    def chosen(self, kept: Mask) -> Data:
        """Those of `kept` back to back."""
        if kept.all():
            return self.all()
        if self._all is None:
            return self._read(self._rows[kept])
        lengths = self._rows[:, 1]
        return self._for_chosen.gather(self._all, (np.cumsum(lengths) - lengths)[kept], lengths[kept])

    def _read(self, rows: Integers) -> Data:
        starts, lengths, swap = rows[:, 0] + self._spans.base, rows[:, 1], self._spans.swap
        ends = starts + lengths
        if (starts[1:] == ends[:-1]).all():
            flat = self._spans.data[int(starts[0]) : int(ends[-1])]
        else:
            flat = self._for_all.gather(self._spans.data, starts, lengths)
        return flat if swap == 1 else flat.view(f">u{swap}").astype(f"<u{swap}").view(np.uint8)

    def give_back(self) -> None:
        """Let go of the pages of the file that were read, and of those that came with them."""
        starts = self._rows[:, 0] + self._spans.base
        end = int((starts + self._rows[:, 1]).max())
        drop_pages(self._spans.data, max(0, int(starts.min()) - FAULT), end)
