"""The documents that a plan is made from: which token files, how often, and the lengths of their documents."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import spoken
from fastpack.io import PathLike, Progress, as_path, exists, is_folder, is_remote
from fastpack.plans.count_column import Integers
from fastpack.plans.plan_settings import PlanSettings
from fastpack.plans.plan_sources import PlanSource, file_fingerprint, files_of, stored_path
from fastpack.tokens.convert_dtypes import open_checked
from fastpack.tokens.formats import formats_of, is_side_file
from fastpack.tokens.interop_formats import FOLDER_FORMATS
from fastpack.tokens.token_file import TokenFile

Sources: TypeAlias = PathLike | Sequence[PathLike]

_BLOCK = 1 << 18  # documents whose lengths are read at once
_WILDCARDS = frozenset("*?[")


class PieceLengths(NamedTuple):
    """A shard of the documents of a plan, divided into pieces of `seq_length` tokens and the rest.

    Attributes
    ----------
    first
        Number of the first document.
    full
        Number of pieces of `seq_length` tokens of each document, uint32 [n].
    ends
        Tokens after them, uint32 [n].
    """

    first: int
    full: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.uint32]

    def used(self, seq_length: int) -> npt.NDArray[np.uint32]:
        """Return the tokens of each document, uint32 [n]; ValueError for a document of 2^32 tokens."""
        if len(self.full) and (int(self.full.max()) + 1) * seq_length >= 1 << 32:
            raise ValueError("a document has too many tokens to be concatenated with others")
        return self.full * np.uint32(seq_length) + self.ends


@dataclass(frozen=True, slots=True)
class TokenFormatOptions:
    """The options of `open_tokens`, for all sources."""

    format: str | None = None
    dtype: str | None = None
    eos_token_id: int | None = None

    def open(self, path: str) -> TokenFile:
        return open_checked(path, self.format, self.dtype, self.eos_token_id)


def find_token_files(given: Sources, format: str | None) -> list[list[str]]:
    """Return the token files of each source: itself, the matches of a pattern, or the files of a folder, sorted."""
    paths = [os.fspath(path) for path in ([given] if isinstance(given, (str, os.PathLike)) else given)]
    if not paths:
        raise ValueError("no sources: pass at least one token file")
    return [_expand(path, format) for path in paths]


def _expand(path: str, format: str | None) -> list[str]:
    if format is not None or is_remote(path):
        return [path]
    if is_folder(path):
        inside = _token_files([os.path.join(path, name) for name in os.listdir(path)])
        files = [file for file in inside if any(row.stores_documents for row in formats_of(as_path(file)))]
        if not files and formats_of(as_path(path)):
            return [path]
    elif not exists(path) and _WILDCARDS.intersection(path):
        files = _token_files(glob.glob(path, recursive=True))
    else:
        return [path]
    if not files:
        raise FileNotFoundError(f"{path}: no token files found")
    return files


def _token_files(paths: list[str]) -> list[str]:
    """Return those paths that name a token file, without the side files of others."""
    where = [as_path(path) for path in sorted(paths) if not os.path.basename(path).startswith(".")]
    kept = [path for path in where if path.is_file() or any(row.name in FOLDER_FORMATS for row in formats_of(path))]
    return [os.fspath(path) for path in kept if formats_of(path) and not is_side_file(path)]


def passes_of(n_sources: int, repeats: Sequence[float] | None) -> list[float]:
    """Return the number of passes over each source; ValueError."""
    if repeats is None:
        return [1.0] * n_sources
    if len(repeats) != n_sources:
        raise ValueError(f"{spoken('repeats')}: found {len(repeats)} numbers for {n_sources} sources")
    for number in repeats:
        if not (math.isfinite(number) and 0 < number <= 1 << 20):
            raise ValueError(f"{spoken('repeats')}: found {number}, expected a number above 0")
    return [float(number) for number in repeats]


def describe_source(tokens: TokenFile, folder: str, eos_token_id: int | None) -> PlanSource:
    """Return the description of an open token file, for a plan in `folder`."""
    n_documents = tokens.n_documents
    if n_documents is None:
        raise ValueError(f"{tokens.path}: the document boundaries are unknown: pass {spoken('eos_token_id')}")
    fingerprint = tuple(file_fingerprint(file, folder) for file in files_of(tokens))
    path = stored_path(tokens.path, folder)
    return PlanSource(path, tokens.format, str(tokens.dtype), eos_token_id, n_documents, tokens.n_tokens, fingerprint)


def document_lengths(tokens: TokenFile) -> Iterator[tuple[int, Integers]]:
    """Yield the number of a document, and the lengths of some documents from it on, int64 [k]."""
    n_documents = tokens.n_documents or 0
    for first in range(0, n_documents, _BLOCK):
        yield first, tokens.document_rows(first, min(first + _BLOCK, n_documents))[:, 1]


def subset_keys(seed: int | None, source: int) -> npt.NDArray[np.uint64]:
    """Return the keys of the permutation whose first numbers are the documents of a fraction of a source."""
    return np.asarray(np.random.SeedSequence([seed or 0, source]).generate_state(4, np.uint64), np.uint64)


class Pass(NamedTuple):
    """A pass over the documents of a token file, or over a random subset of `n_chosen` of them."""

    path: str
    n_documents: int
    n_chosen: int
    keys: npt.NDArray[np.uint64]

    def chosen(self, first: int, count: int) -> npt.NDArray[np.bool_]:
        """Return which of `count` documents from `first` on take part."""
        places: npt.NDArray[Any] = np.arange(first, first + count, dtype=np.int64)
        kernels.feistel(self.n_documents, self.keys, places, places)
        return np.asarray(places < self.n_chosen)


def find_passes(
    given: Sources, repeats: Sequence[float] | None, options: TokenFormatOptions, seed: int | None, folder: str
) -> tuple[list[PlanSource], list[Pass]]:
    """Return the sources of a plan in `folder`, one entry for each pass, and the passes."""
    found = find_token_files(given, options.format)
    pairs = [
        (path, number) for paths, number in zip(found, passes_of(len(found), repeats), strict=True) for path in paths
    ]
    sources: list[PlanSource] = []
    passes: list[Pass] = []
    for k, (path, number) in enumerate(pairs):
        with options.open(path) as tokens:
            source = describe_source(tokens, folder, options.eos_token_id)
        keys, n_documents, n_passes = subset_keys(seed, k), source.n_documents, math.ceil(number)
        sources += [source] * n_passes
        passes += [Pass(path, n_documents, n_documents, keys)] * (n_passes - 1)
        passes.append(Pass(path, n_documents, round((number - (n_passes - 1)) * n_documents), keys))
    return sources, passes


class LengthReader:
    """Reads the lengths of the documents of all passes.

    Attributes
    ----------
    n_documents
        Number of documents of all passes.
    n_used, n_full
        Of the documents that were read: how many have tokens in some row, and how many rows they fill.
    n_tokens, n_truncated, n_dropped
        Number of tokens in all documents that take part, and of those that are left out.
    """

    def __init__(self, passes: Sequence[Pass], options: TokenFormatOptions, settings: PlanSettings) -> None:
        self._passes, self._options, self._settings = passes, options, settings
        self.n_documents = sum(row.n_documents for row in passes)
        self.n_used = self.n_full = self.n_tokens = self.n_truncated = self.n_dropped = 0

    def shards(self, progress: Progress | None = None) -> Iterator[PieceLengths]:
        """Yield the documents in order, `shard_documents` at a time."""
        size = self._settings.shard_documents
        first, done = 0, 0  # documents before the shard, and documents in it
        full = ends = np.empty(0, np.uint32)
        for lengths in self._blocks():
            while len(lengths):
                if not done:
                    full, ends = np.empty((2, min(size, self.n_documents - first)), np.uint32)
                taken = lengths[: len(full) - done]
                self._divide(taken, full[done : done + len(taken)], ends[done : done + len(taken)])
                lengths, done = lengths[len(taken) :], done + len(taken)
                if progress is not None:
                    progress(first + done, self.n_documents)
                if done == len(full):
                    yield self._counted(PieceLengths(first, full, ends))
                    first, done = first + done, 0

    def count_full_rows(self) -> int:
        """Read all lengths, and return the number of rows that one document fills."""
        reader = LengthReader(self._passes, self._options, self._settings)
        for _ in reader.shards():
            pass
        return reader.n_full

    def _blocks(self) -> Iterator[Integers]:
        """Yield the lengths of documents in order, 0 for those that a pass leaves out."""
        tokens: TokenFile | None = None
        try:
            for k, row in enumerate(self._passes):
                if tokens is None or row.path != self._passes[k - 1].path:
                    if tokens is not None:
                        tokens.close()
                    tokens = self._options.open(row.path)
                for first, lengths in document_lengths(tokens):
                    whole = row.n_chosen == row.n_documents
                    yield lengths if whole else lengths * row.chosen(first, len(lengths))
        finally:
            if tokens is not None:
                tokens.close()

    def _divide(self, lengths: Integers, full: npt.NDArray[np.uint32], ends: npt.NDArray[np.uint32]) -> None:
        """Write the number of whole rows, and the tokens after them, of documents of these lengths."""
        seq_length, n_tokens = self._settings.seq_length, int(lengths.sum())
        self.n_tokens += n_tokens
        if self._settings.long == "truncate":
            lengths = np.minimum(lengths, seq_length)
            self.n_truncated += n_tokens - int(lengths.sum())
        elif self._settings.long == "drop":
            lengths = np.where(lengths > seq_length, 0, lengths)
            self.n_dropped += n_tokens - int(lengths.sum())
        longest = int(lengths.max())
        if longest // seq_length >= 1 << 32:
            raise ValueError(f"a document of {longest} tokens is too long for rows of {seq_length}")
        divided: npt.NDArray[Any] = lengths.astype(np.uint32) if longest < 1 << 32 else lengths  # uint32 is faster
        np.divmod(divided, divided.dtype.type(seq_length), out=(full, ends), casting="unsafe")

    def _counted(self, shard: PieceLengths) -> PieceLengths:
        self.n_used += int(np.count_nonzero(shard.full | shard.ends))
        self.n_full += int(shard.full.sum(dtype=np.int64))
        return shard
