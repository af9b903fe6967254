"""Reading packed files `.pbin` of all generations: the tokens of documents, then a pickled index of the documents."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from fastpack.display import Described, facts
from fastpack.io import ByteArray, PathLike, bytes_behind, drop_pages, mapped, open_bytes, pickled_index, stat_of
from fastpack.item_numbers import item_number
from fastpack.tokens.loss_mask import mask_of_files
from fastpack.tokens.pbin.layout import HEADER_BYTES, INDEX_BASES, check_range, find_layout, read_layout, settle
from fastpack.tokens.token_segment import TokenSegment, stamp_of

RETURNED_DTYPE: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.int32), 4: np.dtype(np.int64)}

_FEW_ROWS = 1 << 14  # decoded one by one in 0.1 s


class PackedFile(Described):
    """Open a packed file `.pbin` as a sequence of documents.

    The file is mapped; of an object in a store, only the ranges that are used are read. `file[i]` is a copy of the
    tokens of document i, its end-of-document token included, as uint8, int32 or int64 for tokens of 1, 2 or 4 bytes;
    `i` may be negative. A PackedFile pickles as its path.

    Parameters
    ----------
    path
        The packed file.
    load_index
        If False, `index_base` raises ValueError. `index` is decoded at first use in either case.
    generation
        The file generation, 0 to 5 (see `fastpack.tokens.pbin.layout`). By default it is detected; generation 0
        cannot be detected.
    check
        Whether to check that every index entry lies within the data on whole tokens. Otherwise a document with a wrong
        entry raises when it is accessed.

    Attributes
    ----------
    path, token_size_in_bytes
        The file, and the size of its tokens: 1, 2 or 4 bytes.
    data_offset, data_length
        Start and size of the tokens, in bytes.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FormatError
        If the file is truncated, unfinished or not a packed file.

    Notes
    -----
    The class also has the attributes of Modalities' EmbeddedStreamData: the sizes of the header fields, `data_len` (as
    `data_length`) and `index_base`. `data` differs: it contains tokens here, and bytes in Modalities.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/corpus.pbin", 2) as writer:
    ...     writer.append_many([5, 6, 0, 7, 0], lengths=[3, 2])
    >>> with fastpack.PackedFile(f"{folder.name}/corpus.pbin") as file:
    ...     print(len(file), file.n_tokens, file[1])
    ...     print(file.index)
    2 5 [7 0]
    [[0 6]
     [6 4]]
    >>> folder.cleanup()
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
        """The bytes of the file, for slicing; of an object in a store, only the slices are read."""
        if self._file is None:
            raise ValueError(f"{self.path} is closed")
        return self._file

    @property
    def file(self) -> npt.NDArray[np.uint8]:
        """The whole file as uint8 [n_bytes], read-only; an object in a store is downloaded completely."""
        self._file = file = mapped(self.content)
        return file

    @property
    def data(self) -> npt.NDArray[Any]:
        """The tokens [n_tokens] as stored: unsigned, read-only, big-endian in generations 0 to 3.

        An object in a store is downloaded completely.
        """
        if self._file is None or self._data is None:
            self._data = self.file[self.layout.data_offset : self.layout.index_offset].view(self._dtype)
        return self._data

    @property
    def n_tokens(self) -> int:
        """The number of tokens."""
        return self.data_length // self.token_size_in_bytes

    @property
    def segment(self) -> TokenSegment:
        """The location of the tokens in the file."""
        version = getattr(self.content, "status", None)
        stamp = None if version is None else stamp_of(version)
        return TokenSegment(self.path, self._dtype, self.n_tokens, self.data_offset, stamp=stamp)

    def tokens(self, start: int, end: int) -> npt.NDArray[Any]:
        """Read tokens [start, end).

        Parameters
        ----------
        start, end
            First token, and end (exclusive): 0 <= start <= end <= n_tokens.

        Returns
        -------
        NDArray
            The tokens, with the dtype of `data`. Of an object in a store, no other tokens are read.
        """
        size, offset = self.token_size_in_bytes, self.data_offset
        return self.content[offset + start * size : offset + end * size].view(self._dtype)

    @property
    def loss_mask(self) -> npt.NDArray[np.bool_] | None:
        """Which tokens count in the loss: bool [n_tokens], a new array; None for a file without a mask.

        It is read from `<path>.mask`, which `pack_conversations` writes. Raises FormatError if it is damaged, or was
        written for other contents of the packed file.
        """
        mask = mask_of_files([self.path], [], self.n_tokens)
        return None if mask is None else mask.read(0, self.n_tokens)

    @property
    def index(self) -> npt.NDArray[np.int64]:
        """Offset and length of each document in bytes from the start of the tokens: int64 [n_documents, 2], read-only.

        It is decoded and checked at first use, which raises FormatError if it is damaged, and ValueError for
        generation 0, which has no index.
        """
        if self._index is None:
            self._index = self._read_index()
        return self._index

    @property
    def index_base(self) -> list[tuple[int, int]]:
        """`index` as a list of (offset, length) (as Modalities); raises ValueError if opened with load_index=False."""
        if not self._load_index:
            raise ValueError("Index was not loaded. Set `load_index=True` during initialization.")
        return [(start, length) for start, length in self.index.tolist()]

    @property
    def data_len(self) -> int:
        """The size of the tokens in bytes, `data_length`, under Modalities' name."""
        return self.data_length

    @property
    def generation(self) -> int:
        """The file generation, 0 to 5. Unless it was given, the index is decoded to tell generations 4 and 5 apart."""
        if self._asked is None and self.layout.generation == 5:
            self.index  # noqa: B018 (it sets the layout's generation)
        return self.layout.generation

    def _read_index(self) -> npt.NDArray[np.int64]:
        file, layout = self.content, self.layout
        if layout.generation == 0:
            raise ValueError(f"{self.path}: packed files of generation 0 have no index")
        rows = pickled_index.decode(file[layout.index_offset :], self.path, layout.index_offset)
        drop_pages(file, layout.index_offset, len(file))
        layout = settle(rows, layout, is_certain=self._asked is not None)
        if self._check:
            check_range(rows, layout, self.path)
        rows.flags.writeable = False
        self.layout = layout
        return rows

    def first(self, n_rows: int) -> npt.NDArray[np.int64]:
        """Read the first rows of `index`, without decoding the others if the file is large.

        Parameters
        ----------
        n_rows
            Number of rows.

        Returns
        -------
        NDArray
            int64 [k, 2], with k the smaller of `n_rows` and the number of documents.
        """
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
        """Release the mapping; it is unmapped when no view of `data` is left."""
        self._file = self._index = self._data = None

    def __enter__(self) -> PackedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(PackedFile, generation=self._asked, check=self._check), (self.path, self._load_index)


def open_packed_segment(path: PathLike) -> tuple[TokenSegment, PackedFile]:
    """Open a packed file; return it and the location of its tokens, with a stamp that detects changes."""
    stamp = stamp_of(stat_of(path))
    file = PackedFile(path)
    segment = file.segment
    return segment if segment.stamp else replace(segment, stamp=stamp), file
