"""All tokens of a file as a stream of blocks in memory, with the lengths of its documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import FormatError
from fastpack.io import drop_pages
from fastpack.tokens.token_file import DocumentSpans, TokenFile
from fastpack.tokens.token_segment import TokenSegment

BLOCK_BYTES = 1 << 20  # read at once: stays in the second-level cache until it is written
_GATHERED_BYTES = 8 << 20  # of documents that are not contiguous


@dataclass(frozen=True)
class TokenStream:
    """Documents of a file, in order.

    Attributes
    ----------
    lengths
        Tokens of each document, int64 [n]; None if the document boundaries are unknown.
    n_tokens
        Number of tokens.
    dtype
        Their dtype in the file.
    segments
        Where the tokens are if the documents are contiguous there; None otherwise.
    tokens
        The file; None if `segments` say everything.
    path
        What error messages name.
    """

    lengths: npt.NDArray[np.int64] | None
    n_tokens: int
    dtype: np.dtype[Any]
    segments: Sequence[TokenSegment] | None
    tokens: TokenFile | None = None
    path: str = ""

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[npt.NDArray[Any]]:
        """Yield the tokens [start, end), aligned and in native byte order.

        A block may end within a document, and its memory is reused for the next block.
        """
        stop = self.n_tokens if end is None else end
        if self.segments is None:
            return self._gathered(start, stop)
        return _segment_blocks(parts_of(self.segments, start, stop))

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        assert self.lengths is not None
        return np.cumsum(self.lengths)

    def _gathered(self, start: int, end: int) -> Iterator[npt.NDArray[Any]]:
        assert self.tokens is not None
        first = int(np.searchsorted(self._ends, start, "right"))
        last = int(np.searchsorted(self._ends, end, "left"))
        before = int(self._ends[first - 1]) if first else 0
        for block in _gathered_blocks(self.tokens.document_spans(first, last + 1), self.dtype):
            piece = block[max(0, start - before) : max(0, end - before)]
            before += len(block)
            if len(piece):
                yield piece


def stream_tokens(tokens: TokenFile) -> TokenStream:
    """Return the documents of a file; tokens that are in no document only if the document boundaries are unknown."""
    if tokens.n_documents is None:
        return without_documents(tokens)
    if tokens.is_contiguous():
        lengths = np.diff(tokens.document_ends(), prepend=0)
        return replace(without_documents(tokens), lengths=lengths)
    size = tokens.dtype.itemsize
    rows = [np.ascontiguousarray(span.rows[:, 1]) // size for span in tokens.document_spans()]
    lengths = np.concatenate([np.empty(0, np.int64), *rows])
    return TokenStream(lengths, int(lengths.sum()), tokens.dtype, None, tokens, tokens.path)


def without_documents(tokens: TokenFile) -> TokenStream:
    """Return all tokens of a file as a stream without document boundaries."""
    return TokenStream(None, tokens.n_tokens, tokens.dtype, tokens.segments(), path=tokens.path)


def parts_of(segments: Sequence[TokenSegment], start: int, end: int) -> Iterator[tuple[TokenSegment, int, int]]:
    """Yield the segments that contain the tokens [start, end), and the first and the end of them in each."""
    before = 0
    for segment in segments:
        first, last = max(start - before, 0), min(end - before, segment.length)
        before += segment.length
        if first < last:
            yield segment, first, last


def _segment_blocks(parts: Iterable[tuple[TokenSegment, int, int]]) -> Iterator[npt.NDArray[Any]]:
    buffer = np.empty(BLOCK_BYTES, np.uint8)
    for segment, first, last in parts:
        if segment.plain:
            yield from _read_blocks(segment, first, last, buffer)
        else:
            yield np.ascontiguousarray(segment.open()[first:last]).astype(segment.dtype.newbyteorder("="), copy=False)


def _read_blocks(
    segment: TokenSegment, first: int, last: int, buffer: npt.NDArray[np.uint8]
) -> Iterator[npt.NDArray[Any]]:
    """Read the tokens [first, last) of a segment into a buffer, aligned, and faster than the pages of a map."""
    reader = segment.open_reader()  # of the whole segment, which a manifest is compared with
    size = segment.dtype.itemsize
    end = segment.offset + last * size
    for start in range(segment.offset + first * size, end, BLOCK_BYTES):
        piece = buffer[: min(BLOCK_BYTES, end - start)]
        n_bytes = reader.read_into(piece, start)
        if n_bytes < len(piece):
            raise FormatError(segment.path, start + n_bytes, "the end of the file", f"tokens up to byte {end}")
        yield _native(piece.view(segment.dtype))


def _gathered_blocks(spans: list[DocumentSpans], dtype: np.dtype[Any]) -> Iterator[npt.NDArray[Any]]:
    for span in spans:
        starts = span.rows[:, 0] + span.base
        lengths = np.ascontiguousarray(span.rows[:, 1])
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        first = 0
        while first < len(lengths):
            end = max(first + 1, int(np.searchsorted(before, before[first] + _GATHERED_BYTES, "right")) - 1)
            n_bytes = int(before[end] - before[first])
            if n_bytes > _GATHERED_BYTES:  # one long document
                for start in range(int(starts[first]), int(starts[first]) + n_bytes, BLOCK_BYTES):
                    stop = min(start + BLOCK_BYTES, int(starts[first]) + n_bytes)
                    yield _native(np.array(span.data[start:stop]).view(dtype))
                    drop_pages(span.data, start, stop)
            else:
                out = np.empty(n_bytes, np.uint8)
                targets = before[first:end] - before[first]
                kernels.copy_spans(span.data, starts[first:end], targets, lengths[first:end], out)
                yield _native(out.view(dtype))
                filled = lengths[first:end] > 0
                if filled.any():
                    last = int((starts[first:end] + lengths[first:end])[filled].max())
                    drop_pages(span.data, int(starts[first:end][filled].min()), last)
            first = end


def _native(tokens: npt.NDArray[Any]) -> npt.NDArray[Any]:
    native = tokens.dtype.newbyteorder("=")  # an explicit "<" is another buffer format, which kernels do not know
    return tokens.view(native) if tokens.dtype.isnative else tokens.astype(native)
