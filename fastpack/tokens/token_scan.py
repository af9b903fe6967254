"""Reads all tokens of a file in blocks: range of the ids, first invalid id, number of EOS tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.io import drop_pages, open_bytes
from fastpack.tokens.token_segment import TokenSegment

SCANNED_BYTES = 8 << 20  # bytes read before their pages are dropped


class TokenScan:
    """Statistics of the tokens of several segments.

    Attributes
    ----------
    vocab_size
        Ids from here on are invalid; None to accept all.
    eos
        The id that is counted; -1 for none.
    smallest, largest
        Range of the ids read so far, 0 included.
    n_eos, n_tokens
        Number of EOS tokens and of all tokens read so far.
    outside
        Number and value of the first invalid token of the last segment; None if there is none.
    """

    def __init__(self, vocab_size: int | None, eos: int | None) -> None:
        self.vocab_size, self.eos = vocab_size, -1 if eos is None else eos
        self.smallest = self.largest = self.n_eos = self.n_tokens = 0
        self.outside: tuple[int, int] | None = None

    def scan(self, segment: TokenSegment) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Read a segment in blocks; yield the number of the first token of each block, and the block."""
        self.outside = None
        for start, tokens in token_blocks(segment):
            smallest, largest, n_eos = kernels.scan_tokens(tokens, self.eos)
            self.smallest, self.largest = min(self.smallest, smallest), max(self.largest, largest)
            self.n_eos += n_eos
            self.n_tokens += len(tokens)
            if self.outside is None and (smallest < 0 or (self.vocab_size and largest >= self.vocab_size)):
                bad = (tokens < 0) | (tokens >= (self.vocab_size or np.iinfo(np.int64).max))
                first = int(np.flatnonzero(bad)[0])
                self.outside = start + first, int(tokens[first])
            yield start, tokens

    def scan_all(self, segment: TokenSegment) -> None:
        """Read a segment to its end."""
        for _ in self.scan(segment):
            pass


class InnerEosCounter:
    """Counts EOS tokens before the end of their document, and the documents that contain them.

    `first` and `last`, int64 [n], are the numbers of each document's first and last token in the file.
    """

    def __init__(self, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], eos: int) -> None:
        if not (last[1:] > last[:-1]).all():
            last, order = np.unique(last, return_index=True)
            first = first[order]
        self._first, self._last, self._eos = first, last, eos
        self._document = -1  # the last document counted
        self.n_tokens = self.n_documents = 0

    def add(self, start: int, tokens: npt.NDArray[Any], n_eos: int) -> None:
        """Add the block of the file that begins at token `start` and contains `n_eos` EOS tokens."""
        first, end = np.searchsorted(self._last, [start, start + len(tokens)])
        n_ends = int(np.count_nonzero(tokens[self._last[first:end] - start] == self._eos))
        if n_eos == n_ends:
            return
        places = np.flatnonzero(tokens == self._eos) + start
        numbers = np.searchsorted(self._last, places)
        inside = numbers < len(self._last)
        some, at = numbers[inside], places[inside]
        inside[inside] = (self._first[some] <= at) & (at < self._last[some])
        documents = np.unique(numbers[inside])
        self.n_tokens += int(np.count_nonzero(inside))
        self.n_documents += len(documents) - bool(len(documents) and documents[0] == self._document)
        self._document = int(documents[-1]) if len(documents) else self._document


def eos_ends(
    segments: Sequence[TokenSegment], eos_token_id: int | None, *, joined: bool = False
) -> npt.NDArray[np.int64]:
    """Return the ends of documents that end in an EOS token or with their file, int64 [n].

    joined: whether a document may continue in the next file; the last one ends with its file.
    """
    found, before, last = [np.empty(0, np.int64)], 0, 0
    for number, segment in enumerate(segments):
        for start, tokens in token_blocks(segment):
            ends = np.flatnonzero(tokens == eos_token_id) + (start + 1)
            if len(ends):
                found.append(ends + before)
                last = int(ends[-1]) + before
        before += segment.length
        if last < before and not (joined and number < len(segments) - 1):
            found.append(np.array([before]))
            last = before
    return np.concatenate(found)


def token_blocks(segment: TokenSegment) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield (number of its first token, tokens) of each block, in a dtype that the kernels support."""
    if not segment.plain:
        yield 0, np.asarray(segment.open()).astype(np.int64).reshape(-1)
        return
    for start, tokens in stored_blocks(segment, SCANNED_BYTES, 0, segment.length):
        is_supported = tokens.dtype.isnative and tokens.dtype.str[1:] in ("u1", "u2", "u4", "i1", "i2", "i4", "i8")
        yield start, tokens if is_supported and tokens.flags.aligned else tokens.astype(np.int64)


def stored_blocks(segment: TokenSegment, n_bytes: int, start: int, end: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield (number of its first token, tokens as stored) of blocks of the tokens [start, end) of a plain segment."""
    if start >= end:
        return
    size = segment.dtype.itemsize
    data = open_bytes(segment.path, segment.version)
    for number in range(start, end, n_bytes // size):
        first = segment.offset + number * size
        last = min(first + n_bytes // size * size, segment.offset + end * size)
        yield number, data[first:last].view(segment.dtype)
        drop_pages(data, first, last)
