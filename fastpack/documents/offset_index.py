"""Offset indexes of Energon: where the samples of a tar (`.tar.idx`) or a JSON Lines file (`.jsonl.idx`) begin.

A file of uint64 [n + 1], little-endian: the start of each sample in bytes, then the end of the last one. The index of a
JSON Lines dataset begins with 0 and ends with the size of the file; each sample is one line, together with the blank
lines around it. Whether such an index belongs to its file is checked for a sample of the lines, and for all lines, in
one pass over the file, if the index is not newer than the file.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from fastpack.documents.json_lines import Rows, scan_lines
from fastpack.errors import FormatError, StaleIndex
from fastpack.io import (
    AnyPath,
    AtomicFile,
    ByteArray,
    PathLike,
    as_path,
    is_remote,
    map_bytes,
    open_bytes,
    peek,
    size_of,
    stat_of,
)

Offsets = npt.NDArray[np.int64]

_NEWLINE, _OPEN = 10, 123
_SAMPLED = 128  # samples checked in every case
_SAMPLED_REMOTE = 4  # each costs a request
_MAX_SAMPLE_BYTES = 1 << 20  # bytes of a sample that are read
_INT64 = np.dtype(np.int64)


def read_offset_index(path: PathLike) -> Offsets:
    """Read the offsets int64 [n + 1] of a `.tar.idx` or `.jsonl.idx` file; the last one is the end of the last sample.

    Raises FileNotFoundError, and FormatError if the file is empty or the offsets are negative or not ascending.
    """
    data = map_bytes(path)
    if len(data) < 8 or len(data) % 8:
        raise FormatError(path, len(data), f"{len(data)} bytes", "one or more offsets of 8 bytes each")
    offsets = data.view("<i8").astype(_INT64, copy=False)  # the mapping itself: processes share it
    if offsets[0] < 0:
        raise FormatError(path, 0, f"the offset {int(offsets[0]) + 2**64}", "one below 2**63")
    wrong = np.flatnonzero(offsets[1:] <= offsets[:-1])
    if len(wrong):
        at = int(wrong[0]) + 1
        raise FormatError(path, 8 * at, f"the offset {offsets[at]}", f"one beyond {offsets[at - 1]}")
    return offsets


def write_offset_index(path: PathLike, offsets: Offsets, *, mode: int | None = None) -> None:
    """Write offsets int64 [n + 1], replacing `path`; `mode` is the permissions of a new file."""
    with AtomicFile(path, follow=False) as file:
        if mode is not None:
            file.set_mode(mode)
        file.write(np.ascontiguousarray(offsets, "<i8"))


def jsonl_offsets_path(lines_path: PathLike) -> AnyPath:
    """Return the path of the offset index of a JSON Lines file: `x.jsonl.idx` next to `x.jsonl`."""
    return as_path(lines_path).with_suffix(".jsonl.idx")


def read_jsonl_offsets(lines_path: PathLike) -> Offsets:
    """Read the offsets int64 [n + 1] of the samples of a JSON Lines file; the last one is the size of the file.

    Raises FileNotFoundError, FormatError as `read_offset_index`, and StaleIndex (a FormatError) if the index does not
    belong to the current contents of the file.
    """
    index_path = jsonl_offsets_path(lines_path)
    if not index_path.is_file():
        raise FileNotFoundError(f"{index_path} does not exist: `fastpack prepare {os.fspath(lines_path)}` writes it")
    offsets = read_offset_index(index_path)
    check_jsonl_bounds(offsets, size_of(lines_path), lines_path)
    _check_jsonl_offsets(lines_path, index_path, offsets)
    return offsets


def check_jsonl_bounds(offsets: Offsets, n_bytes: int, lines_path: PathLike) -> None:
    """Raise StaleIndex unless the offsets of `lines_path` go from 0 to `n_bytes`."""
    for place, expected in ((0, 0), (len(offsets) - 1, n_bytes)):
        if offsets[place] != expected:
            raise _stale(lines_path, f"its {'last' if place else 'first'} offset is {offsets[place]}, not {expected}")


def _check_jsonl_offsets(lines_path: PathLike, index_path: PathLike, offsets: Offsets) -> None:
    """Raise StaleIndex if the samples are not the lines of the file."""
    data = open_bytes(lines_path)
    fault = _sample_fault(data, offsets)
    if fault is None and not (is_remote(lines_path) or is_remote(index_path)):
        older = stat_of(index_path).st_mtime_ns <= stat_of(lines_path).st_mtime_ns
        fault = jsonl_offsets_fault(data, offsets) if older else None
    if fault is not None:
        raise _stale(lines_path, fault)


def _stale(lines_path: PathLike, fault: str) -> StaleIndex:
    remedy = f"`fastpack prepare {os.fspath(lines_path)}` rebuilds it"
    return StaleIndex(jsonl_offsets_path(lines_path), lines_path, fault, remedy)


def _sample_fault(data: ByteArray, offsets: Offsets) -> str | None:
    n_samples = len(offsets) - 1
    most = _SAMPLED if isinstance(data, np.ndarray) else _SAMPLED_REMOTE
    for number in {int(number) for number in np.linspace(0, n_samples - 1, min(n_samples, most))}:
        start, end = offsets[number : number + 2].tolist()
        text = peek(data, start, min(end, start + _MAX_SAMPLE_BYTES)).tobytes()
        if start and peek(data, start - 1, start)[0] != _NEWLINE:
            return f"no line begins at byte {start}"
        if b"\n" in text.strip():
            return f"sample {number}, at byte {start}, is more than one line"
    return None


def jsonl_offsets_fault(data: ByteArray, offsets: Offsets) -> str | None:
    """Describe the first line that is not a sample of its own; None if each sample is one line."""
    n_lines = 0
    for rows in scan_lines(data):
        starts = _starts_of_text(data, rows)
        known = offsets[n_lines : n_lines + len(starts)].copy()
        if n_lines == 0 and len(starts):
            known[0] = starts[0]  # blank lines before the first sample belong to it
        if len(known) < len(starts) or (known != starts).any():
            first = int(starts[int((known != starts[: len(known)]).argmax()) if len(known) else 0])
            return f"no sample begins with the line at byte {first}"
        n_lines += len(starts)
    return None if n_lines == len(offsets) - 1 else f"{len(offsets) - 1} samples for {n_lines} lines"


def _starts_of_text(data: ByteArray, rows: Rows) -> Offsets:
    """Return the starts of the lines that are not blank."""
    starts = rows[:, 0].copy()
    lengths = rows[:, 1]
    base = int(starts[0])
    text = data[base : int(rows[-1].sum())]
    is_text = lengths > 0
    is_text[is_text] = text[starts[is_text] - base] == _OPEN
    for row in np.flatnonzero(~is_text & (lengths > 0)).tolist():
        offset = int(starts[row]) - base
        is_text[row] = bool(text[offset : offset + int(lengths[row])].tobytes().strip())
    kept: Offsets = starts[is_text]
    return kept
