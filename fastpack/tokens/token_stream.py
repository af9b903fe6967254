"""All tokens of a file as a stream of blocks in memory, with the lengths of its documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import FormatError
from fastpack.io import drop_pages
from fastpack.tokens.token_file import DocumentSpans, TokenFile
from fastpack.tokens.token_segment import TokenSegment

BLOCK_BYTES = 1 << 20  # read at once: stays in the second-level cache until it is written
_GATHERED_BYTES = 8 << 20  # of documents that are not contiguous


class TokenStream(NamedTuple):
    """Documents of a file, in order.

    Attributes
    ----------
    lengths
        Tokens of each document, int64 [n]; None if the document boundaries are unknown.
    n_tokens
        Tokens of all blocks.
    segments
        Where the tokens are if the documents are contiguous there; None otherwise.
    blocks
        The tokens, aligned and in native byte order. A block may end within a document, and its memory is reused for
        the next block.
    """

    lengths: npt.NDArray[np.int64] | None
    n_tokens: int
    segments: Sequence[TokenSegment] | None
    blocks: Iterator[npt.NDArray[Any]]


def stream_tokens(tokens: TokenFile) -> TokenStream:
    """Return the documents of a file; tokens that are in no document only if the document boundaries are unknown."""
    if tokens.n_documents is None:
        return TokenStream(None, tokens.n_tokens, tokens.segments(), _segment_blocks(tokens))
    if tokens.is_contiguous():
        lengths = np.diff(tokens.document_ends(), prepend=0)
        return TokenStream(lengths, tokens.n_tokens, tokens.segments(), _segment_blocks(tokens))
    spans = tokens.document_spans()
    size = tokens.dtype.itemsize
    rows = [np.ascontiguousarray(span.rows[:, 1]) // size for span in spans]
    lengths = np.concatenate([np.empty(0, np.int64), *rows])
    return TokenStream(lengths, int(lengths.sum()), None, _gathered_blocks(spans, tokens.dtype))


def _segment_blocks(tokens: TokenFile) -> Iterator[npt.NDArray[Any]]:
    buffer = np.empty(BLOCK_BYTES, np.uint8)
    for segment in tokens.segments():
        if segment.plain:
            yield from _read_blocks(segment, buffer)
        else:
            yield np.ascontiguousarray(segment.open()).astype(segment.dtype.newbyteorder("="), copy=False)


def _read_blocks(segment: TokenSegment, buffer: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[Any]]:
    """Read a segment into a buffer: faster than touching the pages of a map, and aligned wherever the tokens are."""
    if segment.length == 0:
        return
    reader = segment.open_reader()
    size = segment.dtype.itemsize
    end = segment.offset + segment.length * size
    for start in range(segment.offset, end, BLOCK_BYTES):
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
