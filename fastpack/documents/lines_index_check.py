"""Whether a `.jsonl.idx`, the offsets of the samples of a JSON lines dataset, belongs to its file as that is now.

Its last offset is the size of the file. Beyond that each sample has to be one line: checked for a sample of them, and
for all of them, in one pass over the file, when the index is not newer than the file.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from fastpack.documents.json_lines import Rows, scan_lines
from fastpack.errors import StaleIndex
from fastpack.io import ByteArray, PathLike, is_remote, open_bytes, peek, stat_of

_NEWLINE, _OPEN = 10, 123
_SAMPLED = 128
_SAMPLED_REMOTE = 4  # each costs a request
_MOST_OF_A_SAMPLE = 1 << 20  # bytes

Offsets = npt.NDArray[np.int64]


def check_lines_index(lines_path: PathLike, index_path: PathLike, offsets: Offsets) -> None:
    """Raise StaleIndex when `offsets` (int64[n + 1], from 0 to the file's size) are not those of the lines."""
    data = open_bytes(lines_path)
    fault = _fault_of_sample(data, offsets)
    if fault is None and not (is_remote(lines_path) or is_remote(index_path)):
        older = stat_of(index_path).st_mtime_ns <= stat_of(lines_path).st_mtime_ns
        fault = fault_of_lines(data, offsets) if older else None
    if fault is not None:
        raise StaleIndex(index_path, lines_path, fault, f"`fastpack prepare {os.fspath(lines_path)}` rebuilds it")


def _fault_of_sample(data: ByteArray, offsets: Offsets) -> str | None:
    n_samples = len(offsets) - 1
    most = _SAMPLED if isinstance(data, np.ndarray) else _SAMPLED_REMOTE
    for number in {int(number) for number in np.linspace(0, n_samples - 1, min(n_samples, most))}:
        start, end = offsets[number : number + 2].tolist()
        text = peek(data, start, min(end, start + _MOST_OF_A_SAMPLE)).tobytes()
        if start and peek(data, start - 1, start)[0] != _NEWLINE:
            return f"no line begins at byte {start}"
        if b"\n" in text.strip():
            return f"sample {number}, at byte {start}, is more than one line"
    return None


def fault_of_lines(data: ByteArray, offsets: Offsets) -> str | None:
    """The first line that is not a sample of its own; None where each sample is one line."""
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
    """Where the lines begin that are not blank."""
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
