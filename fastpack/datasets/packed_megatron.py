"""`PackedMemMapDatasetMegatron`: blocks that begin with a document where they can."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.packed_blocks import BlockDataset
from fastpack.datasets.read_windows import ReadChosenWindows
from fastpack.datasets.windows import ChosenWindows
from fastpack.errors import FormatError
from fastpack.io import PathLike, is_remote
from fastpack.tokens.pbin.packed_file import PackedFile

_ROWS_AT_ONCE = 1 << 16  # of the index, looked at together


class PackedMemMapDatasetMegatron(BlockDataset):
    """Blocks of `block_size` tokens of a packed file that begin with a document: {sample_key: tokens [block_size]}.

    Documents are gathered until they fill a block. What is over of the last one is cut off, and that document, whole,
    opens the next block: so some tokens occur twice, but no block begins in the midst of a document. The exception is a
    document longer than a block: the next block begins within it, where the last one ended, but what is left of it does
    not count towards filling blocks, so blocks lag behind the documents gathered for them until one that does not fit
    in opens a block again, and what lies between is skipped. Documents at the end of the file that fill no block are
    dropped; so is a last one that exactly fills the block it opens.

    dtype, slices, eos_token_id and what `batch` gives are as of PackedMemMapDatasetContinuous. Construction reads the
    index, and takes 8 ns a document beyond that; one number a block is kept.

    compat="modalities-0.5": the samples as Modalities 0.5.0 gives them. The walk then begins 12 bytes into the tokens
    (so most blocks begin within a document) and a sample has block_size // token_size_in_bytes tokens; one that
    reaches beyond the tokens raises ValueError.

    Raises FileNotFoundError, FormatError (also where documents do not lie one behind the other), and ValueError for a
    block_size under 2. A file too short for a block gives an empty dataset.
    """

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
            raise ValueError(f"compat is {compat!r}: leave it out, or choose 'modalities-0.5'")
        if block_size < 2:
            raise ValueError("Block size must be at least 2.")
        super().__init__(raw_data_path, sample_key, load_index=False)
        self._load_index = True  # when it is asked for: the walk has an index of its own, and lets it go
        self.block_size, self.compat = block_size, compat
        self._window = block_size if compat is None else block_size // self.token_size_in_bytes
        self._eos = eos_token_id
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
        if is_remote(self.raw_data_path):
            self._windows = ReadChosenWindows(self._shard, self._starts, self._window)
        else:
            file = self._file
            self._windows = ChosenWindows(lambda: file.data, self._starts, self._window)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_starts"}

    @property
    def _index(self) -> npt.NDArray[np.int64]:
        """The blocks as int64 [n, 2], as Modalities keeps them: byte offset and byte length; made when asked for."""
        size = self.token_size_in_bytes
        n_bytes = self.block_size * size if self.compat is None else self.block_size
        starts = self._starts * size
        return np.stack([starts, np.full_like(starts, n_bytes)], axis=1)

    def _span(self, index: int) -> tuple[int, int]:
        size = self.token_size_in_bytes
        return int(self._starts[index]) * size, self._window * size


def _check_consecutive(file: PackedFile) -> None:
    """FormatError unless each document of `file` begins where the one before ends, the first at 0."""
    end = 0
    for first in range(0, len(file), _ROWS_AT_ONCE):
        rows = file.index[first : first + _ROWS_AT_ONCE]
        ends = rows[:, 0] + rows[:, 1]  # 6 times as fast as a sum over rows of two
        expected = np.concatenate([[end], ends[:-1]])
        wrong = rows[:, 0] != expected
        if wrong.any():
            k = int(wrong.argmax())
            offset, found = (
                file.data_offset + file.data_length,
                f"document {first + k} at byte {rows[k, 0]} of the data",
            )
            hint = "where the one before ends (Modalities' own merge writes such an index: merge again)"
            raise FormatError(file.path, offset, found, f"it at {expected[k]}, {hint}")
        end = int(ends[-1])
