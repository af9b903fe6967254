"""OLMo's token files: raw tokens in `x.npy`, without NumPy's header, and documents in `x.csv.gz`.

Each line of the side file begins with the start and the end (exclusive) of a document in tokens. The file states no
dtype; it follows from the side file if that describes all tokens.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError, spoken
from fastpack.io import AnyPath, AtomicFile, PathLike, check_exists, exists, open_stream, read_head, size_of
from fastpack.tokens.flat.shards import NPY_MAGIC
from fastpack.tokens.indexed_tokens import IndexedTokens, check_given_dtype, raw_segment
from fastpack.tokens.paired_writer import PairedTokenWriter
from fastpack.tokens.token_file import DocumentEnds, Rows
from fastpack.tokens.token_scan import eos_ends

Ints: TypeAlias = npt.NDArray[np.int64]

DTYPES = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}
_ROWS = 1 << 16  # lines that are converted at once
_BLOCK_BYTES = 1 << 18  # of lines that are parsed at once: their arrays stay in the cache
_DIGITS = 18  # of the numbers that are accepted: they fit int64
_COMMA, _NEWLINE, _ZERO = b",\n0"
_EXPECTED = "start,end in tokens"
_LONGEST_LINE = 1 << 20  # characters: a small gzip file may contain a line that does not fit in memory


def csv_path(path: PathLike) -> str:
    """Return the path of the side file."""
    return os.fspath(path).removesuffix(".npy") + ".csv.gz"


def fits(path: AnyPath) -> bool:
    """Return whether this is a `.npy` file that does not begin as NumPy's do; an empty one needs a side file."""
    if path.suffix != ".npy" or path.is_dir() or not exists(path):
        return False
    head = read_head(path, len(NPY_MAGIC))[0]
    return head != NPY_MAGIC if len(head) == len(NPY_MAGIC) else exists(csv_path(path))


class OlmoTokens(IndexedTokens):
    """A raw `.npy` file; its documents are those of the side file, else EOS tokens end them."""

    def __init__(self, path: AnyPath, dtype: np.dtype[Any] | None = None, eos_token_id: int | None = None) -> None:
        check_exists(path)
        if read_head(path, len(NPY_MAGIC))[0] == NPY_MAGIC:
            raise FormatError(path, 0, f"{NPY_MAGIC!r}, NumPy's header", "raw tokens of OLMo; it is of the format npy")
        self._eos = eos_token_id
        self.csv_path = csv_path(path)
        self._stored_ends = _read_csv(self.csv_path) if exists(self.csv_path) else None
        stored = self._dtype(path, dtype)
        segment = raw_segment(path, stored)
        super().__init__(path, "olmo", [segment], -1 if self._stored_ends is None else len(self._stored_ends))
        if self._stored_ends is not None and self._total > segment.length:
            expected = f"at most {segment.length}, the number of tokens in {path}"
            raise FormatError(self.csv_path, 0, f"a last document end of {self._total}", expected)

    @property
    def _total(self) -> int:
        ends = self._stored_ends
        return int(ends[-1]) if ends is not None and len(ends) else 0

    def _dtype(self, path: AnyPath, given: np.dtype[Any] | None) -> np.dtype[Any]:
        n_bytes = size_of(path)
        size = n_bytes // self._total if self._total and n_bytes % self._total == 0 else 0
        if given is None and size in DTYPES:
            return DTYPES[size]
        if given is None:
            raise FormatError(
                path,
                0,
                "raw tokens of an unknown dtype (no header of NumPy's)",
                f"{spoken('dtype=')}, as OLMo's configuration says",
            )
        if size in DTYPES:
            check_given_dtype(path, 0, DTYPES[size], DTYPES[size] if given.itemsize == size else given)
        return given

    @property
    def n_documents(self) -> int | None:  # type: ignore[override]
        """The number of documents; None if there is neither a side file nor an EOS token."""
        return len(self.document_ends()) if self._has_documents() else None

    def _has_documents(self) -> bool:
        return self._stored_ends is not None or self._eos is not None

    def _read_document_ends(self) -> DocumentEnds:
        return eos_ends(self._segments, self._eos) if self._stored_ends is None else self._stored_ends.copy()


def _read_csv(path: str) -> DocumentEnds:
    """Return the document ends; raise FormatError unless each document begins where the one before it ends."""
    found, before, number = [np.empty(0, np.int64)], 0, 0
    for rows in _numbers(path):
        starts, ends = rows[:, 0], rows[:, 1]
        wrong = (starts != np.concatenate([[before], ends[:-1]])) | (ends < starts)
        if wrong.any():
            at = int(wrong.argmax())
            text = f"document [{starts[at]}, {ends[at]}) in line {number + at + 1}"
            expected = f"a document from {before if at == 0 else ends[at - 1]} on: documents in order and without gaps"
            raise FormatError(path, 0, text, expected)
        found.append(ends)
        before, number = int(ends[-1]), number + len(rows)
    return np.concatenate(found)


def _numbers(path: str) -> Iterator[Rows]:
    """Yield start and end of the documents, int64 [k, 2]."""
    number, rest = 0, b""
    try:
        with open_stream(path) as raw, gzip.GzipFile(fileobj=raw) as file:
            while block := file.read(_BLOCK_BYTES):
                if b'"' in block or b"\r" in block:
                    yield from _csv_numbers(path, number)
                    return
                text = rest + block
                end = text.rfind(b"\n") + 1
                rest = text[end:]
                if len(rest) > _LONGEST_LINE:
                    raise FormatError(
                        path, 0, f"a line of more than {_LONGEST_LINE} bytes after line {number}", _EXPECTED
                    )
                if end:
                    rows = _parsed(path, text[:end], number)
                    number += len(rows)
                    yield rows
            if rest:
                yield _parsed(path, rest + b"\n", number)
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise FormatError(path, 0, f"{error} after line {number}", "gzipped lines of start,end") from error


def _parsed(path: str, text: bytes, before: int) -> Rows:
    """Return the first two numbers of each line, int64 [k, 2]; `before`: number of lines before them."""
    if not text.isascii():
        text.decode()
    data = np.frombuffer(text, np.uint8)
    newlines = np.flatnonzero(data == _NEWLINE)
    starts = np.concatenate([[0], newlines[:-1] + 1])
    delimiters = np.flatnonzero((data == _COMMA) | (data == _NEWLINE))
    first = np.searchsorted(delimiters, starts)
    commas = delimiters[first]
    wrong = commas == newlines
    ends = delimiters[np.minimum(first + 1, len(delimiters) - 1)]
    found = np.empty((len(starts), 2), np.int64)
    for column, (begin, end) in enumerate(((starts, commas), (commas + 1, ends))):
        found[:, column] = _integers(data, begin, end, wrong)
    if wrong.any():
        at = int(wrong.argmax())
        line = text[int(starts[at]) : int(newlines[at])].decode()
        raise FormatError(path, 0, f"{line[:60]!r} in line {before + at + 1}", _EXPECTED)
    return found


def _integers(data: npt.NDArray[np.uint8], starts: Ints, ends: Ints, wrong: npt.NDArray[np.bool_]) -> Ints:
    """Return the decimal numbers data[starts[k]:ends[k]]; set wrong[k] for other texts, and for more than 18 digits."""
    lengths = ends - starts
    wrong |= (lengths < 1) | (lengths > _DIGITS)
    values = np.zeros(len(starts), np.int64)
    for place in range(min(_DIGITS, int(lengths.max(initial=0)))):
        digits = data[np.maximum(ends - 1 - place, 0)] - np.uint8(_ZERO)
        is_used = lengths > place
        wrong |= (digits > 9) & is_used
        values += (digits * is_used).astype(np.int64) * 10**place
    return values


def _csv_numbers(path: str, skipped: int) -> Iterator[Rows]:
    """Yield start and end of the documents after the first ones, from a file with quoted texts."""
    rows: list[tuple[int, int]] = []
    number = 0
    try:
        with open_stream(path) as raw, gzip.GzipFile(fileobj=raw) as file:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            for row in csv.reader(iter(partial(text.readline, _LONGEST_LINE), "")):
                number += 1
                if number <= skipped:
                    continue
                if len(row) < 2 or not (_is_number(row[0]) and _is_number(row[1])):
                    raise FormatError(path, 0, f"{','.join(row)[:60]!r} in line {number}", _EXPECTED)
                rows.append((int(row[0]), int(row[1])))
                if len(rows) == _ROWS:
                    yield np.array(rows, np.int64)
                    rows.clear()
    except csv.Error as error:
        raise FormatError(path, 0, f"{error} after line {number}", "gzipped lines of start,end") from error
    if rows:
        yield np.array(rows, np.int64)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


class OlmoWriter(PairedTokenWriter):
    """Writes raw tokens and the side file, with start and end of each document."""

    token_sizes = (1, 2, 4, 8)

    def side_paths(self, path: str) -> list[str]:
        """Return the path of the side file."""
        return [csv_path(path)]

    def _write_sides(self, sides: list[AtomicFile]) -> None:
        (side,) = sides
        for block in _side_blocks(np.frombuffer(self._lengths, np.int64)):
            side.write(block)


def _side_blocks(lengths: npt.NDArray[np.int64]) -> Iterator[bytes]:
    """Yield the compressed side file."""
    before = 0
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)  # a gzip header without a time: equal inputs give equal files
    for first in range(0, len(lengths), _ROWS):
        block = lengths[first : first + _ROWS]
        ends = np.cumsum(block) + before
        rows = zip((ends - block).tolist(), ends.tolist(), strict=True)
        yield packer.compress("".join(f"{start},{end}\n" for start, end in rows).encode())
        before = int(ends[-1])
    yield packer.flush()


def open_file(path: AnyPath, dtype: np.dtype[Any] | None, eos_token_id: int | None) -> OlmoTokens:
    """Open a file of this format."""
    return OlmoTokens(path, dtype, eos_token_id)


def create(path: AnyPath, dtype: np.dtype[Any], policy: Any) -> OlmoWriter:
    """Create `x.npy` and `x.csv.gz`."""
    if dtype.kind != "u":
        raise ValueError(f"OLMo stores unsigned integers, not {dtype}")
    return OlmoWriter(path, dtype.itemsize, if_exists=policy)


def predicted_size(n_tokens: int, token_size: int, documents: Iterable[Rows]) -> int:
    """Return the size of both files in bytes; the side file is compressed for it."""
    lengths = np.concatenate([np.empty(0, np.int64), *(rows[:, 1] for rows in documents)])
    return n_tokens * token_size + sum(map(len, _side_blocks(lengths)))
