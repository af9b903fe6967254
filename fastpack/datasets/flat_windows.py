"""`MemoryMappedDataset`: fixed windows of flat token shards, as KempnerForge cuts them."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.base import WindowDataset
from fastpack.datasets.read_windows import ReadWindows, shard_openers
from fastpack.datasets.row_format import TokenRows
from fastpack.datasets.windows import Windows
from fastpack.display import facts
from fastpack.errors import DataWarning
from fastpack.io import PathLike, as_path, is_remote
from fastpack.item_numbers import item_number
from fastpack.tokens.flat.shard_warnings import find_warnings, named_dtype
from fastpack.tokens.flat.shards import check_dtypes, find_shards, scan_shards
from fastpack.tokens.manifest.manifest_file import is_manifest
from fastpack.tokens.manifest.manifest_shards import ManifestShards, lengths_of, manifest_warnings, open_shards
from fastpack.tokens.token_segment import TokenSegment


class MemoryMappedDataset(WindowDataset):
    """Windows of `seq_len` tokens of every shard that matches: {"input_ids", "labels"} and, packed, "doc_ids".

    All are int64 [seq_len - 1]. Windows do not overlap and never cross shards; what is left at a shard's end is
    dropped. With `pack_sequences`, labels are -100 behind each EOS and doc_ids count documents from 0 in every window.
    Values, order and errors are KempnerForge's (5666d0d); shards are mapped on first use. Pickles as paths.

    data_dir: a folder, or the manifest of one (a file `.fpm`, see `fastpack.write_manifest`), among whose names
    file_pattern then selects. No shard is looked at before its first use then, when it has to be what the manifest
    says; trim_zero_tail looks at all of them.
    dtype: of `.bin` shards, numpy's name, or "metadata" for what tatm's metadata in `data_dir` says; without it,
    KempnerForge's rule: uint32 where a file's size divides by 4, else uint16. trim_zero_tail: leave out the zeros at
    the end of each shard, tatm's unused space (with eos_token_id=0, one of them is kept). io: "mmap", or "pread", with
    which a shard that shrinks is an error instead of the end of the process (at 3 us a sample); shards in a store are
    read so in any case, through the block cache.

    Data that are probably not what they seem raise a DataWarning that names the way out; values never change for it.
    Raises ValueError (no eos_token_id with pack_sequences; an empty `.bin`; a broken `.npy`, or one of dates, texts or
    records; dtype= for `.npy`) and FileNotFoundError (no shard matches); FormatError when a shard is opened and is not
    the file it was.
    """

    _subject = "data_dir"
    _shown = facts(samples="_total", seq_len="seq_len", shards=lambda self: len(self._files), closed="_closed")

    def __init__(
        self,
        data_dir: PathLike,
        seq_len: int,
        file_pattern: str = "*.npy",
        pack_sequences: bool = False,
        eos_token_id: int | None = None,
        *,
        dtype: str | None = None,
        trim_zero_tail: bool = False,
        io: Literal["mmap", "pread"] = "mmap",
    ) -> None:
        if pack_sequences and eos_token_id is None:
            raise ValueError("eos_token_id is required when pack_sequences=True")
        if io not in ("mmap", "pread"):
            raise ValueError(f"io is {io!r}: choose mmap or pread")
        self.data_dir = data_dir
        self.seq_len = self._window = seq_len
        self._eos = eos_token_id if pack_sequences else None
        self._io = "pread" if is_remote(data_dir) else io
        self._files = _find_files(data_dir, file_pattern, dtype)
        find = manifest_warnings if isinstance(self._files, ManifestShards) else find_warnings
        for trap in find(self._files, dtype_is_given=dtype is not None, tail_is_trimmed=trim_zero_tail):
            warnings.warn(trap, DataWarning, stacklevel=2)
        if trim_zero_tail:
            self._files = [shard.trimmed(keep=int(eos_token_id == 0)) for shard in self._files]
        if seq_len == 0:
            raise ZeroDivisionError("seq_len is 0")
        self._attach()
        self._total = self._bounds[-1]
        if self._total < 1:
            longest = lengths_of(self._files).max()
            text = f"no shard in {data_dir} is {seq_len} tokens long (the longest: {longest}): the dataset is empty"
            warnings.warn(text, DataWarning, stacklevel=2)

    def _attach(self) -> None:
        n_windows = lengths_of(self._files) // self.seq_len
        if self._io == "pread":
            self._windows: Windows = ReadWindows(self._files, n_windows, self.seq_len, self.seq_len)
        else:
            self._windows = Windows(shard_openers(self._files), n_windows, self.seq_len, self.seq_len)
        self._format = TokenRows(self.seq_len - 1, self._eos is not None)
        self._bounds: list[int] = self._windows.cumulative.tolist()  # bisect on a list beats a kernel for one lookup

    def __getitem__(self, index: int) -> dict[str, npt.NDArray[np.int64]]:
        index = item_number(index)
        if index < 0 or index >= self._total:
            raise IndexError(f"Index {index} out of range [0, {self._total})")
        self._check_open()
        shard = bisect_right(self._bounds, index) - 1
        window = self._windows.window(shard, (index - self._bounds[shard]) * self.seq_len)
        tokens = window.astype(np.int64)
        if self._eos is None:
            return {"input_ids": tokens[:-1], "labels": tokens[1:]}
        labels, doc_ids = np.empty(len(tokens) - 1, np.int64), np.empty(len(tokens) - 1, np.int64)
        kernels.mask_labels(tokens, self._eos, labels)
        kernels.doc_ids(tokens[:-1], self._eos, doc_ids)
        return {"input_ids": tokens[:-1], "labels": labels, "doc_ids": doc_ids}

    def check_unchanged(self) -> None:
        """FormatError when a shard has another size, modification time or inode than at construction (3 us a shard).

        From a manifest: when one that was used is not as the manifest says. Of objects in a store, reading alone tells:
        each request names the version that was looked at.
        """
        if isinstance(self._files, ManifestShards):
            self._files.check_used()
            return
        for shard in self._files:
            if shard.version is None:
                shard.check_unchanged()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_windows", "_bounds", "_format")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach()


def _find_files(data_dir: PathLike, file_pattern: str, dtype: str | None) -> Sequence[TokenSegment]:
    if is_manifest(data_dir):
        shards = open_shards(data_dir, file_pattern)
        return shards.read_as(None if dtype is None else named_dtype(dtype, as_path(data_dir).parent))
    paths = find_shards(data_dir, file_pattern)
    found = scan_shards(paths, None if dtype is None else named_dtype(dtype, data_dir))
    check_dtypes(found)
    return found
