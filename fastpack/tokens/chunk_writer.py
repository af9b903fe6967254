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
from fastpack.errors import FormatError
from fastpack.io import AtomicFile, Bytes, ExistencePolicy, PathLike, drop_pages, map_bytes, open_reader
from fastpack.io.atomic_folder import INDEX, AtomicFolder
from fastpack.tokens.mask_bits import MaskBits
from fastpack.tokens.token_file import Piece, Rows, Run, check_mask
from fastpack.tokens.token_writer import check_range, checked_lengths
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint, write_sides
from fastpack.tokens.writer_context import CommitOnSuccess

CHUNK_BYTES = 1 << 26  # of a chunk, by default, as both systems recommend
MAX_CHUNK_BYTES = (1 << 32) - 1  # offsets are uint32


class ChunkedTokenWriter(CommitOnSuccess, Described):
    """Base of writers of folders of chunks; each chunk consists of whole documents.

    Documents are gathered in memory until a chunk is full, except where one call has all documents of a chunk. A
    document that is larger than a chunk gets a chunk of its own. A subclass writes a chunk (`_write_chunk`) and the
    index (`_index`), and gives the sizes that chunks and documents take in their files.
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
        self.chunk_tokens: int | None = None  # the largest number of tokens of a chunk
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

    def _write_chunk(self, output: AtomicFile, lengths: npt.NDArray[np.int64], runs: Iterable[Run]) -> dict[str, Any]:
        """Write a chunk with these tokens and return its entry of the index."""
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
        self._append(blocks, lengths, gather=True)

    def append_copies(self, runs: Iterable[Run], lengths: npt.NDArray[np.int64]) -> None:
        """As `append_blocks`, also from pieces of local files that contain tokens as the chunks store them.

        The last chunk ends with these documents.
        """
        self._append(runs, lengths, gather=False)
        self._flush()

    def _append(self, runs: Iterable[Run], lengths: npt.NDArray[np.int64], *, gather: bool) -> None:
        if self._folder is None:
            raise ValueError(f"{self.path}: the writer is closed")
        try:
            self._put_documents(TokenRuns(runs, self._dtype), lengths, gather)
        except BaseException:
            self.abort()
            raise
        self.n_documents += len(lengths)
        self.n_tokens += int(lengths.sum())

    def _put_documents(self, tokens: TokenRuns, lengths: npt.NDArray[np.int64], gather: bool) -> None:
        sizes = self._document_bytes(lengths)
        self._check_sizes(lengths, sizes)
        size_ends, token_ends = np.cumsum(sizes), np.cumsum(lengths)
        pending = self._overhead() + int(self._document_bytes(np.frombuffer(self._lengths, np.int64)).sum())
        first = 0
        while first < len(lengths):
            before, n_before = int(size_ends[first] - sizes[first]), int(token_ends[first] - lengths[first])
            end = int(np.searchsorted(size_ends, before + self._chunk_bytes - pending, "right"))
            if self.chunk_tokens is not None:
                limit = n_before + self.chunk_tokens - self._filled
                end = min(end, int(np.searchsorted(token_ends, limit, "right")))
            is_long = end <= first and not self._lengths
            end = max(end, first + is_long)
            n_tokens = int(token_ends[end - 1]) - n_before if end > first else 0
            if is_long or not (self._lengths or (gather and end == len(lengths))):
                self._put_chunk(lengths[first:end], tokens.take(n_tokens))
            else:
                tokens.read_into(self._pending[self._filled : self._filled + n_tokens])
                self._filled += n_tokens
                self._lengths.frombytes(lengths[first:end].tobytes())
                pending += int(size_ends[end - 1]) - before if end > first else 0
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

    def _put_chunk(self, lengths: npt.NDArray[np.int64], runs: Iterable[Run]) -> None:
        assert self._folder is not None
        with self._folder.create(self._chunk_name(len(self._chunks))) as output:
            output.reserve(self._overhead() + int(self._document_bytes(lengths).sum()))
            self._chunks.append(self._write_chunk(output, lengths, runs))

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


class TokenRuns:
    """Tokens that arrive in runs and are taken in other pieces."""

    def __init__(self, runs: Iterable[Run], dtype: np.dtype[Any]) -> None:
        self._runs, self._dtype = iter(runs), dtype
        self._rest: Run = np.empty(0, dtype)
        self._mapped: tuple[str, npt.NDArray[np.uint8]] = "", np.empty(0, np.uint8)
        self._dropped = 0  # bytes of the map whose pages were released

    def take(self, n_tokens: int) -> Iterator[Run]:
        """Yield the next `n_tokens` tokens, encoded as they are written; ValueError if there are fewer."""
        while n_tokens:
            if not self.at_hand():
                raise ValueError(f"{n_tokens} tokens fewer than the lengths say")
            taken = min(n_tokens, _length(self._rest, self._dtype))
            n_tokens -= taken
            if isinstance(self._rest, tuple):
                path, offset, n_bytes = self._rest
                n_taken = taken * self._dtype.itemsize
                piece: Run = path, offset, n_taken
                self._rest = path, offset + n_taken, n_bytes - n_taken
            else:
                piece, self._rest = self._rest[:taken], self._rest[taken:]
            yield piece

    def at_hand(self) -> int:
        """Return how many tokens `bytes_of` can return; 0 only at the end."""
        while not _length(self._rest, self._dtype):
            run = next(self._runs, None)
            if run is None:
                return 0
            if not isinstance(run, tuple):
                if run.dtype != self._dtype:
                    check_range(run, self._dtype)
                run = run.astype(self._dtype, copy=False)
            self._rest = run
        return _length(self._rest, self._dtype)

    def bytes_of(self, n_tokens: int) -> npt.NDArray[np.uint8]:
        """Return the next tokens as bytes, of the block or of a map of the file that contains them."""
        (run,) = self.take(n_tokens)
        if not isinstance(run, tuple):
            return np.ascontiguousarray(run).view(np.uint8)
        path, offset, n_bytes = run
        if self._mapped[0] != path:
            self._mapped, self._dropped = (path, map_bytes(path)), offset
        data = self._mapped[1]
        check_copied(run, min(n_bytes, len(data) - offset))
        drop_pages(data, self._dropped, offset)
        self._dropped = offset
        return data[offset : offset + n_bytes]

    def read_into(self, out: npt.NDArray[Any]) -> None:
        """Fill `out` with the next tokens."""
        done = 0
        for run in self.take(len(out)):
            piece = out[done : done + _length(run, self._dtype)]
            if isinstance(run, tuple):
                path, offset, _ = run
                check_copied(run, open_reader(path).read_into(piece.view(np.uint8), offset))
            else:
                piece[:] = run
            done += len(piece)

    def check_end(self) -> None:
        """Raise ValueError if there are more tokens."""
        n_more = _length(self._rest, self._dtype) + sum(_length(run, self._dtype) for run in self._runs)
        if n_more:
            raise ValueError(f"{n_more} tokens more than the lengths say")


def _length(run: Run, dtype: np.dtype[Any]) -> int:
    return run[2] // dtype.itemsize if isinstance(run, tuple) else len(run)


def put_run(output: AtomicFile, run: Run) -> None:
    """Append tokens to a file."""
    if isinstance(run, tuple):
        check_copied(run, output.copy_from(*run))
    else:
        output.write(np.ascontiguousarray(run))


def check_copied(piece: Piece, n_copied: int) -> None:
    """Raise FormatError if a file ended before a piece of it did."""
    path, offset, n_bytes = piece
    if n_copied < n_bytes:
        found = f"the end of the file after {offset + n_copied} bytes"
        raise FormatError(path, offset + n_copied, found, f"tokens up to byte {offset + n_bytes}")


def predicted_chunks(sizes: Iterable[npt.NDArray[np.int64]], overhead: int) -> int:
    """Return the size of all chunks in bytes, for documents of these sizes, as `append_blocks` divides them."""
    ends = np.cumsum(np.concatenate([np.empty(0, np.int64), *sizes]))
    first = before = n_chunks = 0
    while first < len(ends):
        end = int(np.searchsorted(ends, before + CHUNK_BYTES - overhead, "right"))
        first = max(first + 1, end)
        before, n_chunks = int(ends[first - 1]), n_chunks + 1
    return before + n_chunks * overhead
