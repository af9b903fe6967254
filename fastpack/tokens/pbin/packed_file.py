"""Packed files `.pbin`: the tokens of documents back to back, then a pickled index of where each document is.

Read in all the generations that `pbin_layout` describes, written in today's.
"""

from __future__ import annotations

import os
from array import array
from types import TracebackType
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from fastpack.display import Described, facts
from fastpack.io import (
    AtomicFile,
    ByteArray,
    Bytes,
    ExistencePolicy,
    PathLike,
    TargetExists,
    bytes_behind,
    mapped,
    may_write,
    open_bytes,
    pickled_index,
)
from fastpack.item_numbers import item_number
from fastpack.tokens.flat.shards import Shard, stamp_of
from fastpack.tokens.pbin.layout import (
    HEADER,
    HEADER_BYTES,
    INDEX_BASES,
    TOKEN_SIZES,
    check_range,
    counts_from,
    find_layout,
    read_layout,
)
from fastpack.tokens.pbin.pbin_tokens import TokenRangeError as TokenRangeError
from fastpack.tokens.pbin.pbin_tokens import check_tokens, checked_lengths

RETURNED_DTYPE: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.int32), 4: np.dtype(np.int64)}

_BUFFER_BYTES = 1 << 19  # it stays in the second-level cache; 1 MiB is 15 % slower
_BLOCK_ROWS = 1 << 16  # of the index, made at a time
_FEW_ROWS = 1 << 14  # read one by one in a tenth of a second


class PackedFile(Described):
    """A packed file, mapped, or read in ranges where it is an object in a store; a sequence of documents.

    It also has the attributes of Modalities' EmbeddedStreamData: the sizes of the header's fields, `data_len` (as
    `data_length`), and `index_base`. (`data` differs: tokens here, bytes there.)

    `[i]` is a copy of document i's tokens, its end-of-document token included, as uint8, int32 or int64 where they take
    1, 2 or 4 bytes on disk; i may be negative. It pickles as its path.

    load_index: False makes `index_base` raise ValueError; `index` is decoded at first use in either case.
    generation: found out unless given; 0 must be given. check=False leaves out the check that every index entry lies in
    the data on whole tokens; a document for which that is not so then raises when it is asked for.
    Raises FileNotFoundError, and FormatError for a file that is truncated, unfinished or no packed file.

    path; token_size_in_bytes; data_offset and data_length: where the tokens are, in bytes.
    """

    _subject = "path"
    _shown = facts(
        tokens="n_tokens",
        documents=lambda self: len(self._index),
        token_size_in_bytes="token_size_in_bytes",
        closed=lambda self: self._file is None,
    )

    DATA_SECTION_LENGTH_IN_BYTES = 8
    TOKEN_SIZE_DESCRIPTOR_LENGTH_IN_BYTES = 4
    HEADER_SIZE_IN_BYTES = HEADER_BYTES

    def __init__(
        self, path: PathLike, load_index: bool = True, *, generation: int | None = None, check: bool = True
    ) -> None:
        self.path = os.fspath(path)
        self._asked, self._check, self._load_index = generation, check, load_index
        file = open_bytes(path)
        layout = find_layout(file, path) if generation is None else read_layout(file, path, generation)
        self.layout = layout
        self.token_size_in_bytes = layout.token_size
        self.data_offset, self.data_length = layout.data_offset, layout.data_length
        self._dtype = np.dtype(f"{'<' if layout.generation >= 4 else '>'}u{layout.token_size}")
        self._file: ByteArray | None = file
        self._data: npt.NDArray[Any] | None = None
        self._index: npt.NDArray[np.int64] | None = None

    @property
    def content(self) -> ByteArray:
        """The file's bytes, to be sliced; of an object in a store, only what is sliced is read."""
        if self._file is None:
            raise ValueError(f"{self.path} is closed")
        return self._file

    @property
    def file(self) -> npt.NDArray[np.uint8]:
        """The whole file as bytes [n_bytes], read-only; an object in a store is fetched whole for it."""
        self._file = file = mapped(self.content)
        return file

    @property
    def data(self) -> npt.NDArray[Any]:
        """The tokens [n_tokens] as on disk: unsigned, read-only, big-endian in generations 0 to 3; else as `file`."""
        if self._file is None or self._data is None:
            self._data = self.file[self.layout.data_offset : self.layout.index_offset].view(self._dtype)
        return self._data

    @property
    def n_tokens(self) -> int:
        return self.data_length // self.token_size_in_bytes

    @property
    def shard(self) -> Shard:
        """Where the tokens lie, as those of a flat shard."""
        version = getattr(self.content, "status", None)
        stamp = None if version is None else stamp_of(version)
        return Shard(self.path, self._dtype, self.n_tokens, self.data_offset, stamp=stamp)

    def tokens(self, start: int, end: int) -> npt.NDArray[Any]:
        """Tokens [start, end), 0 <= start <= end <= n_tokens, as `data` has them; of an object, no others are read."""
        size, offset = self.token_size_in_bytes, self.data_offset
        return self.content[offset + start * size : offset + end * size].view(self._dtype)

    @property
    def index(self) -> npt.NDArray[np.int64]:
        """int64[n_documents, 2]: offset and length of each document in bytes, from the start of the data. Read-only.

        Decoded and checked at first use. Raises FormatError, and ValueError for generation 0, which has none.
        """
        if self._index is None:
            self._index = self._read_index()
        return self._index

    @property
    def index_base(self) -> list[tuple[int, int]]:
        """`index` as a list of (offset, length), as Modalities' EmbeddedStreamData has it; ValueError without one."""
        if not self._load_index:
            raise ValueError("Index was not loaded. Set `load_index=True` during initialization.")
        return [(start, length) for start, length in self.index.tolist()]

    @property
    def data_len(self) -> int:
        """Bytes of the tokens: `data_length` under Modalities' name."""
        return self.data_length

    @property
    def generation(self) -> int:
        """0 to 5. Unless it was asked for, generations 4 and 5 are told apart by the index, decoded for it."""
        if self._asked is None and self.layout.generation == 5:
            self.index  # noqa: B018 (it sets the layout's generation)
        return self.layout.generation

    def _read_index(self) -> npt.NDArray[np.int64]:
        file, layout = self.content, self.layout
        if layout.generation == 0:
            raise ValueError(f"{self.path}: packed files of generation 0 have no index")
        rows = pickled_index.decode(file[layout.index_offset :], self.path, layout.index_offset)
        if self._asked is None and layout.generation == 5 and counts_from(rows, layout, INDEX_BASES[4]) is not None:
            layout = layout._replace(generation=4)
        bases = INDEX_BASES[layout.generation]
        base = counts_from(rows, layout, bases)
        rows[:, 0] -= bases[0] if base is None else base
        if self._check:
            check_range(rows, layout, self.path)
        rows.flags.writeable = False
        self.layout = layout
        return rows

    def first(self, n_rows: int) -> npt.NDArray[np.int64]:
        """The first rows of `index`, int64[at most n_rows, 2]; of a large file, without decoding the others."""
        layout = self.layout
        if self._index is not None or n_rows > _FEW_ROWS or layout.generation != 5:
            return self.index[:n_rows]
        pickled = bytes_behind(self.content, layout.index_offset)
        rows = pickled_index.decode_first(pickled, self.path, layout.index_offset, n_rows)
        if self._asked is None and len(rows) and int(rows[0, 0]) in INDEX_BASES[4]:  # the last row tells
            return self.index[:n_rows]
        if self._check:
            check_range(rows, layout, self.path)
        return rows

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: SupportsIndex) -> npt.NDArray[Any]:
        index, number = self.index, item_number(i)
        n_documents = len(index)
        if not -n_documents <= number < n_documents:
            raise IndexError(f"document {number} of {n_documents} in {self.path}")
        if not self._check:
            check_range(index[number % n_documents][None], self.layout, self.path)
        start, length = index[number].tolist()
        size = self.token_size_in_bytes
        return self.tokens(start // size, (start + length) // size).astype(RETURNED_DTYPE[size])

    def close(self) -> None:
        """Let the mapping go; it ends when no view of `data` is left."""
        self._file = self._index = self._data = None

    def __enter__(self) -> PackedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, self._load_index, self._asked, self._check)


def _reopen(path: PathLike, load_index: bool, generation: int | None, check: bool) -> PackedFile:
    return PackedFile(path, load_index, generation=generation, check=check)


class PackedWriter(Described):
    """Writes a packed file (generation 5), which takes its name complete or not at all.

    `close()` finishes it, `abort()` or an error in a with block leaves what was there. Memory does not grow with the
    tokens, and by 8 bytes a document. n_documents, n_tokens: appended so far.
    Raises ValueError for a token size not 1, 2 or 4, TargetExists as `files.may_write` says (also under "skip", since
    a writer cannot skip), JobError when another process is writing the same file.
    """

    _subject = "path"
    _shown = facts(
        documents="n_documents",
        tokens="n_tokens",
        token_size_in_bytes="token_size_in_bytes",
        closed=lambda self: self._output is None,
    )

    header_bytes = HEADER_BYTES

    def __init__(
        self, path: PathLike, token_size_in_bytes: int, *, file_existence_policy: ExistencePolicy = "error"
    ) -> None:
        if token_size_in_bytes not in TOKEN_SIZES:
            raise ValueError(f"token size {token_size_in_bytes!r}: tokens take 1, 2 or 4 bytes")
        if not may_write(path, file_existence_policy):
            raise TargetExists(f"{os.fspath(path)} exists and is to be kept: nothing to write")
        self.path = os.fspath(path)
        self.token_size_in_bytes = token_size_in_bytes
        self.n_tokens = 0
        self._lengths = array("q")  # of the documents, in tokens
        self._dtype = np.dtype(f"<u{token_size_in_bytes}")
        self._buffer = np.empty(_BUFFER_BYTES // token_size_in_bytes, self._dtype)
        self._filled = 0  # tokens in the buffer
        self._policy: ExistencePolicy = file_existence_policy
        self._output: AtomicFile | None = self._open(path)

    def _open(self, path: PathLike) -> AtomicFile:
        output = AtomicFile(path, policy=self._policy)
        output.write(bytes(self.header_bytes))
        return output

    @property
    def n_documents(self) -> int:
        return len(self._lengths)

    def reserve(self, n_tokens: int) -> None:
        """Have room for `n_tokens`, all of which will be appended, set aside on the disk; OSError where it is full."""
        if self._output is not None:
            self._output.reserve(n_tokens * self.token_size_in_bytes)

    def append(self, tokens: npt.ArrayLike) -> None:
        """Add one document: integers [n_tokens], its end-of-document token included.

        Raises TokenRangeError (a ValueError) for a token that does not fit, and adds nothing then.
        """
        flat = self._checked(tokens)
        self._put(flat)
        self._lengths.append(len(flat))

    def append_many(self, flat_tokens: npt.ArrayLike, lengths: npt.ArrayLike) -> None:
        """Add documents that lie back to back in integers [n_tokens]; lengths [n_documents] are in tokens.

        Raises TokenRangeError (a ValueError) for a token that does not fit, ValueError where the lengths are negative
        or do not sum to the tokens; nothing is added then.
        """
        n_each = checked_lengths(lengths, np.size(flat_tokens))
        flat = self._checked(flat_tokens)
        self._put(flat)
        self._lengths.frombytes(n_each.tobytes())

    def append_bytes(self, data: Bytes, lengths_in_tokens: npt.ArrayLike) -> None:
        """Add documents whose tokens are already little-endian unsigned integers of the token size.

        Raises ValueError as `append_many` does.
        """
        tokens = np.frombuffer(data, np.uint8)
        if len(tokens) % self.token_size_in_bytes:
            raise ValueError(f"{len(tokens)} bytes are no whole number of tokens of {self.token_size_in_bytes} bytes")
        self.append_many(tokens.view(self._dtype), lengths_in_tokens)

    def _checked(self, tokens: npt.ArrayLike) -> npt.NDArray[Any]:
        if self._output is None:
            raise ValueError(f"{self.path}: the writer is closed")
        flat = np.asarray(tokens)
        if flat.ndim != 1:
            raise ValueError(f"tokens of {flat.ndim} dimensions, expected one")
        if flat.size == 0:
            return np.empty(0, self._dtype)
        if flat.dtype.kind not in "iu":
            raise TypeError(f"tokens of dtype {flat.dtype}, expected integers")
        if flat.dtype != self._dtype:
            check_tokens(flat, self.token_size_in_bytes)
        return flat

    def _put(self, flat: npt.NDArray[Any]) -> None:
        assert self._output is not None
        try:
            if flat.dtype == self._dtype and flat.nbytes >= _BUFFER_BYTES:
                self._flush()
                self._output.write(np.ascontiguousarray(flat))
            else:
                self._copy(flat)
        except BaseException:
            self._fail()  # what the file holds is no longer known: close() must not make it a result
            raise
        self.n_tokens += len(flat)

    def _copy(self, flat: npt.NDArray[Any]) -> None:
        done = 0
        while done < len(flat):
            if self._filled == len(self._buffer):
                self._flush()
            n_tokens = min(len(flat) - done, len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + n_tokens] = flat[done : done + n_tokens]
            self._filled += n_tokens
            done += n_tokens

    def _flush(self) -> None:
        assert self._output is not None
        self._output.write(self._buffer[: self._filled])
        self._filled = 0

    def close(self) -> None:
        """Write the index, set the data length and give the file its name. Harmless when closed or aborted already."""
        if self._output is None:
            return
        try:
            self._flush()
            self._finish(self._output)
            self._output.commit()
        except BaseException:
            self._fail()
            raise
        self._output = None

    def _finish(self, output: AtomicFile) -> None:
        """Write what follows the tokens, and the header before them."""
        self._write_index(output)
        output.patch(0, HEADER[5].pack(self.n_tokens * self.token_size_in_bytes, self.token_size_in_bytes))

    def _write_index(self, output: AtomicFile) -> None:
        encoder = pickled_index.IndexEncoder(output.write)
        start = 0
        for first in range(0, len(self._lengths), _BLOCK_ROWS):
            lengths = np.array(self._lengths[first : first + _BLOCK_ROWS], np.int64) * self.token_size_in_bytes
            ends = start + np.cumsum(lengths)
            encoder.append(np.stack([ends - lengths, lengths], axis=1))
            start = int(ends[-1])
        encoder.close()

    def _fail(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Remove what was written; a file of this name stays as it was. Harmless when closed already."""
        if self._output is not None:
            self._output.abort()
            self._output = None

    def __enter__(self) -> PackedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
