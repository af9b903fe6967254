"""Writing folders of chunks with an index (litdata, MDS): the part that is the same for both."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.display import Described, facts
from fastpack.io import AtomicFile, Bytes, ExistencePolicy, PathLike
from fastpack.io.atomic_folder import INDEX, AtomicFolder
from fastpack.tokens.mask_bits import MaskBits
from fastpack.tokens.token_file import Rows, check_mask
from fastpack.tokens.token_writer import check_range, checked_lengths
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint, write_sides
from fastpack.tokens.writer_context import CommitOnSuccess

CHUNK_BYTES = 1 << 26  # of a chunk, by default, as both systems recommend
MAX_CHUNK_BYTES = (1 << 32) - 1  # offsets are uint32


class ChunkedTokenWriter(CommitOnSuccess, Described):
    """Base of writers of folders of chunks; each chunk consists of whole documents.

    Documents are gathered in memory until a chunk is full. A document that is larger than a chunk gets a chunk of its
    own, and is not gathered. A subclass writes a chunk (`_write_chunk`) and the index (`_index`), and gives the sizes
    that chunks and documents take in their files.
    """

    _subject = "path"
    _shown = facts(documents="n_documents", tokens="n_tokens", closed=lambda self: self._folder is None)

    def __init__(
        self,
        path: PathLike,
        dtype: np.dtype[Any],
        *,
        chunk_bytes: int = CHUNK_BYTES,
        if_exists: ExistencePolicy = "error",
    ) -> None:
        if not 0 < chunk_bytes <= MAX_CHUNK_BYTES:
            raise ValueError(f"chunks of {chunk_bytes} bytes: expected 1 to {MAX_CHUNK_BYTES}, as offsets are uint32")
        self.path = os.fspath(path)
        self.n_tokens = 0
        self.n_documents = 0
        self.fingerprint: TokenizerFingerprint | None = None
        self.mask: MaskBits | None = None
        self._dtype, self._chunk_bytes = np.dtype(dtype.newbyteorder("<").str), chunk_bytes
        self._folder: AtomicFolder | None = AtomicFolder(path, policy=if_exists)
        self._chunks: list[dict[str, Any]] = []
        self._pending = np.empty(chunk_bytes // dtype.itemsize + 1, self._dtype)
        self._filled = 0  # tokens in `_pending`
        self._lengths = array("q")  # of the documents in `_pending`

    def _document_bytes(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the size of documents in a chunk, with what the size of the chunk counts for each of them."""
        raise NotImplementedError

    def _overhead(self) -> int:
        """Return the size of a chunk without documents."""
        raise NotImplementedError

    def _write_chunk(
        self, output: AtomicFile, lengths: npt.NDArray[np.int64], pieces: Iterable[npt.NDArray[Any]]
    ) -> dict[str, Any]:
        """Write a chunk and return its entry of the index.

        `pieces` are the tokens: one array, or several for a single document.
        """
        raise NotImplementedError

    def _chunk_name(self, number: int) -> str:
        raise NotImplementedError

    def _index(self) -> dict[str, Any]:
        raise NotImplementedError

    def reserve(self, n_tokens: int) -> None:
        """Do nothing: disk space is allocated by chunk."""

    def append_many(self, flat_tokens: npt.ArrayLike, lengths: npt.ArrayLike) -> None:
        """Append documents, given as concatenated tokens and their lengths in tokens."""
        flat = np.asarray(flat_tokens)
        n_each = checked_lengths(lengths, len(flat))
        if flat.size == 0:
            flat = np.empty(0, self._dtype)
        check_range(flat, self._dtype)
        self.append_blocks([flat], n_each)

    def append_bytes(self, data: Bytes, lengths_in_tokens: npt.ArrayLike) -> None:
        """Append documents whose tokens are already encoded as the file stores them."""
        self.append_many(np.frombuffer(data, np.uint8).view(self._dtype), lengths_in_tokens)

    def append_tokens(self, flat_tokens: npt.ArrayLike) -> None:
        """Raise ValueError: a chunk begins with the lengths of its documents."""
        del flat_tokens
        raise ValueError(f"{self.path}: tokens cannot be written before the lengths of their documents")

    def append_documents(self, blocks: Iterable[Rows]) -> None:
        """Raise ValueError, as `append_tokens`."""
        del blocks
        raise ValueError(f"{self.path}: tokens cannot be written before the lengths of their documents")

    def append_blocks(self, blocks: Iterable[npt.NDArray[Any]], lengths: npt.NDArray[np.int64]) -> None:
        """Append documents of these lengths, int64 [n], whose tokens arrive in blocks, which may divide documents."""
        if self._folder is None:
            raise ValueError(f"{self.path}: the writer is closed")
        try:
            self._append(_Tokens(blocks, self._dtype), lengths)
        except BaseException:
            self.abort()
            raise
        self.n_documents += len(lengths)
        self.n_tokens += int(lengths.sum())

    def _append(self, tokens: _Tokens, lengths: npt.NDArray[np.int64]) -> None:
        sizes = self._document_bytes(lengths)
        self._check_sizes(lengths, sizes)
        size_ends, token_ends = np.cumsum(sizes), np.cumsum(lengths)
        first = 0
        pending = self._overhead() + int(self._document_bytes(np.frombuffer(self._lengths, np.int64)).sum())
        while first < len(lengths):
            before = int(size_ends[first] - sizes[first])
            end = int(np.searchsorted(size_ends, before + self._chunk_bytes - pending, "right"))
            if end > first:
                n_tokens = int(token_ends[end - 1] - token_ends[first] + lengths[first])
                tokens.read_into(self._pending[self._filled : self._filled + n_tokens])
                self._filled += n_tokens
                self._lengths.frombytes(lengths[first:end].tobytes())
                pending += int(size_ends[end - 1]) - before
            elif not self._lengths:
                end = first + 1
                self._put_chunk(lengths[first:end], tokens.pieces(int(lengths[first])))
            if end < len(lengths):
                self._flush()
                pending = self._overhead()
            first = end
        tokens.check_end()

    def _check_sizes(self, lengths: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> None:
        if len(sizes) and int(sizes.max()) + self._overhead() > MAX_CHUNK_BYTES:
            number = int(sizes.argmax())
            raise ValueError(
                f"document {self.n_documents + number} has {lengths[number]} tokens: a chunk must be smaller than 4 GiB"
            )

    def _flush(self) -> None:
        if self._lengths:
            lengths = np.frombuffer(self._lengths, np.int64)
            self._put_chunk(lengths, [self._pending[: self._filled]])
            self._filled, self._lengths = 0, array("q")

    def _put_chunk(self, lengths: npt.NDArray[np.int64], pieces: Iterable[npt.NDArray[Any]]) -> None:
        assert self._folder is not None
        with self._folder.create(self._chunk_name(len(self._chunks))) as output:
            self._chunks.append(self._write_chunk(output, lengths, pieces))

    def close(self) -> None:
        """Finish the folder and give it its name. Does nothing if the writer is closed or aborted."""
        if self._folder is None:
            return
        try:
            self._flush()
            check_mask(self)
            with self._folder.create(INDEX) as output:
                output.write(json.dumps(self._index(), sort_keys=True).encode())
                write_sides(output, self.fingerprint, self.mask)
            self._folder.commit()
        except BaseException:
            self.abort()
            raise
        self._folder = None

    def abort(self) -> None:
        """Remove what was written and keep an existing folder of this name. Does nothing if the writer is closed."""
        if self._folder is not None:
            self._folder.abort()
            self._folder = None


class _Tokens:
    """Tokens that arrive in blocks and are taken in other pieces."""

    def __init__(self, blocks: Iterable[npt.NDArray[Any]], dtype: np.dtype[Any]) -> None:
        self._blocks, self._dtype = iter(blocks), dtype
        self._rest = np.empty(0, dtype)

    def pieces(self, n_tokens: int) -> Iterator[npt.NDArray[Any]]:
        """Yield the next `n_tokens` tokens; ValueError if there are fewer."""
        while n_tokens:
            if len(self._rest) == 0:
                block = next(self._blocks, None)
                if block is None:
                    raise ValueError(f"{n_tokens} tokens fewer than the lengths say")
                if block.dtype != self._dtype:
                    check_range(block, self._dtype)
                self._rest = block.astype(self._dtype, copy=False)
                continue
            piece, self._rest = self._rest[:n_tokens], self._rest[n_tokens:]
            n_tokens -= len(piece)
            yield piece

    def read_into(self, out: npt.NDArray[Any]) -> None:
        """Fill `out` with the next tokens."""
        done = 0
        for piece in self.pieces(len(out)):
            out[done : done + len(piece)] = piece
            done += len(piece)

    def check_end(self) -> None:
        """Raise ValueError if there are more tokens."""
        n_more = len(self._rest) + sum(len(block) for block in self._blocks)
        if n_more:
            raise ValueError(f"{n_more} tokens more than the lengths say")


def predicted_chunks(sizes: Iterable[npt.NDArray[np.int64]], overhead: int) -> int:
    """Return the size of all chunks in bytes, for documents of these sizes, as `append_blocks` divides them."""
    ends = np.cumsum(np.concatenate([np.empty(0, np.int64), *sizes]))
    first = before = n_chunks = 0
    while first < len(ends):
        end = int(np.searchsorted(ends, before + CHUNK_BYTES - overhead, "right"))
        first = max(first + 1, end)
        before, n_chunks = int(ends[first - 1]), n_chunks + 1
    return before + n_chunks * overhead
