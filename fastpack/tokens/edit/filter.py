"""Writes the documents of a token file that a rule keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.argument_aliases import accept_aliases
from fastpack.io import AnyPath, ExistencePolicy, PathLike, Progress, as_path, counting, drop_pages
from fastpack.tokens.common_fingerprint import common_fingerprint
from fastpack.tokens.document_masks import DocumentMasks
from fastpack.tokens.edit.document_collection import FAULT_BYTES, Data, Integers, rows_in
from fastpack.tokens.edit.edit_result import (
    EditResult,
    EmptyDocuments,
    append_encoded,
    edit_dtype,
    is_kept,
    output_format,
    written_bytes,
)
from fastpack.tokens.edit.edit_source import open_source
from fastpack.tokens.interop_formats import first_output
from fastpack.tokens.pbin.packed_file import RETURNED_DTYPE
from fastpack.tokens.token_file import DocumentSpans, rows_of_lengths

Tokens: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]
Keep: TypeAlias = Callable[[int, Tokens], object]
# (number of the first document, lengths in tokens, function that reads the concatenated tokens) -> which to keep
_Decide: TypeAlias = Callable[[int, Integers, Callable[[], Tokens]], Mask]

_GROUP_BYTES = 8 << 20  # bytes of documents filtered and copied at once: large writes cost less per byte
_MAX_ROWS = 1 << 17  # documents filtered at once


@dataclass(frozen=True, slots=True)
class KeepRules:
    """Rules for `filter_packed_data`: a document is kept if it meets all of them.

    As the `keep` argument, rules are much faster than a function, because no Python code runs per document.

    Parameters
    ----------
    min_length, max_length
        Bounds of the length in tokens, both inclusive; the end-of-document token counts.
    contains
        Tokens that the document must contain.
    lacks
        Tokens that the document must not contain.

    Examples
    --------
    >>> import fastpack
    >>> rules = fastpack.KeepRules(min_length=3, lacks=(9,))
    >>> rules(0, [5, 6, 0]), rules(1, [5, 0]), rules(2, [5, 9, 0])
    (True, False, False)
    """

    min_length: int | None = None
    max_length: int | None = None
    contains: tuple[int, ...] = ()
    lacks: tuple[int, ...] = ()

    def __call__(self, i: int, tokens: npt.ArrayLike) -> bool:
        """Return whether document `i` with these tokens is kept."""
        flat = np.asarray(tokens)
        return bool(self.mask(i, np.array([len(flat)]), lambda: flat)[0])

    def mask(self, _first: int, lengths: Integers, read: Callable[[], Tokens]) -> Mask:
        """Return which documents of these lengths [n], in tokens, are kept.

        Parameters
        ----------
        lengths
            Length of each document in tokens, int64 [n].
        read
            Returns the concatenated tokens of the documents. It is called only if the rules depend on tokens.

        Returns
        -------
        NDArray
            bool [n].
        """
        kept: Mask = np.ones(len(lengths), np.bool_)
        if self.min_length is not None:
            kept &= lengths >= self.min_length
        if self.max_length is not None:
            kept &= lengths <= self.max_length
        if (self.contains or self.lacks) and kept.any():
            tokens, ends = read(), np.cumsum(lengths)
            for token in self.contains:
                kept &= _contains(tokens, token, ends)
            for token in self.lacks:
                kept &= ~_contains(tokens, token, ends)
        return kept


def _contains(tokens: Tokens, token: int, ends: Integers) -> Mask:
    """Which of the documents that end at `ends` contain `token`."""
    before = np.searchsorted(np.flatnonzero(tokens == token), np.concatenate(([0], ends)))
    return np.diff(before) > 0


@accept_aliases(file_existence_policy="if_exists")
def filter_packed_data(
    src: PathLike,
    dst: PathLike,
    keep: Keep | KeepRules,
    *,
    if_exists: ExistencePolicy = "error",
    progress: Progress | None = None,
    dry_run: bool = False,
    format: str | None = None,
    eos_token_id: int | None = None,
) -> EditResult:
    """Write the documents of a token file for which `keep(i, tokens)` is true, in their order.

    Memory: 16 bytes per document (24 if all are kept), and 50 MiB.

    Parameters
    ----------
    src
        A token file of any format.
    dst
        The output. If no document is kept, it is a valid file without documents.
    keep
        `KeepRules`, or a function of the number of a document and its tokens (the end-of-document token included;
        uint8, int32 or int64 for tokens of 1, 2 or 4 bytes).
    if_exists
        What to do if the output exists: "error", "skip" or "overwrite".
    progress
        Called with (bytes filtered, total bytes).
    dry_run
        Return the result without writing the output.
    format
        Format of the output, such as "megatron"; default: by its suffix, else "pbin".
    eos_token_id
        The token that ends documents in sources without document boundaries (`npy`, `bin`, `llmc`, `nanogpt`).

    Returns
    -------
    EditResult
        Path, documents, tokens and size of the output; `left_out` counts the documents that were not kept.

    Raises
    ------
    FileNotFoundError, FormatError
        If the source does not exist or is damaged.
    TargetExists
        If the output exists and the policy is "error" (a ValueError).
    ValueError
        If the output is the source.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source, target = f"{folder.name}/a.pbin", f"{folder.name}/b.pbin"
    >>> with fastpack.PackedWriter(source, 2) as writer:
    ...     writer.append_many([1, 0, 2, 2, 0, 3, 0], [2, 3, 2])
    >>> fastpack.filter_packed_data(source, target, fastpack.KeepRules(min_length=3)).left_out
    2
    >>> fastpack.PackedFile(target)[0].tolist()
    [2, 2, 0]
    >>> folder.cleanup()
    """
    decide = keep.mask if isinstance(keep, KeepRules) else _by_tokens(keep)
    needs_tokens = not isinstance(keep, KeepRules) or bool(keep.contains or keep.lacks)
    paths = as_path(src), as_path(dst)
    return _filter(*paths, decide, if_exists, progress, dry_run, needs_tokens, format, eos_token_id)


@accept_aliases(file_existence_policy="if_exists")
def create_filtered_tokenized_dataset(
    input_data_path: PathLike,
    filter_routine: Callable[[int], object],
    output_data_path: PathLike,
    if_exists: ExistencePolicy = "error",
    *,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Write the documents of a packed file for whose number `filter_routine(i)` is true, in their order.

    As `filter_packed_data`, with the name and arguments of Modalities' API. If no document is kept, it raises
    ValueError and writes nothing.

    Parameters
    ----------
    input_data_path
        A packed file of any generation.
    filter_routine
        A function of the number of a document, from 0.
    output_data_path
        The output.
    if_exists
        What to do if the output exists: "error", "skip" or "overwrite".
    progress
        Called with (bytes filtered, total bytes).
    dry_run
        Return the result without writing the output.

    Returns
    -------
    EditResult
        As `filter_packed_data`.

    Raises
    ------
    ValueError
        As `filter_packed_data`, and if no document is kept.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source, target = f"{folder.name}/a.pbin", f"{folder.name}/b.pbin"
    >>> with fastpack.PackedWriter(source, 2) as writer:
    ...     writer.append_many([1, 0, 2, 2, 0, 3, 0], [2, 3, 2])
    >>> result = fastpack.create_filtered_tokenized_dataset(source, lambda i: i != 1, target)
    >>> result.documents, result.left_out
    (2, 1)
    >>> folder.cleanup()
    """
    decide = _by_number(filter_routine)
    paths = as_path(input_data_path), as_path(output_data_path)
    return _filter(*paths, decide, if_exists, progress, dry_run, allow_empty=False)


def _by_tokens(keep: Keep) -> _Decide:
    def decide(first: int, lengths: Integers, read: Callable[[], Tokens]) -> Mask:
        tokens = read()
        widened = tokens.astype(RETURNED_DTYPE[tokens.dtype.itemsize])  # a copy: `keep` may store its argument
        ends = np.cumsum(lengths).tolist()
        starts = [0, *ends[:-1]]
        documents = zip(range(first, first + len(ends)), starts, ends, strict=True)
        return np.array([bool(keep(i, widened[start:end])) for i, start, end in documents], np.bool_)

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
    needs_tokens: bool = True,
    format: str | None = None,
    eos_token_id: int | None = None,
    *,
    allow_empty: bool = True,
) -> EditResult:
    """If `decide` does not need tokens, it is also called before writing, to reserve disk space."""
    row = output_format(target, format)
    target = first_output(row.name, target)
    if is_kept([source], target, policy):
        return EditResult(target, written=False, kept_existing=True)
    with open_source(source, eos_token_id) as file:
        spans, size, fingerprint = file.document_spans(), file.dtype.itemsize, common_fingerprint([file])
        masks = DocumentMasks([file])
    n_documents, stored = sum(len(one.rows) for one in spans), edit_dtype(row, size)
    empty = EmptyDocuments(row)
    kept = ((data, empty.drop(lengths)) for data, lengths in _kept_documents(spans, size, decide, progress, masks))
    assert row.create is not None
    assert row.predict_size is not None
    if dry_run:
        lengths = np.concatenate([np.empty(0, np.int64), *(lengths for _, lengths in kept)])
        n_kept, n_tokens = len(lengths), int(lengths.sum())
        _check_any(n_kept, allow_empty)
        n_bytes = row.predict_size(n_tokens, stored.itemsize, rows_of_lengths([lengths]))
    else:
        with row.create(target, stored, policy) as writer:
            writer.fingerprint = fingerprint
            if not needs_tokens:
                lengths = np.concatenate([one.rows[:, 1] for one in spans]) // size
                writer.reserve(int(lengths[decide(0, lengths, _no_tokens)].sum()))
            for data, lengths in kept:
                append_encoded(writer, data, lengths, size, stored)
            writer.mask = masks.kept()
            _check_any(writer.n_documents, allow_empty)
        n_kept, n_tokens, n_bytes = writer.n_documents, writer.n_tokens, written_bytes(row, target)
    n_excluded = n_documents - n_kept - empty.n_dropped
    return EditResult(
        target, n_kept, n_tokens, n_bytes, left_out=n_excluded, n_empty_dropped=empty.n_dropped, written=not dry_run
    )


def _check_any(n_kept: int, allow_empty: bool) -> None:
    if n_kept == 0 and not allow_empty:
        raise ValueError("The tokenized dataset did not create any data.")


def _kept_documents(
    sources: Sequence[DocumentSpans], size: int, decide: _Decide, progress: Progress | None, masks: DocumentMasks
) -> Iterator[tuple[Data, Integers]]:
    """Yield groups of the documents to keep, concatenated, and their lengths in tokens; note them in `masks`."""
    dtype, total, done, before = np.dtype(f"<u{size}"), sum(int(one.rows[:, 1].sum()) for one in sources), 0, 0
    progress, buffers = counting(progress, sum(len(one.rows) for one in sources), total // size), (_Buffer(), _Buffer())
    for spans in sources:
        for first, rows in _groups(spans.rows):
            reader = _GroupReader(spans, rows, *buffers)
            kept = decide(before + first, rows[:, 1] // size, partial(_tokens, reader, dtype))
            masks.keep(before + first + np.flatnonzero(kept))
            if kept.any():
                yield reader.chosen(kept), rows[kept, 1] // size
            reader.drop_pages()
            done += int(rows[:, 1].sum())
            if progress:
                progress(done, total)
        before += len(spans.rows)


def _tokens(reader: _GroupReader, dtype: np.dtype[Any]) -> Tokens:
    return reader.all().view(dtype)


def _no_tokens() -> Tokens:
    raise AssertionError("a rule about lengths asked for tokens")


def _groups(rows: Integers) -> Iterator[tuple[int, Integers]]:
    """Yield the number of the first document and rows of groups of up to 8 MiB, at least one document each."""
    step = min(_MAX_ROWS, rows_in(_GROUP_BYTES, int(rows[:, 1].sum()), len(rows)))
    first = 0
    while first < len(rows):
        block = rows[first : first + step]
        count = max(1, int(np.searchsorted(np.cumsum(block[:, 1]), _GROUP_BYTES, "right")))
        yield first, block[:count]
        first += count


class _Buffer:
    """Memory that is reused: new pages would cost as much as the copies."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def gather(self, data: Data, starts: Integers, lengths: Integers) -> Data:
        """Concatenate spans of `data`; the result is valid until the next call."""
        ends = np.cumsum(lengths)
        n_bytes = int(ends[-1])
        if n_bytes > len(self._memory):
            self._memory = np.empty(n_bytes, np.uint8)
        kernels.copy_spans(data, starts, ends - lengths, np.ascontiguousarray(lengths), self._memory)
        return self._memory[:n_bytes]


class _GroupReader:
    """Reads the documents at `rows` when they are needed, at most once."""

    def __init__(self, spans: DocumentSpans, rows: Integers, for_all: _Buffer, for_chosen: _Buffer) -> None:
        self._spans, self._rows = spans, rows
        self._for_all, self._for_chosen = for_all, for_chosen
        self._all: Data | None = None

    def all(self) -> Data:
        """All documents concatenated, as little-endian tokens."""
        if self._all is None:
            self._all = self._read(self._rows)
        return self._all

    def chosen(self, kept: Mask) -> Data:
        """Return the documents of the mask `kept`, concatenated."""
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

    def drop_pages(self) -> None:
        """Drop the pages of the file that were read."""
        starts = self._rows[:, 0] + self._spans.base
        end = int((starts + self._rows[:, 1]).max())
        drop_pages(self._spans.data, max(0, int(starts.min()) - FAULT_BYTES), end)
