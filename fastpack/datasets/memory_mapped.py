"""`MemoryMappedDataset`: fixed windows of flat token shards, as KempnerForge cuts them."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.base import WindowDataset
from fastpack.datasets.windows import Windows
from fastpack.files import PathLike
from fastpack.formats.shards import find_shards, scan_shards


class MemoryMappedDataset(WindowDataset):
    """Windows of `seq_len` tokens of every shard that matches: {"input_ids", "labels"} and, packed, "doc_ids".

    All are int64 [seq_len - 1]. Windows do not overlap and never cross shards; what is left at a shard's end is
    dropped. With `pack_sequences`, labels are -100 behind each EOS and doc_ids count documents from 0 in every window.
    Values, order and errors are KempnerForge's (5666d0d); shards are mapped on first use. Pickles as paths.

    Raises ValueError (no eos_token_id with pack_sequences; an empty `.bin`; a broken `.npy`) and FileNotFoundError
    (no shard matches).
    """

    def __init__(
        self,
        data_dir: PathLike,
        seq_len: int,
        file_pattern: str = "*.npy",
        pack_sequences: bool = False,
        eos_token_id: int | None = None,
    ) -> None:
        if pack_sequences and eos_token_id is None:
            raise ValueError("eos_token_id is required when pack_sequences=True")
        self.seq_len = self._window = seq_len
        self._eos = eos_token_id if pack_sequences else None
        self._files = scan_shards(find_shards(data_dir, file_pattern))
        self._n_windows = [shard.length // _divisor(seq_len) for shard in self._files]
        self._attach()
        self._bounds: list[int] = self._windows.cumulative.tolist()  # bisect on a list beats a kernel for one lookup
        self._total = self._bounds[-1]

    def _attach(self) -> None:
        openers = [shard.open for shard in self._files]
        self._windows = Windows(openers, self._n_windows, self.seq_len, self.seq_len)

    def __getitem__(self, index: int) -> dict[str, npt.NDArray[np.int64]]:
        if index < 0 or index >= self._total:
            raise IndexError(f"Index {index} out of range [0, {self._total})")
        self._check_open()
        shard = bisect_right(self._bounds, index) - 1
        start = (index - self._bounds[shard]) * self.seq_len
        window = self._windows.shard(shard)[start : start + self.seq_len]
        tokens = window.astype(np.int64)
        if self._eos is None:
            return {"input_ids": tokens[:-1], "labels": tokens[1:]}
        labels, doc_ids = np.empty(len(tokens) - 1, np.int64), np.empty(len(tokens) - 1, np.int64)
        kernels.mask_labels(tokens, self._eos, labels)
        kernels.doc_ids(tokens[:-1], self._eos, doc_ids)
        return {"input_ids": tokens[:-1], "labels": labels, "doc_ids": doc_ids}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_windows"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach()


def _divisor(seq_len: int) -> int:
    if seq_len == 0:
        raise ZeroDivisionError("seq_len is 0")
    return seq_len
