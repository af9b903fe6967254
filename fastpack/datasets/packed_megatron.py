"""`PackedMemMapDatasetMegatron`: blocks that start with a document where possible."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.packed_blocks import BlockDataset
from fastpack.datasets.read_windows import ReadChosenWindows
from fastpack.datasets.recorded_tokenizers import tokenizer_of_file
from fastpack.datasets.shard_masks import find_masks
from fastpack.datasets.windows import ChosenWindows
from fastpack.errors import FormatError
from fastpack.io import PathLike, is_remote
from fastpack.tokens.pbin.packed_file import PackedFile

_ROWS_AT_ONCE = 1 << 16  # of the index, checked at a time


class PackedMemMapDatasetMegatron(BlockDataset):
    """Cut a packed file into blocks of `block_size` tokens that start with a document (as Modalities).

    A sample is {sample_key: tokens [block_size]}. Dtype, indices and batches are those of
    `PackedMemMapDatasetContinuous`.

    Parameters
    ----------
    raw_data_path
        The packed file.
    sample_key
        The key of the tokens in a sample.
    block_size
        The tokens of a block, at least 2.
    compat
        "modalities-0.5" reproduces the samples of Modalities 0.5.0: the first document starts 12 bytes into the tokens
        (so most blocks start within a document), and a sample has block_size // token_size_in_bytes tokens; a sample
        that exceeds the tokens raises ValueError.
    eos_token_id
        The token that ends a document, for `batch` and `fill`.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    FormatError
        If the file is damaged, or its documents are not contiguous.
    ValueError
        If block_size is below 2.

    Notes
    -----
    Documents are collected until they fill a block. The last one is cut at the end of the block, and the next block
    starts with that whole document: some tokens occur twice, but no block starts within a document. The exception is a
    document longer than a block: the next block starts within it, where the last one ended, but the rest of that
    document does not count towards filling blocks. Blocks then lag behind the documents collected for them, until a
    document that does not fit starts a block, and the tokens in between are skipped. Documents at the end of the file
    that fill no block are dropped, and so is a last document that exactly fills the block it starts. A file too short
    for a block gives an empty dataset. Construction reads the index, and takes 8 ns per document in addition; one
    number per block is kept in memory.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack
    >>> path = tempfile.mkdtemp() + "/corpus.pbin"
    >>> with fastpack.PackedWriter(path, token_size_in_bytes=2) as writer:
    ...     writer.append_many(np.arange(12), lengths=[3, 3, 3, 3])
    >>> dataset = fastpack.PackedMemMapDatasetMegatron(path, "text", block_size=4)
    >>> [block.tolist() for block in dataset[:]["text"]]
    [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    """

    _not_pickled = (*BlockDataset._not_pickled, "_starts")

    def __init__(
        self,
        raw_data_path: PathLike,
        sample_key: str,
        block_size: int,
        *,
        compat: Literal["modalities-0.5"] | None = None,
        eos_token_id: int | None = None,
    ) -> None:
        if compat not in (None, "modalities-0.5"):
            raise ValueError(f"compat is {compat!r}: omit it, or choose 'modalities-0.5'")
        if block_size < 2:
            raise ValueError("Block size must be at least 2.")
        super().__init__(raw_data_path, sample_key, load_index=False)
        self._load_index = True  # on access: `_attach` reads an index of its own and releases it
        self.block_size, self.compat = block_size, compat
        self._window = block_size if compat is None else block_size // self.token_size_in_bytes
        self._eos = eos_token_id
        if eos_token_id is not None:
            self._recorded = tokenizer_of_file(raw_data_path, eos_token_id)
        self._attach()

    def _attach(self) -> None:
        size = self.token_size_in_bytes
        with PackedFile(self.raw_data_path) as indexed:
            if self.compat is None:
                _check_consecutive(indexed)
            starts = np.empty(len(indexed), np.int64)
            first = 0 if self.compat is None else 12
            self._total = kernels.block_starts(indexed.index, self.block_size * size, first, starts)
        self._format = self._block_format()
        self._starts = starts[: self._total] // size
        self._masks = find_masks([self._shard])
        if is_remote(self.raw_data_path):
            self._windows = ReadChosenWindows(self._shard, self._starts, self._window)
        else:
            file = self._file
            self._windows = ChosenWindows(lambda: file.data, self._starts, self._window)

    @property
    def _index(self) -> npt.NDArray[np.int64]:
        """The blocks as int64 [n, 2]: byte offset and byte length (as Modalities); computed on access."""
        size = self.token_size_in_bytes
        n_bytes = self.block_size * size if self.compat is None else self.block_size
        starts = self._starts * size
        return np.stack([starts, np.full_like(starts, n_bytes)], axis=1)

    def _span(self, index: int) -> tuple[int, int]:
        size = self.token_size_in_bytes
        return int(self._starts[index]) * size, self._window * size


def _check_consecutive(file: PackedFile) -> None:
    """Raise FormatError unless each document of `file` starts where the previous one ends, the first at 0."""
    end = 0
    for first in range(0, len(file), _ROWS_AT_ONCE):
        rows = file.index[first : first + _ROWS_AT_ONCE]
        ends = rows[:, 0] + rows[:, 1]  # 6 times as fast as rows.sum(1)
        expected = np.concatenate([[end], ends[:-1]])
        wrong = rows[:, 0] != expected
        if wrong.any():
            k = int(wrong.argmax())
            offset = file.data_offset + file.data_length
            found = f"document {first + k} at byte {rows[k, 0]} of the data"
            hint = "where the previous one ends (Modalities' merge writes such an index: merge again with fastpack)"
            raise FormatError(file.path, offset, found, f"it at {expected[k]}, {hint}")
        end = int(ends[-1])
