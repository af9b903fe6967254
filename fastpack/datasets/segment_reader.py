"""Segments of the tokens of many files: the address of each segment of a batch, in groups of one dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.mapped_shards import LazyOpeners, MappedShards
from fastpack.datasets.open_segments import OpenSegments
from fastpack.datasets.prefetch import Prefetch
from fastpack.datasets.window_groups import Tokens, address_of, selector_of
from fastpack.datasets.windows import row_numbers
from fastpack.errors import FormatError
from fastpack.io import is_remote, stat_of
from fastpack.tokens.mds import MdsTokens
from fastpack.tokens.token_file import TokenFile
from fastpack.tokens.token_segment import TokenSegment, stamp_of

Numbers: TypeAlias = npt.NDArray[np.int64]

NO_TOKENS = np.empty(0, np.uint8)  # selects a kernel for padding
_ALIGNMENT = 8  # bytes; of copied segments


class SegmentGroup(NamedTuple):
    """Segments of one dtype, given by address; address k is that of the segment numbered which[k]."""

    addresses: npt.NDArray[np.uint64]
    which: Numbers
    dtype_selector: Tokens
    owner: object  # keeps the memory at the addresses alive


class _Runs(NamedTuple):
    """Runs of contiguous tokens, in the order of the tokens.

    segments: the files, or parts of them. numbers: the segment of each run, int64 [n]. starts: its first byte there.
    lengths: in tokens. kinds: its dtype in `dtypes`. in_place: whether kernels can read it where it is mapped.
    """

    segments: list[TokenSegment]
    numbers: Numbers
    starts: Numbers
    lengths: Numbers
    dtypes: list[np.dtype[Any]]
    kinds: Numbers
    in_place: npt.NDArray[np.bool_]


class _Located(NamedTuple):
    """The run of each segment, and the byte of the run's TokenSegment where it starts."""

    runs: Numbers
    offsets: Numbers
    copied: npt.NDArray[np.bool_]  # whether kernels cannot read it in place


class SegmentReader:
    """Reads segments of the tokens of several files, which may differ in format and dtype.

    The tokens of a file are numbered from 0, across its parts (chunks, documents). Local files are mapped on first use,
    objects in a store are read by position. A reader pickles as the locations of the tokens; a file that has changed
    raises FormatError when it is opened again.

    Parameters
    ----------
    files
        Open token files. They may be closed afterwards.

    Attributes
    ----------
    n_tokens : int64 [n_files]
        The number of tokens of each file.
    first_tokens : int64 [n_files]
        The number of the first token of each file, where the tokens of all files are numbered consecutively.
    """

    def __init__(self, files: Sequence[TokenFile]) -> None:
        self._paths = [file.path for file in files]
        tables = [_runs_of(file) for file in files]
        self.n_tokens = np.array([table.lengths.sum() for table in tables], np.int64)
        self._runs = _concatenated(tables)
        self._attach()

    def _attach(self) -> None:
        runs = self._runs
        self.first_tokens = np.cumsum(self.n_tokens) - self.n_tokens
        self._ends = np.cumsum(runs.lengths)
        self._begins = self._ends - runs.lengths
        self._sizes = np.array([dtype.itemsize for dtype in runs.dtypes], np.int64)[runs.kinds]
        segments = runs.segments
        is_uniform = len(runs.dtypes) == 1 and bool(runs.in_place.all())
        self._selector = selector_of(runs.dtypes[0]) if is_uniform else None
        self._is_remote = np.array([is_remote(segment.path) for segment in segments], np.bool_)
        self._shards = MappedShards(LazyOpeners(len(segments), lambda number: partial(_map, segments[number])))
        self._files = OpenSegments(segments)
        self._prefetch = Prefetch()

    @property
    def n_open_files(self) -> int:
        """The number of files that are open; mapped files are not."""
        return self._files.n_open_files

    def groups(self, file: Numbers, start: Numbers, length: Numbers) -> Iterator[SegmentGroup]:
        """Yield segments grouped by dtype: `length[k]` tokens from token `start[k]` of file number `file[k]`.

        Segments that kernels cannot read in place are copied: from a store, unaligned, across parts of a file, or of a
        dtype without a kernel, which becomes int64.

        Raises
        ------
        ValueError
            If a segment is outside its file.
        FormatError
            If a file has changed since it was opened.
        """
        yield from self.numbered_groups(self._number(file, start, length), length)

    def numbered_groups(self, first: Numbers, length: Numbers) -> Iterator[SegmentGroup]:
        """Yield groups as `groups`: `length[k]` tokens from number `first[k]` on, among the tokens of all files.

        A segment of token -1 is padding: its address is 0. Raises ValueError for a segment beyond the tokens.
        """
        if self._selector is not None:  # one kernel call finds all addresses, once the files are mapped
            addresses, mappings = np.empty(len(first), np.uint64), self._shards.mappings
            runs = (self._ends, self._begins, self._runs.starts, self._runs.numbers, mappings.bases)
            if kernels.locate_segments(first, length, *runs, self._selector.itemsize, addresses) == len(first):
                yield SegmentGroup(addresses, row_numbers(len(first)), self._selector, mappings)
                return
        padding = np.flatnonzero(first == -1)
        if len(padding):
            yield SegmentGroup(np.zeros(len(padding), np.uint64), padding, NO_TOKENS, None)
            which = np.flatnonzero(first != -1)
            for group in self._mixed_groups(first[which], length[which]):
                yield group._replace(which=which[group.which])
        else:
            yield from self._mixed_groups(first, length)

    def _mixed_groups(self, first: Numbers, length: Numbers) -> Iterator[SegmentGroup]:
        """Yield groups of segments that may differ in dtype, or of files that are not mapped yet."""
        self._check_numbers(first, length)
        if not len(first) or not len(self._ends):
            return
        located = self._locate(first, length)
        kinds = self._runs.kinds[located.runs]
        for kind in np.unique(kinds).tolist():
            if len(which := np.flatnonzero((kinds == kind) & ~located.copied)):
                yield self._mapped_group(located, which, kind)
            if len(which := np.flatnonzero((kinds == kind) & located.copied)):
                yield self._copied_group(first, length, which, kind)

    def _number(self, file: Numbers, start: Numbers, length: Numbers) -> Numbers:
        """Return the number of each first token among those of all files; ValueError for a segment outside its file."""
        if len(file) and not 0 <= file.min() <= file.max() < len(self._paths):
            raise ValueError(f"a segment of file {file.min()} or {file.max()} of {len(self._paths)} files")
        outside = (start < 0) | (length < 0) | (start > self.n_tokens[file] - length)
        if outside.any():
            k = int(outside.argmax())
            path, n_tokens = self._paths[file[k]], self.n_tokens[file[k]]
            raise ValueError(f"a segment is {length[k]} tokens from token {start[k]} of {path}, which has {n_tokens}")
        return self.first_tokens[file] + start

    def _check_numbers(self, first: Numbers, length: Numbers) -> None:
        n_tokens = int(self.n_tokens.sum())
        if ((first < 0) | (length < 0) | (first > n_tokens - length)).any():
            raise ValueError(f"a segment beyond the {n_tokens} tokens of {len(self._paths)} files")

    def _locate(self, first: Numbers, length: Numbers) -> _Located:
        runs = np.searchsorted(self._ends, first, side="right")
        np.minimum(runs, len(self._ends) - 1, out=runs)  # an empty segment at the end of all tokens
        offsets = (first - self._begins[runs]) * self._sizes[runs] + self._runs.starts[runs]
        return _Located(runs, offsets, ~self._runs.in_place[runs] | (first + length > self._ends[runs]))

    def _mapped_group(self, located: _Located, which: Numbers, kind: int) -> SegmentGroup:
        addresses, owner = self._addresses(self._runs.numbers[located.runs[which]], located.offsets[which])
        selector = selector_of(self._runs.dtypes[kind])
        assert selector is not None  # such segments are copied
        return SegmentGroup(addresses, which, selector, owner)

    def _addresses(self, numbers: Numbers, offsets: Numbers) -> tuple[npt.NDArray[np.uint64], object]:
        """Return the addresses of bytes of mapped segments, and what keeps the mappings."""
        mappings = self._shards.mappings
        bases = mappings.bases[numbers]
        if bases.all():
            return bases + offsets.view(np.uint64), mappings
        needed, places = np.unique(numbers, return_inverse=True)
        arrays = [self._shards.shard(number) for number in needed.tolist()]
        bases = np.array([address_of(array) for array in arrays], np.uint64)[places]
        return bases + offsets.view(np.uint64), arrays

    def _copied_group(self, first: Numbers, length: Numbers, which: Numbers, kind: int) -> SegmentGroup:
        """Copy segments of one dtype into memory."""
        dtype = self._runs.dtypes[kind]
        size, selector = dtype.itemsize, selector_of(dtype)
        n_bytes = length[which] * size
        unit = max(_ALIGNMENT, size)
        ends = np.cumsum(-(-n_bytes // unit) * unit)
        starts = np.concatenate([[0], ends[:-1]])
        memory = np.zeros(int(ends[-1]), np.uint8)
        for token, begin, end in zip(first[which].tolist(), starts.tolist(), (starts + n_bytes).tolist(), strict=True):
            self._read(token, size, memory[begin:end])
        if selector is None:
            memory, starts, size = memory.view(dtype).astype(np.int64), starts // size, 8
            selector = selector_of(memory.dtype)
            starts *= size
        assert selector is not None
        return SegmentGroup(np.uint64(address_of(memory)) + starts.astype(np.uint64), which, selector, memory)

    def _read(self, token: int, size: int, out: npt.NDArray[np.uint8]) -> None:
        """Copy the bytes of the tokens from this one on; they may be in several runs."""
        run, done = int(np.searchsorted(self._ends, token, side="right")), 0
        while done < len(out):
            end, number = int(self._ends[run]), int(self._runs.numbers[run])
            start = int(self._runs.starts[run]) + (token - int(self._begins[run])) * size
            piece = out[done : done + (end - token) * size]
            if self._is_remote[number]:
                self._files.read(number, start, piece)
            else:
                piece[:] = self._shards.shard(number)[start : start + len(piece)]
            token, run, done = end, run + 1, done + len(piece)

    def will_need(self, file: Numbers, start: Numbers, length: Numbers) -> None:
        """Hint the OS, or the block cache of a store, to read these segments; raises as `groups`.

        From the first call on, the OS is advised that mapped files are read at random.
        """
        self.numbered_will_need(self._number(file, start, length), length)

    def numbered_will_need(self, first: Numbers, length: Numbers) -> None:
        """Hint as `will_need`, for segments as of `numbered_groups` without padding."""
        self._check_numbers(first, length)
        self._shards.read_at_random()
        if not len(first) or not len(self._ends):
            return
        runs, offsets, _ = self._locate(first, length)
        numbers, n_bytes = self._runs.numbers[runs], np.minimum(length, self._ends[runs] - first) * self._sizes[runs]
        is_remote = self._is_remote[numbers]
        for k in np.flatnonzero(is_remote).tolist():
            self._files.will_need(int(numbers[k]), int(offsets[k]), int(n_bytes[k]))
        local = np.flatnonzero(~is_remote)
        if self._prefetch.is_due() and len(local):
            addresses, owner = self._addresses(numbers[local], offsets[local])
            self._prefetch.hint(addresses, n_bytes[local])
            del owner  # it kept the mappings

    def check_unchanged(self) -> None:
        """Raise FormatError if a file has changed since it was opened; objects in a store are checked on reading."""
        for segment in self._runs.segments:
            if segment.version is None:
                segment.check_unchanged()

    def close(self) -> None:
        """Release every mapping and file; segments that were returned stay valid."""
        self._shards.close()
        self._files.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_paths": self._paths, "n_tokens": self.n_tokens, "_runs": self._runs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach()


def _runs_of(file: TokenFile) -> _Runs:
    """Return the runs of one file."""
    if isinstance(file, MdsTokens):
        segments, (numbers, rows) = file.shard_segments(), file.places()
        starts, lengths = rows[:, 0], rows[:, 1] // file.dtype.itemsize
    else:
        segments = [_stamped(segment) for segment in file.segments()]
        numbers = np.arange(len(segments))
        starts, lengths = np.zeros_like(numbers), np.array([segment.length for segment in segments], np.int64)
    dtypes = [file.dtype] if segments else []
    has_kernel = bool(dtypes) and selector_of(dtypes[0]) is not None
    mapped = np.array([has_kernel and s.plain and not is_remote(s.path) for s in segments], np.bool_)
    offsets = np.array([segment.offset for segment in segments], np.int64)[numbers] + starts
    in_place = mapped[numbers] & (offsets % (file.dtype.itemsize if dtypes else 1) == 0)
    return _Runs(segments, numbers, starts, lengths, dtypes, np.zeros_like(numbers), in_place)


def _stamped(segment: TokenSegment) -> TokenSegment:
    """Return a segment with a stamp, which detects that its file is replaced; a packed file has none."""
    return replace(segment, stamp=stamp_of(stat_of(segment.path))) if segment.stamp is None else segment


def _concatenated(tables: Sequence[_Runs]) -> _Runs:
    """Return the runs of all files."""
    dtypes = list(dict.fromkeys(dtype for table in tables for dtype in table.dtypes))
    segments = [segment for table in tables for segment in table.segments]
    firsts = accumulate((len(table.segments) for table in tables), initial=0)
    none = np.empty(0, np.int64)
    return _Runs(
        segments,
        np.concatenate([none, *(table.numbers + first for table, first in zip(tables, firsts, strict=False))]),
        np.concatenate([none, *(table.starts for table in tables)]),
        np.concatenate([none, *(table.lengths for table in tables)]),
        dtypes,
        np.concatenate([none, *(table.kinds + dtypes.index(table.dtypes[0]) for table in tables if table.dtypes)]),
        np.concatenate([none.astype(np.bool_), *(table.in_place for table in tables)]),
    )


def _map(segment: TokenSegment) -> npt.NDArray[np.uint8]:
    """Map a segment as bytes."""
    data: npt.NDArray[np.uint8] = segment.open().view(np.uint8)
    if len(data) != (n_bytes := segment.length * segment.dtype.itemsize):
        raise FormatError(segment.path, 0, f"{len(data)} bytes of tokens", f"{n_bytes}, as when opened")
    return data
