"""Base of formats whose document boundaries are in an index, and of the checks that their readers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import ByteArray, PathLike, drop_pages, stat_of
from fastpack.tokens.token_file import DocumentEnds, SegmentedTokens
from fastpack.tokens.token_segment import Stamp, TokenSegment, stamp_of

INDEX_ROWS = 1 << 18  # entries of an index that are read or written at once: 2 MiB
_DROPPED = 1 << 20  # bytes of a map that are released once they are copied


class IndexedTokens(SegmentedTokens):
    """Tokens in segments, with `n_documents` documents whose ends the subclass reads (`_read_document_ends`)."""

    def __init__(self, path: PathLike, format: str, segments: Sequence[TokenSegment], n_documents: int) -> None:
        self.path, self.format = str(path), format
        self._segments, self._n_documents = segments, n_documents

    @property
    def n_documents(self) -> int:
        """The number of documents, by the index."""
        return self._n_documents


def raw_segment(
    path: PathLike, dtype: np.dtype[Any], offset: int = 0, end: int | None = None, stamp: Stamp | None = None
) -> TokenSegment:
    """Return the tokens between byte `offset` and `end`, by default the end of the file.

    Raises FormatError if they are not a whole number of tokens.
    """
    if stamp is None:
        stamp = stamp_of(stat_of(path))
    stop = stamp[0] if end is None else end
    n_tokens, rest = divmod(stop - offset, dtype.itemsize)
    if rest or n_tokens < 0:
        found = f"{stop - offset} bytes of tokens"
        raise FormatError(path, stop - max(rest, 0), found, f"whole tokens of {dtype.itemsize} bytes ({dtype})")
    return TokenSegment(str(path), dtype, n_tokens, offset, stamp=stamp)


def check_size(path: PathLike, expected: int, reason: str) -> Stamp:
    """Return size, time and inode or tag of a file; raise FormatError unless it has `expected` bytes."""
    stamp = stamp_of(getattr(path, "listed", None) or stat_of(path))
    if (n_bytes := stamp[0]) != expected:
        raise FormatError(path, min(n_bytes, expected), f"a file of {n_bytes} bytes", f"{expected} bytes, {reason}")
    return stamp


def read_array(data: ByteArray, offset: int, count: int, dtype: str) -> npt.NDArray[Any]:
    """Copy `count` values from byte `offset` of a file to aligned memory, wherever they are in the file."""
    out = np.empty(count, dtype)
    out.view(np.uint8)[:] = data[offset : offset + out.nbytes]
    if out.nbytes >= _DROPPED:
        drop_pages(data, offset, offset + out.nbytes)
    return out


def first_decrease(ends: npt.NDArray[Any], before: int = 0) -> int | None:
    """Return the number of the first value that is smaller than the one before it (`before` for the first)."""
    if not len(ends):
        return None
    if int(ends[0]) < before:
        return 0
    wrong = np.flatnonzero(ends[1:] < ends[:-1])
    return int(wrong[0]) + 1 if len(wrong) else None


def check_given_dtype(path: PathLike, offset: int, dtype: np.dtype[Any], given: np.dtype[Any] | None) -> None:
    """Raise FormatError if a given dtype contradicts the one that the file states at byte `offset`."""
    if given is not None and given != dtype:
        raise FormatError(path, offset, f"the dtype {dtype}", f"{given}, as given")


def as_ends(ends: npt.NDArray[Any]) -> DocumentEnds:
    """Return document ends as int64."""
    return ends.astype(np.int64)
