"""`PackedMemMapDatasetBase`: the documents of a packed file (as Modalities), and what all datasets of one share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar, overload

import numpy as np
import numpy.typing as npt

from fastpack.datasets.base import Dataset, Indices
from fastpack.datasets.file_spans import NumberedFiles, RowSpans
from fastpack.datasets.recorded_tokenizers import tokenizer_of_file
from fastpack.datasets.token_streams import TokenStream, is_packed
from fastpack.datasets.window_groups import Tokens
from fastpack.display import facts
from fastpack.errors import FormatError
from fastpack.io import PathLike
from fastpack.item_numbers import item_numbers, position_of
from fastpack.tokens.common_fingerprint import Recorded
from fastpack.tokens.formats import open_tokens
from fastpack.tokens.manifest.manifest_file import is_manifest
from fastpack.tokens.manifest.manifest_shards import ManifestShards
from fastpack.tokens.pbin.packed_file import RETURNED_DTYPE, PackedFile
from fastpack.tokens.token_file import TokenFile


class PackedDataset(Dataset):
    """Samples given by byte offset and byte length in the tokens of one packed file."""

    _subject = "raw_data_path"
    _shown = facts(samples="_total", block_size="block_size", sample_key="sample_key", closed="_closed")

    _not_pickled: ClassVar[tuple[str, ...]] = ("_file",)
    _files: ManifestShards | None = None  # of a manifest, instead of `_file`
    _stream: TokenStream | None = None  # of a file in another format, instead of `_file`

    def __init__(self, raw_data_path: PathLike, sample_key: str, load_index: bool) -> None:
        self.raw_data_path = raw_data_path
        self.sample_key = sample_key
        self._load_index = load_index
        if is_manifest(raw_data_path):
            raise ValueError(f"{raw_data_path}: a manifest of packed files opens as PackedMemMapDatasetContinuous")
        if not is_packed(raw_data_path):
            hint = "open other formats as PackedMemMapDatasetContinuous, or convert them with `fastpack convert`"
            raise ValueError(f"{raw_data_path}: {type(self).__name__} reads packed files (.pbin): {hint}")
        self._file = PackedFile(raw_data_path)
        self._shard = self._file.segment
        if load_index:
            _ = self._file.index  # decoded and checked now, so that a damaged file fails here and not later in training

    @property
    def token_size_in_bytes(self) -> int:
        """The bytes of a token on disk: 1, 2 or 4."""
        return self._file.token_size_in_bytes

    @property
    def index_base(self) -> npt.NDArray[np.int64]:
        """The documents as int64 [n, 2], byte offset and byte length in the data; ValueError with load_index=False."""
        if not self._load_index:
            raise ValueError("Index was not loaded. Set `load_index=True` during initialization.")
        return self._file.index

    def _span(self, index: int) -> tuple[int, int]:
        """Return byte offset and byte length of sample `index`, which is in range."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> dict[str, Tokens]: ...
    @overload
    def __getitem__(self, index: slice) -> dict[str, list[Tokens]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Tokens] | dict[str, list[Tokens]]:
        """Return {sample_key: tokens}; for a slice of step 1, {sample_key: list of tokens}.

        Negative indices count from the end. Raises IndexError.
        """
        self._check_open()
        self._note_masks()
        if isinstance(index, slice):
            return {self.sample_key: self._read(range(len(self))[_step_one(index)])}
        position = position_of(index, len(self))
        return {self.sample_key: self._read(range(position, position + 1))[0]}

    def _note_masks(self) -> None:
        """Warn of a loss mask that samples do not show."""

    def _read(self, samples: range) -> list[Tokens]:
        """Return copies of these samples; views of one copy where they are contiguous in the file."""
        if not samples:
            return []
        size = self.token_size_in_bytes
        spans = [(offset // size, length // size) for offset, length in map(self._span, samples)]
        first, end = spans[0][0], sum(spans[-1])
        contiguous = end - first <= sum(length for _, length in spans) and all(
            first <= offset and offset + length <= end for offset, length in spans
        )
        if contiguous:
            tokens = self._copy(first, end - first)
            return [tokens[offset - first : offset - first + length] for offset, length in spans]
        return [self._copy(offset, length) for offset, length in spans]

    def _copy(self, start: int, n_tokens: int) -> Tokens:
        if start + n_tokens > self._file.n_tokens:
            raise ValueError(f"a sample is {n_tokens} tokens from token {start} of {self._file.n_tokens}")
        tokens = self._file.tokens(start, start + n_tokens)
        return tokens.astype(RETURNED_DTYPE[self.token_size_in_bytes])

    def _recorded_tokenizer(self) -> Recorded | None:
        if self._recorded is None and self._files is None:
            described = self._described_files()
            self._recorded = tokenizer_of_file(described[0]) if len(described) == 1 else None
        return self._recorded

    def _described_files(self) -> Sequence[str]:
        return [os.fspath(self.raw_data_path)] if self._stream is None else self._stream.described_files()

    def close(self) -> None:
        super().close()
        if self._stream is not None:
            self._stream.close()
        elif self._files is None:
            self._file.close()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self._files is None and self._stream is None:
            self._file = PackedFile(self.raw_data_path)
            if self._file.segment != self._shard:
                raise FormatError(self.raw_data_path, 0, "another file of that name", "the one the dataset was made of")
        self._attach()


class PackedMemMapDatasetBase(NumberedFiles, PackedDataset):
    """Read the documents of a packed file (as Modalities).

    A sample is {sample_key: tokens}, the EOD token included, as uint8, int32 or int64 for tokens of 1, 2 or 4 bytes on
    disk. Indices are integers, negative ones included, or slices of step 1.

    Parameters
    ----------
    raw_data_path
        The packed file.
    sample_key
        The key of the tokens in a sample.
    load_index
        Whether to load the document index; without it, access raises ValueError.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    FormatError
        If the file is damaged.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack
    >>> path = tempfile.mkdtemp() + "/corpus.pbin"
    >>> with fastpack.PackedWriter(path, token_size_in_bytes=2) as writer:
    ...     writer.append_many(np.array([5, 6, 0, 7, 0]), lengths=[3, 2])
    >>> dataset = fastpack.PackedMemMapDatasetBase(path, "input_ids")
    >>> dataset[-1]
    {'input_ids': array([7, 0], dtype=int32)}
    >>> [tokens.tolist() for tokens in dataset[0:2]["input_ids"]]
    [[5, 6, 0], [7, 0]]
    """

    def __init__(self, raw_data_path: PathLike, sample_key: str, load_index: bool = True) -> None:
        super().__init__(raw_data_path, sample_key, load_index)
        if load_index:
            self._total = len(self._file.index)

    def __len__(self) -> int:
        return len(self.index_base)

    def _span(self, index: int) -> tuple[int, int]:
        offset, length = self.index_base[index].tolist()
        return offset, length

    def row_spans(self, indices: Indices) -> RowSpans:
        """Return where documents lie in the file.

        Parameters
        ----------
        indices
            Numbers of documents; negative ones count from the end.

        Returns
        -------
        RowSpans
            The token range of each document.

        Raises
        ------
        IndexError
            If a number is out of range.
        """
        documents = np.array([position_of(index, len(self)) for index in item_numbers(indices).tolist()], np.int64)
        starts, lengths = (self.index_base[documents] // self.token_size_in_bytes).T
        zeros = np.zeros_like(documents)
        return RowSpans(np.arange(len(documents)), zeros, zeros, zeros, starts, starts + lengths, documents)

    def _token_files(self) -> Sequence[str]:
        return [os.fspath(self.raw_data_path)]

    def _open_file(self, number: int) -> TokenFile:
        del number
        return open_tokens(self.raw_data_path, format="pbin")

    def _identity(self) -> bytes:
        return repr((self._shard.dtype.str, self._shard.length)).encode()

    def batch(self, indices: Indices) -> dict[str, list[Tokens]]:
        """Return several documents.

        Parameters
        ----------
        indices
            Numbers of documents; negative ones count from the end.

        Returns
        -------
        dict
            {sample_key: list of documents}; a document is an array of its tokens.

        Raises
        ------
        IndexError
            If a number is out of range.
        """
        return {self.sample_key: [self[index][self.sample_key] for index in item_numbers(indices).tolist()]}


def _step_one(index: slice) -> slice:
    if index.step not in (None, 1):
        raise ValueError("Slicing with step != 1 is not supported.")
    return index
