"""`MemoryMappedDataset`: fixed windows of flat token shards (as KempnerForge)."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.read_windows import ReadWindows, shard_openers
from fastpack.datasets.recorded_tokenizers import tokenizer_of_manifest, tokenizer_of_shards
from fastpack.datasets.row_format import TokenRows
from fastpack.datasets.shard_masks import find_masks
from fastpack.datasets.token_streams import TokenStream
from fastpack.datasets.window_dataset import WindowDataset
from fastpack.datasets.windows import Windows
from fastpack.display import facts
from fastpack.errors import DataWarning
from fastpack.io import PathLike, as_path, is_remote
from fastpack.item_numbers import item_number
from fastpack.tokens.flat.shard_warnings import find_warnings, named_dtype
from fastpack.tokens.flat.shards import check_dtypes, find_shards, scan_shards
from fastpack.tokens.formats import formats_of
from fastpack.tokens.manifest.manifest_file import is_manifest
from fastpack.tokens.manifest.manifest_shards import ManifestShards, lengths_of, manifest_warnings, open_shards
from fastpack.tokens.token_segment import SegmentPaths, TokenSegment


class MemoryMappedDataset(WindowDataset):
    """Cut flat token shards into windows of `seq_len` tokens (as KempnerForge).

    A sample is {"input_ids", "labels"} and, with `pack_sequences`, "doc_ids": each int64 [seq_len - 1]. Windows do not
    overlap and do not cross shards; the tail of a shard is dropped. With `pack_sequences`, the label after each EOS is
    -100, and doc_ids count documents from 0 in every window.

    Parameters
    ----------
    data_dir
        A folder of shards, or a manifest (a `.fpm` file, see `fastpack.write_manifest`). With a manifest a shard is
        accessed on first use only, and must then be as the manifest states; trim_zero_tail reads all shards. Or a token
        file or folder of any other format that `fastpack.open_tokens` reads, except `mds`, which has no shards: each
        file of tokens is a shard, and `file_pattern` is not used.
    seq_len
        Tokens per window, one more than a row of input_ids has.
    file_pattern
        Selects shards by name.
    pack_sequences
        Whether to return doc_ids and mask labels.
    eos_token_id
        The token that ends a document; required with `pack_sequences`.
    dtype
        The dtype of `.bin` shards, or "metadata" for the one in tatm's metadata in `data_dir`. By default uint32 if the
        file size is a multiple of 4, else uint16 (as KempnerForge).
    format
        As for `fastpack.open_tokens`, for a token file whose format cannot be detected. Default: detect it.
    trim_zero_tail
        Drop the zeros at the end of each shard, which tatm leaves unused; with eos_token_id=0 one of them is kept.
    io
        "mmap", or "pread", which costs 2 us per sample and raises an error when a shard shrinks, where a mapping kills
        the process. Shards in an object store are always read by position, through the block cache.
    mix_tokenizers
        Read shards that were written with different tokenizers, as their side files record (see
        `TokenizerFingerprint`), with a DataWarning. By default they are refused. Shards in a store, and those of a
        manifest, are not compared.

    Raises
    ------
    ValueError
        If pack_sequences lacks an eos_token_id, a `.bin` is empty, a `.npy` is damaged or holds dates, text or records,
        `dtype` is given for `.npy`, or the recorded tokenizers of two shards differ.
    FileNotFoundError
        If no shard matches.
    FormatError
        If a shard is not the same file as at construction when it is opened.

    Warns
    -----
    DataWarning
        If the data are probably misread; the message names the remedy. Values do not depend on it.

    Notes
    -----
    Values, order and errors are those of KempnerForge (5666d0d). Shards are mapped on first use. The dataset pickles as
    paths.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/a.npy", np.array([5, 6, 0, 7, 8, 9, 1, 1], np.uint16))
    >>> dataset = fastpack.MemoryMappedDataset(folder, seq_len=4, pack_sequences=True, eos_token_id=0)
    >>> len(dataset)
    2
    >>> dataset[0]
    {'input_ids': array([5, 6, 0]), 'labels': array([   6,    0, -100]), 'doc_ids': array([0, 0, 0])}
    >>> dataset.batch([0, 1], outputs=["input_ids", "position_ids"])["position_ids"]
    array([[0, 1, 2],
           [0, 1, 2]])
    """

    _subject = "data_dir"
    _shown = facts(samples="_total", seq_len="seq_len", shards=lambda self: len(self._files), closed="_closed")
    _not_pickled = (*WindowDataset._not_pickled, "_bounds")

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
        format: str | None = None,
        mix_tokenizers: bool = False,
    ) -> None:
        if pack_sequences and eos_token_id is None:
            raise ValueError("eos_token_id is required when pack_sequences=True")
        if io not in ("mmap", "pread"):
            raise ValueError(f"io is {io!r}: choose mmap or pread")
        self.data_dir = data_dir
        self.seq_len = self._window = seq_len
        self._eos = eos_token_id if pack_sequences else None
        self._document_eos = eos_token_id  # for questions about documents, with or without doc_ids in batches
        self._io = "pread" if is_remote(data_dir) else io
        if format is not None or _is_token_file(data_dir):
            stream = TokenStream(data_dir, format, dtype)
            self._files: Sequence[TokenSegment] = stream.shards()
            described, find = stream.described_files(), stream.warnings
        else:
            self._files = _find_files(data_dir, file_pattern, dtype)
            if isinstance(self._files, ManifestShards):  # it opens without access to its shards
                described, find = [], manifest_warnings
                tokenizer_of_manifest(self._files, mix_tokenizers)
            else:
                described, find = [shard.path for shard in self._files], find_warnings
        self._recorded = tokenizer_of_shards(described, mix_tokenizers, eos_token_id)
        for text in find(self._files, dtype_is_given=dtype is not None, tail_is_trimmed=trim_zero_tail):
            warnings.warn(text, DataWarning, stacklevel=2)
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
        self._masks = find_masks(self._files)
        self._bounds: list[int] = self._windows.cumulative.tolist()  # bisect is faster for one lookup

    def __getitem__(self, index: int) -> dict[str, npt.NDArray[np.int64]]:
        """Return sample `index`; IndexError if it is out of range, also below 0."""
        index = item_number(index)
        if index < 0 or index >= self._total:
            raise IndexError(f"Index {index} out of range [0, {self._total})")
        self._check_open()
        if self._masks is not None:
            return self._masked(index)
        shard = bisect_right(self._bounds, index) - 1
        window = self._windows.window(shard, (index - self._bounds[shard]) * self.seq_len)
        tokens = window.astype(np.int64)
        if self._eos is None:
            return {"input_ids": tokens[:-1], "labels": tokens[1:]}
        labels, doc_ids = np.empty(len(tokens) - 1, np.int64), np.empty(len(tokens) - 1, np.int64)
        kernels.mask_labels(tokens, self._eos, labels)
        kernels.doc_ids(tokens[:-1], self._eos, doc_ids)
        return {"input_ids": tokens[:-1], "labels": labels, "doc_ids": doc_ids}

    def _masked(self, index: int) -> dict[str, npt.NDArray[np.int64]]:
        """Return a sample of shards with loss masks: a batch of one."""
        return {name: array[0] for name, array in self.batch([index]).items()}

    def _token_files(self) -> Sequence[str]:
        return SegmentPaths(self._files)

    def check_unchanged(self) -> None:
        """Raise FormatError if a shard has changed since construction: size, modification time or inode.

        Takes 3 us per shard. With a manifest, the shards that were used are compared with it. Objects in a store are
        checked on reading instead: each request names the version.
        """
        if isinstance(self._files, ManifestShards):
            self._files.check_used()
            return
        for shard in self._files:
            if shard.version is None:
                shard.check_unchanged()


def _is_token_file(path: PathLike) -> bool:
    """Return whether a path is one token file, or a folder of a format other than that of shards."""
    where = as_path(path)
    # Each question about a URL is a request; the formats that are folders are read from disks only.
    if is_manifest(path) or (is_remote(path) and not where.suffix):
        return False
    if where.is_dir():
        return any(row.kind != "shards" for row in formats_of(where))
    return bool(formats_of(where))


def _find_files(data_dir: PathLike, file_pattern: str, dtype: str | None) -> Sequence[TokenSegment]:
    if is_manifest(data_dir):
        shards = open_shards(data_dir, file_pattern)
        return shards.read_as(None if dtype is None else named_dtype(dtype, as_path(data_dir).parent))
    paths = find_shards(data_dir, file_pattern)
    found = scan_shards(paths, None if dtype is None else named_dtype(dtype, data_dir))
    check_dtypes(found)
    return found
