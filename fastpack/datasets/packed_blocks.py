"""Datasets over packed files: documents, and blocks of the continuous token stream (as Modalities)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.packed_documents import PackedDataset
from fastpack.datasets.read_windows import ReadWindows, shard_openers
from fastpack.datasets.recorded_tokenizers import (
    tokenizer_of_file,
    tokenizer_of_manifest,
    tokenizer_of_shards,
)
from fastpack.datasets.row_format import TokenRows
from fastpack.datasets.shard_masks import find_masks
from fastpack.datasets.token_streams import is_packed, open_named_files, open_stream
from fastpack.datasets.window_dataset import LABELS, WindowDataset
from fastpack.datasets.window_groups import Tokens
from fastpack.datasets.windows import Windows
from fastpack.io import PathLike, is_remote
from fastpack.tokens.manifest.manifest_file import is_manifest
from fastpack.tokens.pbin.packed_file import RETURNED_DTYPE
from fastpack.tokens.token_segment import SegmentPaths

_SAMPLE_DTYPES = {**RETURNED_DTYPE, 8: np.dtype(np.int64)}  # by the bytes of a token


class BlockDataset(WindowDataset, PackedDataset):
    """Base class of the datasets whose samples are {sample_key: tokens [_window]} of a packed file."""

    _negative = True
    _not_pickled: ClassVar[tuple[str, ...]] = (*WindowDataset._not_pickled, *PackedDataset._not_pickled)

    def _cut(self, n_windows: int, step: int) -> Windows:
        """Return windows `step` tokens apart, of a mapping, or read by position from a store."""
        if is_remote(self.raw_data_path):
            return ReadWindows([self._shard], [n_windows], self._window, step)
        file = self._file
        return Windows([lambda: file.data], [n_windows], self._window, step)

    def _token_files(self) -> Sequence[str]:
        if self._stream is not None:
            return [self._stream.path]
        return SegmentPaths([self._shard] if self._files is None else self._files)

    def _note_masks(self) -> None:
        if self._masks is not None:
            self._masks.note_unused(LABELS)

    def _block_format(self) -> TokenRows:
        """Return the format of the rows, in which samples are blocks."""
        dtype = _SAMPLE_DTYPES[self.token_size_in_bytes]
        return TokenRows(self._window - 1, self._eos is not None, self.sample_key, dtype)


class PackedMemMapDatasetContinuous(BlockDataset):
    """Cut the tokens of a file into blocks of `block_size`, across documents (as Modalities).

    A sample is {sample_key: tokens [block_size]}, in the dtype of `PackedMemMapDatasetBase`. A tail shorter than a
    block is dropped. Indices are integers, negative ones included, or slices of step 1.

    Parameters
    ----------
    raw_data_path
        A packed file, or a manifest (`.fpm`, see `fastpack.write_manifest`): then the samples are those of a
        `CombinedDataset` of all its `.pbin` files (of all its files if there are none), in its order. Such a file is
        accessed on first use only, and must then be as the manifest states. Files shorter than a block have no samples.
        Or a token file or folder of any other format that `fastpack.open_tokens` reads: its tokens are cut as those of
        one packed file. Blocks are read from a mapping where the tokens are in one file, else copied.
    sample_key
        The key of the tokens in a sample.
    block_size
        The tokens of a block, at least 2.
    reuse_last_target
        Whether a block starts with the last token of the previous one (step block_size - 1), so that no target is
        lost; otherwise blocks do not overlap.
    load_index
        Whether to load the document index.
    eos_token_id
        The token that ends a document, for `batch` and `fill`: the label after it is -100, and doc_ids count from 0 in
        every block.
    format, dtype
        As for `fastpack.open_tokens`: the format and the dtype of the tokens of a file that does not state them. A
        packed file takes neither.
    mix_tokenizers
        Accept the files of a folder or manifest that were packed with different tokenizers, with a DataWarning.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    FormatError
        If the file is damaged, or its format is ambiguous.
    ValueError
        If block_size exceeds the number of tokens or is below 2, or the recorded tokenizers of the files differ.

    Notes
    -----
    Construction takes the same time for any number of samples.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack
    >>> path = tempfile.mkdtemp() + "/corpus.pbin"
    >>> with fastpack.PackedWriter(path, token_size_in_bytes=2) as writer:
    ...     writer.append_many(np.arange(10), lengths=[10])
    >>> dataset = fastpack.PackedMemMapDatasetContinuous(path, "text", block_size=4, reuse_last_target=True)
    >>> dataset[1]
    {'text': array([3, 4, 5, 6], dtype=int32)}
    >>> dataset.batch([0, 2])["text"].tolist()
    [[0, 1, 2, 3], [6, 7, 8, 9]]
    >>> dataset.batch([1], outputs=["input_ids", "labels"])
    {'input_ids': array([[3, 4, 5]]), 'labels': array([[4, 5, 6]])}
    """

    def __init__(
        self,
        raw_data_path: PathLike,
        sample_key: str,
        block_size: int,
        reuse_last_target: bool,
        load_index: bool = False,
        *,
        eos_token_id: int | None = None,
        format: str | None = None,
        dtype: str | None = None,
        mix_tokenizers: bool = False,
    ) -> None:
        is_given = format not in (None, "pbin") or dtype is not None
        if is_manifest(raw_data_path) and not is_given:
            self.raw_data_path, self.sample_key, self._load_index = raw_data_path, sample_key, load_index
            self._files = open_named_files(raw_data_path, block_size, load_index)
            lengths = self._files.lengths
        elif is_given or not is_packed(raw_data_path):
            self.raw_data_path, self.sample_key, self._load_index = raw_data_path, sample_key, load_index
            self._stream = open_stream(raw_data_path, load_index, format, dtype)
            lengths = np.array([self._stream.n_tokens])
        else:
            super().__init__(raw_data_path, sample_key, load_index)
            lengths = np.array([self._file.n_tokens])
        n_tokens = int(lengths.max())
        if block_size > n_tokens:
            raise ValueError(f"Block size ({block_size}) is larger than the total number of tokens ({n_tokens}).")
        if block_size < 2:
            raise ValueError("Block size must be at least 2.")
        self.block_size = self._window = block_size
        self.reuse_last_target = reuse_last_target
        self._eos = eos_token_id
        if self._files is not None:
            tokenizer_of_manifest(self._files, mix_tokenizers)
        elif len(described := self._described_files()) > 1:
            self._recorded = tokenizer_of_shards(described, mix_tokenizers, eos_token_id)
        elif eos_token_id is not None:
            self._recorded = tokenizer_of_file(described[0], eos_token_id)
        self._step = block_size - 1 if reuse_last_target else block_size
        self._attach()
        self._total = int(self._windows.cumulative[-1])

    def _attach(self) -> None:
        self._format = self._block_format()
        if self._stream is not None:
            n_blocks = (self._stream.n_tokens - self.block_size) // self._step + 1
            self._windows, self._masks = self._stream.windows(n_blocks, self._window, self._step), self._stream.masks()
            return
        self._masks = find_masks([self._shard] if self._files is None else self._files)
        if self._files is None:
            self._windows = self._cut((self._file.n_tokens - self.block_size) // self._step + 1, self._step)
            return
        n_windows = np.maximum((self._files.lengths - self.block_size) // self._step + 1, 0)
        if is_remote(self.raw_data_path):
            self._windows = ReadWindows(self._files, n_windows, self._window, self._step)
        else:
            self._windows = Windows(shard_openers(self._files), n_windows, self._window, self._step)

    @property
    def token_size_in_bytes(self) -> int:
        """The bytes of a token on disk: 1, 2, 4 or 8; the largest, if the files of a manifest differ."""
        if self._stream is not None:
            return self._stream.dtype.itemsize
        return self._file.token_size_in_bytes if self._files is None else self._files.largest_item

    @property
    def index_base(self) -> npt.NDArray[np.int64]:
        """The documents as int64 [n, 2], byte offset and byte length in the data; ValueError with load_index=False."""
        if self._stream is None or not self._load_index:
            return super().index_base
        return self._stream.document_rows()

    def _read(self, samples: range) -> list[Tokens]:
        if self._files is None and self._stream is None:
            return super()._read(samples)
        return [self._sample(number) for number in samples]

    def _sample(self, index: int) -> Tokens:
        cumulative = self._windows.cumulative
        number = kernels.locate(cumulative, index)
        tokens = self._windows.window(number, (index - int(cumulative[number])) * self._step)
        return tokens.astype(_SAMPLE_DTYPES[tokens.itemsize])

    def check_unchanged(self) -> None:
        """Raise FormatError if a file has changed, or a used file of a manifest is not as the manifest states."""
        if self._stream is not None:
            self._stream.check_unchanged()
        if self._files is not None:
            self._files.check_used()

    @property
    def _index(self) -> npt.NDArray[np.int64]:
        """The blocks as int64 [n, 2]: byte offset and byte length (as Modalities); computed on access."""
        if self._files is not None:
            raise ValueError(f"{self.raw_data_path}: each file that it names has blocks of its own")
        size = self.token_size_in_bytes
        starts = np.arange(self._total, dtype=np.int64) * (self._step * size)
        return np.stack([starts, np.full_like(starts, self.block_size * size)], axis=1)

    def _span(self, index: int) -> tuple[int, int]:
        size = self.token_size_in_bytes
        return index * self._step * size, self.block_size * size
