"""The tokens of a file of any format as one sequence, and windows of it that cross files and documents."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.datasets.file_spans import RowSpans, row_spans
from fastpack.datasets.mapped_shards import Opener
from fastpack.datasets.read_windows import ReadWindows, shard_openers
from fastpack.datasets.shard_masks import ShardMasks
from fastpack.datasets.window_groups import Tokens, WindowGroup, copied_group, dtype_selector, row_addresses
from fastpack.datasets.windows import Windows, row_numbers
from fastpack.errors import DataWarning, FormatError
from fastpack.io import PathLike, as_path, is_remote
from fastpack.tokens.common_fingerprint import described_files
from fastpack.tokens.flat.shard_warnings import find_warnings
from fastpack.tokens.formats import formats_of, open_tokens
from fastpack.tokens.loss_mask import open_loss_mask
from fastpack.tokens.manifest.manifest_shards import ManifestShards, first_odd, open_shards
from fastpack.tokens.token_file import TokenFile
from fastpack.tokens.token_segment import TokenSegment

PER_DOCUMENT = ("mds",)  # formats with one run of tokens per document


def is_packed(path: PathLike) -> bool:
    """Return whether a path is read as a packed file: it is one, or its name is that of no other format."""
    where = as_path(path)
    return where.suffix == ".pbin" or not formats_of(where)


class TokenStream:
    """The tokens of a file of any format as one sequence, without regard to the files or documents that divide it.

    It pickles as its path; unpickling raises FormatError if the tokens are others.
    """

    def __init__(self, path: PathLike, format: str | None, dtype: str | None) -> None:
        self._arguments = (path, format, dtype)
        self._tokens: TokenFile = open_tokens(path, format=format, dtype=dtype)
        self.dtype, self.n_tokens = self._tokens.dtype, self._tokens.n_tokens
        self.segments = [] if self._tokens.format in PER_DOCUMENT else list(self._tokens.segments())

    def document_rows(self) -> npt.NDArray[np.int64]:
        """Return start and length of each document in bytes, int64 [n, 2]; ValueError if they are unknown."""
        return self._tokens.document_rows() * self.dtype.itemsize

    def windows(self, n_windows: int, n_tokens: int, step: int) -> Windows:
        """Return windows `step` tokens apart: of a mapping if the tokens are in one run, else copied."""
        if len(self.segments) != 1:
            return StreamWindows(self._runs(), n_windows, n_tokens, step)
        if is_remote(self.segments[0].path):
            return ReadWindows(self.segments, [n_windows], n_tokens, step)
        return Windows(shard_openers(self.segments), [n_windows], n_tokens, step)

    def masks(self) -> ShardMasks | None:
        """Return the loss mask of all tokens; None without one."""
        mask = open_loss_mask(self._tokens)
        return None if mask is None else ShardMasks([], mask)

    def shards(self) -> list[TokenSegment]:
        """Return the runs of tokens as shards; ValueError for a format with one run per document."""
        if not self.segments:
            name = self._tokens.format
            raise ValueError(
                f"{self._tokens.path}: {name} stores every document apart, so it has no shards: "
                "open it as PackedMemMapDatasetContinuous, or convert it with `fastpack convert`"
            )
        return self.segments

    def described_files(self) -> list[str]:
        """Return the files that side files describe (see `TokenizerFingerprint`)."""
        return list(described_files(self._tokens))

    def warnings(self, shards: Sequence[TokenSegment], *, dtype_is_given: bool, tail_is_trimmed: bool) -> list[str]:
        """Return warnings as `find_warnings`; none for formats that state their dtype and length."""
        if self._tokens.format not in ("npy", "bin"):
            return []
        raw = self._tokens.format == "bin"
        return find_warnings(shards, dtype_is_given=dtype_is_given, tail_is_trimmed=tail_is_trimmed, raw=raw)

    def _runs(self) -> _Runs:
        if self.segments:
            lengths = np.array([segment.length for segment in self.segments], np.int64)
            numbers = np.arange(len(lengths))
            return _Runs(self.dtype, shard_openers(self.segments), numbers, np.zeros_like(lengths), lengths, 1)
        spans, size = self._tokens.document_spans(), self.dtype.itemsize
        rows = np.concatenate([span.rows + np.array([span.base, 0]) for span in spans])
        numbers = np.repeat(np.arange(len(spans)), [len(span.rows) for span in spans])
        openers = [partial(np.asarray, span.data) for span in spans]
        return _Runs(self.dtype, openers, numbers, rows[:, 0], rows[:, 1] // size, size)

    @property
    def path(self) -> str:
        """The file or folder whose tokens are one sequence."""
        return self._tokens.path

    def check_unchanged(self) -> None:
        """Raise FormatError if a file has changed since it was opened; objects in a store are checked on reading."""
        for segment in self.segments:
            if segment.version is None:
                segment.check_unchanged()

    def close(self) -> None:
        """Release what the file has read of its index."""
        self._tokens.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (*self._arguments, self.dtype, self.n_tokens, self.segments)


def open_stream(path: PathLike, load_index: bool, format: str | None, dtype: str | None) -> TokenStream:
    """Open a token file that is no packed file; with `load_index`, its document boundaries must be known."""
    stream = TokenStream(path, format, dtype)
    for text in stream.warnings(stream.segments, dtype_is_given=dtype is not None, tail_is_trimmed=False):
        warnings.warn(text, DataWarning, stacklevel=3)
    if load_index:
        stream.document_rows()
    return stream


def open_named_files(path: PathLike, block_size: int, load_index: bool) -> ManifestShards:
    """Open the packed files of a manifest, or all files if there are none; warn if some are shorter than a block."""
    if load_index:
        raise ValueError(f"{path}: load_index=True is for one packed file: a manifest has no documents in it")
    try:
        files = open_shards(path, "**/*.pbin")
    except FileNotFoundError:
        files = open_shards(path, "**")
    others = (file for file in files.first_of_each_dtype() if file.dtype.kind not in "ui")
    if (wrong := first_odd(files) or next(others, None)) is not None:
        raise FormatError(wrong.path, 0, f"an array of {wrong.dtype}", "a flat array of integers")
    short = files.lengths < block_size
    if short.any() and not short.all():
        first = files[int(short.argmax())].path
        text = f"{np.count_nonzero(short)} of {len(files)} files, the first being {first}, are shorter than a block"
        warnings.warn(f"{text} of {block_size} tokens: they have no samples", DataWarning, stacklevel=3)
    return files


def _reopen(
    path: PathLike,
    format: str | None,
    dtype: str | None,
    stored: np.dtype[Any],
    n_tokens: int,
    segments: list[TokenSegment],
) -> TokenStream:
    stream = TokenStream(path, format, dtype)
    if (stream.dtype, stream.n_tokens, stream.segments) != (stored, n_tokens, segments):
        raise FormatError(path, 0, "another file of that name", "the one the dataset was made of")
    return stream


class _Runs(NamedTuple):
    """Runs of tokens in arrays: `lengths[k]` tokens from item `starts[k]` of the array numbered `arrays[k]`.

    openers: of the arrays, as for `MappedShards`. items: number of items of an array per token, 1 if they are tokens.
    """

    dtype: np.dtype[Any]
    openers: Sequence[Opener]
    arrays: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    items: int


class StreamWindows(Windows):
    """Windows of tokens in several runs, which they may cross; a window is copied."""

    def __init__(self, runs: _Runs, n_windows: int, n_tokens: int, step: int) -> None:
        counts = np.zeros(max(1, len(runs.openers)), np.int64)
        counts[0] = n_windows  # windows are numbered over all runs
        super().__init__(runs.openers, counts, n_tokens, step)
        self._runs, self._ends = runs, np.cumsum(runs.lengths)

    def window(self, number: int, start: int) -> Tokens:
        """Return a copy of the window that begins at token `start` of all tokens."""
        del number
        out = np.empty(self.n_tokens, self._runs.dtype.newbyteorder("="))
        self._read(start, out)
        return out

    def groups(self, indices: npt.NDArray[np.int64], negative: bool = False) -> Iterator[WindowGroup]:
        """Yield one group as `Windows.groups`, of windows copied into memory."""
        _, starts = self.positions(indices, negative)
        windows = np.empty((len(starts), self.n_tokens), self._runs.dtype.newbyteorder("="))
        for window, start in zip(windows, starts.tolist(), strict=True):
            self._read(start, window)
        rows, selector = row_numbers(len(indices)), dtype_selector(windows.reshape(-1))
        if selector is None:
            yield copied_group(list(windows), rows)
        else:
            yield WindowGroup(row_addresses(windows), rows, selector, windows)

    def spans(self, indices: npt.NDArray[np.int64], negative: bool = False) -> RowSpans:
        """Return where each window lies among all tokens."""
        _, starts = self.positions(indices, negative)
        return row_spans(np.zeros_like(starts), starts, starts + self.n_tokens)

    def dtype_of(self, number: int) -> np.dtype[Any]:
        """Return the dtype of the tokens as they are read."""
        del number
        return self._runs.dtype.newbyteorder("=")

    def read(self, number: int, start: int, out: Tokens) -> None:
        """Fill `out` with the tokens from number `start` of all tokens on."""
        del number
        self._read(start, out)

    def _read(self, start: int, out: Tokens) -> None:
        """Copy tokens from number `start` on."""
        runs, done = self._runs, 0
        run = int(np.searchsorted(self._ends, start, side="right"))
        while done < len(out):
            end, length = int(self._ends[run]), int(runs.lengths[run])
            n_tokens = min(len(out) - done, end - start - done)
            first = int(runs.starts[run]) + (start + done - (end - length)) * runs.items
            items = self.shards.shard(int(runs.arrays[run]))[first : first + n_tokens * runs.items]
            out[done : done + n_tokens] = items.view(runs.dtype) if runs.items > 1 else items
            done += n_tokens
            run += 1

    def will_need(self, indices: npt.NDArray[np.int64], negative: bool = False) -> None:
        """Do nothing."""
