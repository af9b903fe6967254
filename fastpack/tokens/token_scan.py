"""All tokens of a file looked at, a piece at a time: the range of the ids, the first that is none, how many end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.io import drop_pages, open_bytes
from fastpack.tokens.flat.shards import Shard

SCANNED_BYTES = 8 << 20  # between two advices to the kernel to drop the pages behind


class TokenScan:
    """What the tokens of some files have in common.

    vocab_size: ids from there on are wrong; eos: the id that is counted, -1 for none. smallest, largest: of all ids and
    0; n_eos, n_tokens: counted.
    """

    def __init__(self, vocab_size: int | None, eos: int) -> None:
        self.vocab_size, self.eos = vocab_size, eos
        self.smallest = self.largest = self.n_eos = self.n_tokens = 0
        self.outside: tuple[int, int] | None = None  # number and value of the last file's first token that is no id

    def look(self, shard: Shard) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Look at the tokens of a file, a piece at a time; yields the number of its first token, and the piece."""
        self.outside = None
        for start, tokens in token_pieces(shard):
            smallest, largest, n_eos = kernels.scan_tokens(tokens, self.eos)
            self.smallest, self.largest = min(self.smallest, smallest), max(self.largest, largest)
            self.n_eos += n_eos
            self.n_tokens += len(tokens)
            if self.outside is None and (smallest < 0 or (self.vocab_size and largest >= self.vocab_size)):
                bad = (tokens < 0) | (tokens >= (self.vocab_size or np.iinfo(np.int64).max))
                first = int(np.flatnonzero(bad)[0])
                self.outside = start + first, int(tokens[first])
            yield start, tokens


class InnerEos:
    """Counts the EOS tokens that are not the last token of a document, and the documents that have such.

    first, last: int64[n], the number of each document's first and last token in the file.
    """

    def __init__(self, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], eos: int) -> None:
        if not (last[1:] > last[:-1]).all():
            last, order = np.unique(last, return_index=True)
            first = first[order]
        self._first, self._last, self._eos = first, last, eos
        self._document = -1  # the last one that was counted
        self.n_tokens = self.n_documents = 0

    def add(self, start: int, tokens: npt.NDArray[Any], n_eos: int) -> None:
        """Take a piece of the file that begins at token `start` and has `n_eos` EOS tokens."""
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


def token_pieces(shard: Shard) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Pieces of a shard's tokens in a dtype that kernels take, with the number of the first token of each."""
    if not shard.plain:
        yield 0, np.asarray(shard.open()).astype(np.int64).reshape(-1)
        return
    if shard.length == 0:
        return
    data = open_bytes(shard.path, shard.version)
    step = SCANNED_BYTES // shard.dtype.itemsize
    for start in range(0, shard.length, step):
        first = shard.offset + start * shard.dtype.itemsize
        end = shard.offset + min(shard.length, start + step) * shard.dtype.itemsize
        tokens: npt.NDArray[Any] = data[first:end].view(shard.dtype)
        easy = tokens.dtype.isnative and tokens.dtype.str[1:] in ("u1", "u2", "u4", "i1", "i2", "i4", "i8")
        yield start, tokens if easy and tokens.flags.aligned else tokens.astype(np.int64)
        drop_pages(data, first, end)
