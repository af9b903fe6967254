"""The documents of a corpus, of token files or of texts, as a stream of blocks and by number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.io import Progress
from fastpack.kernels.document_hashes_np import mix
from fastpack.tokens.token_corpus import TokenCorpus
from fastpack.tokens.token_file import TokenFile

Numbers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

NO_TEXT = -1  # the length of a row without a text


class Block(NamedTuple):
    """Consecutive values of a corpus, and the documents that begin or end in them.

    first: number of the first of these documents. values: tokens, or bytes of texts. rows: int64 [k, 2], start in
    `values`, negative for a document that began earlier, and length, or NO_TEXT. complete: number of documents that end
    in this block; at most one more does not. groups, keys: per document, the values of the fields that were asked for.
    """

    first: int
    values: npt.NDArray[Any]
    rows: Numbers
    complete: int
    groups: Sequence[str | None] | None = None
    keys: Sequence[str | None] | None = None


class Documents(Protocol):
    """A corpus. unit: "tokens" or "bytes", of the lengths of documents."""

    unit: str

    def blocks(self, progress: Progress | None = None) -> Iterator[Block]:
        """Yield all documents, in order; the memory of a block is reused for the next one."""
        ...

    def read(self, numbers: Iterable[int], limit: int) -> dict[int, npt.NDArray[Any]]:
        """Return the first `limit` tokens, or bytes, of some documents, without those that have no text."""
        ...

    def files(self) -> list[tuple[str, int, int]]:
        """Return (path, documents, tokens or bytes) of each file, after the last block was read."""
        ...


class TokenDocuments:
    """The documents of open token files, one after the other; raises ValueError if their boundaries are unknown."""

    unit = "tokens"

    def __init__(self, files: Sequence[TokenFile]) -> None:
        for tokens in files:
            tokens.document_ends() if tokens.n_documents is None else None  # raises the error that names the remedy
        self._files, self._corpus = files, TokenCorpus.of(files)
        assert self._corpus.lengths is not None
        self.lengths = self._corpus.lengths
        self._ends = np.cumsum(self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def blocks(self, progress: Progress | None = None) -> Iterator[Block]:
        """Yield all documents, in order; the memory of a block is reused for the next one."""
        at = done = 0
        for values in self._corpus.blocks():
            end = at + len(values)
            stop = int(np.searchsorted(self._ends, end, "right"))
            last = stop + (stop < len(self) and int(self._ends[stop] - self.lengths[stop]) < end)
            lengths = self.lengths[done:last]
            rows = np.stack([self._ends[done:last] - lengths - at, lengths], axis=1)
            yield Block(done, values if values.dtype != np.uint64 else values.astype(np.int64), rows, stop - done)
            at, done = end, stop
            if progress is not None:
                progress(at, self._corpus.n_tokens)
        if done < len(self):  # documents without tokens
            rows = np.zeros((len(self) - done, 2), np.int64)
            yield Block(done, np.empty(0, np.uint8), rows, len(rows))

    def files(self) -> list[tuple[str, int, int]]:
        """Return (path, documents, tokens) of each file; a document belongs to the file in which it begins."""
        names = list(dict.fromkeys(segment.path for tokens in self._files for segment in tokens.segments()))
        if len(names) < 2 or self._corpus.n_tokens < sum(tokens.n_tokens for tokens in self._files):
            return [(self._files[0].path, len(self), self._corpus.n_tokens)] if len(self._files) == 1 else []
        n_tokens = dict.fromkeys(names, 0)
        for tokens in self._files:
            for segment in tokens.segments():
                n_tokens[segment.path] += segment.length
        borders = np.cumsum([0, *n_tokens.values()])
        firsts = np.searchsorted(self._ends - self.lengths, borders)
        sums = np.append(0, self._ends)[firsts]
        return [(name, int(firsts[k + 1] - firsts[k]), int(sums[k + 1] - sums[k])) for k, name in enumerate(n_tokens)]

    def read(self, numbers: Iterable[int], limit: int) -> dict[int, npt.NDArray[Any]]:
        """Return the first `limit` tokens of some documents."""
        found = {}
        for number in numbers:
            start = int(self._ends[number] - self.lengths[number])
            parts = [block.copy() for block in self._corpus.blocks(start, min(int(self._ends[number]), start + limit))]
            found[number] = np.concatenate(parts) if parts else np.empty(0, np.int64)
        return found


class Hashed(NamedTuple):
    """Documents with their hashes, uint64 [k], and lengths, int64 [k]; first: the number of the first one."""

    first: int
    hashes: Hashes
    lengths: Numbers
    block: Block


def hash_blocks(documents: Documents, progress: Progress | None = None) -> Iterator[Hashed]:
    """Yield all documents with 64-bit hashes of their contents, which are the same in every format and dtype.

    A row without a text has the hash 0.
    """
    carried = np.zeros(1, np.uint64)  # of a document that the last block did not end
    for block in documents.blocks(progress):
        sums = np.zeros(len(block.rows), np.uint64)
        kernels.add_hashes(block.values, block.rows, sums)
        sums[:1] += carried[: len(sums)]
        carried = sums[block.complete :].copy() if block.complete < len(sums) else np.zeros(1, np.uint64)
        lengths = np.ascontiguousarray(block.rows[: block.complete, 1])
        hashes = _finished(sums[: block.complete], lengths)
        hashes[lengths == NO_TEXT] = 0
        yield Hashed(block.first, hashes, lengths, block)


def _finished(sums: Hashes, lengths: Numbers) -> Hashes:
    """Return the hashes of whole documents, which also depend on the length."""
    return mix(sums ^ mix(~lengths.astype(np.uint64)))


def hash_names(names: Sequence[str | None]) -> Hashes:
    """Return the 64-bit hashes of short texts; 0 for None."""
    encoded = [b"" if name is None else name.encode(errors="surrogatepass") for name in names]
    lengths = np.array([len(one) for one in encoded], np.int64)
    sums = np.zeros(len(encoded), np.uint64)
    starts = np.cumsum(lengths) - lengths
    kernels.add_hashes(np.frombuffer(b"".join(encoded), np.uint8), np.stack([starts, lengths], axis=1), sums)
    hashes = _finished(sums, lengths)
    hashes[[name is None for name in names]] = 0
    return hashes
