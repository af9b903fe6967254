"""The documents that a plan is made from: which token files, how often, and the lengths of their documents."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

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


@dataclass(slots=True)
class PieceLengths:
    """The documents of a plan, divided into pieces of `seq_length` tokens and the rest.

    Attributes
    ----------
    full
        Number of pieces of `seq_length` tokens of each document, uint32 [n_documents].
    ends
        Tokens after them, uint32 [n_documents].
    n_tokens, n_truncated, n_dropped
        Number of tokens in all documents that take part, and of those that are left out.
    """

    full: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.uint32]
    n_tokens: int = 0
    n_truncated: int = 0
    n_dropped: int = 0

    def used(self, seq_length: int) -> npt.NDArray[np.uint32]:
        """Return the tokens of each document, uint32 [n_documents]; ValueError for a document of 2^32 tokens."""
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


def read_sources(
    given: Sources,
    repeats: Sequence[float] | None,
    options: TokenFormatOptions,
    settings: PlanSettings,
    folder: str,
    progress: Progress | None,
) -> tuple[list[PlanSource], PieceLengths]:
    """Return the passes over the sources of a plan in `folder`, and the lengths of their documents."""
    found = find_token_files(given, options.format)
    pairs = [
        (path, number) for paths, number in zip(found, passes_of(len(found), repeats), strict=True) for path in paths
    ]
    described: list[PlanSource] = []
    total = 0
    for path, number in pairs:
        with options.open(path) as tokens:
            described.append(describe_source(tokens, folder, options.eos_token_id))
        total += math.ceil(number) * described[-1].n_documents
    reader = LengthReader(settings, total)
    for k, (path, number) in enumerate(pairs):
        with options.open(path) as tokens:
            reader.read(tokens, number, subset_keys(settings.seed, k), progress)
    passes = [source for source, (_, number) in zip(described, pairs, strict=True) for _ in range(math.ceil(number))]
    return passes, reader.lengths


class LengthReader:
    """Reads the lengths of documents into `PieceLengths`; total: number of documents of all passes."""

    def __init__(self, settings: PlanSettings, total: int) -> None:
        self._seq_length, self._long = settings.seq_length, settings.long
        self.lengths = PieceLengths(np.zeros(total, np.uint32), np.zeros(total, np.uint32))
        self._done = 0

    def read(self, tokens: TokenFile, repeats: float, keys: npt.NDArray[np.uint64], progress: Progress | None) -> None:
        """Read the documents of a source: all of them for each whole pass, and a subset for the rest of `repeats`."""
        n_documents = tokens.n_documents or 0
        n_passes = math.ceil(repeats)
        partial = round((repeats - (n_passes - 1)) * n_documents)  # documents of the last pass
        base = self._done
        for first, lengths in document_lengths(tokens):
            chosen = np.ones(len(lengths), np.bool_)
            for number in range(n_passes):
                if number == n_passes - 1 and partial < n_documents:
                    chosen = _is_chosen(n_documents, partial, keys, first, len(lengths))
                self._add(base + number * n_documents + first, lengths, chosen)
            if progress is not None:
                progress(base + (first + len(lengths)) * n_passes, len(self.lengths.ends))
        self._done += n_passes * n_documents

    def _add(self, first: int, lengths: Integers, chosen: npt.NDArray[np.bool_]) -> None:
        found = self.lengths
        lengths = np.where(chosen, lengths, 0)
        n_tokens = int(lengths.sum())
        found.n_tokens += n_tokens
        if self._long == "truncate":
            lengths = np.minimum(lengths, self._seq_length)
            found.n_truncated += n_tokens - int(lengths.sum())
        elif self._long == "drop":
            lengths = np.where(lengths > self._seq_length, 0, lengths)
            found.n_dropped += n_tokens - int(lengths.sum())
        full, ends = np.divmod(lengths, self._seq_length)
        if len(full) and int(full.max()) >= 1 << 32:
            raise ValueError(f"a document of {int(lengths.max())} tokens is too long for rows of {self._seq_length}")
        found.full[first : first + len(lengths)] = full
        found.ends[first : first + len(lengths)] = ends


def _is_chosen(
    n_documents: int, n_chosen: int, keys: npt.NDArray[np.uint64], first: int, count: int
) -> npt.NDArray[np.bool_]:
    """Return which of `count` documents from `first` on are in a random subset of `n_chosen` documents."""
    places: npt.NDArray[Any] = np.arange(first, first + count, dtype=np.int64)
    kernels.feistel(n_documents, keys, places, places)
    return np.asarray(places < n_chosen)
