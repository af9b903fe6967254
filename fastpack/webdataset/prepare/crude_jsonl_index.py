"""The index of a JSON lines file that is a dataset by itself: where each sample starts, and where the file ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastpack.display import Result, facts
from fastpack.documents.json_lines import Rows, scan_lines
from fastpack.documents.offset_index import jsonl_offsets_path
from fastpack.errors import FormatError
from fastpack.io import AnyPath, AtomicFile, PathLike, Progress, as_path, map_bytes

_QUOTED = 60  # bytes of a faulty line that the message quotes
_RETURN, _OPEN, _CLOSE = 13, 123, 125


@dataclass(frozen=True, slots=True, repr=False)
class JsonlIndexResult(Result):
    """What `index_webdataset_jsonl` wrote: the index's path, the samples in it, the bytes of the JSON lines."""

    _shown = facts("path", "samples", "bytes")

    path: AnyPath
    samples: int
    bytes: int


def index_webdataset_jsonl(path: PathLike, *, progress: Progress | None = None) -> JsonlIndexResult:
    """Write `<stem>.jsonl.idx` beside a JSON lines file, byte for byte as `energon prepare` does.

    It holds the uint64 offsets at which samples start, and the file's size. A sample is a line; blank lines belong to
    the one before (at the start to the first). Raises FormatError for a line that does not start with `{` and end with
    `}` and for a file without samples; then nothing is written. progress(bytes done, in all).
    """
    source = as_path(path)
    target = jsonl_offsets_path(source)
    data = map_bytes(source)
    n_samples = 0
    with AtomicFile(target, follow=False) as file:
        for rows in scan_lines(data, progress):
            starts = _sample_starts(source, data, rows)
            if n_samples == 0 and len(starts):
                starts[0] = 0
            file.write(starts.astype("<u8", copy=False))
            n_samples += len(starts)
        if n_samples == 0:
            raise FormatError(source, 0, "blank lines only" if len(data) else "an empty file", "at least one sample")
        file.write(np.array([len(data)], "<u8"))
    return JsonlIndexResult(target, n_samples, len(data))


def _sample_starts(path: AnyPath, data: npt.NDArray[np.uint8], rows: Rows) -> npt.NDArray[np.int64]:
    """Where the lines start that are samples: most show at their first and last byte, the rest is stripped."""
    starts = rows[:, 0].copy()
    ends = starts + rows[:, 1]
    last = np.maximum(ends - 1, starts)
    last -= (data[np.minimum(last, len(data) - 1)] == _RETURN) & (last > starts)
    is_sample = (data[np.minimum(starts, len(data) - 1)] == _OPEN) & (data[last] == _CLOSE) & (last > starts)
    for line in np.flatnonzero(~is_sample).tolist():
        text = data[starts[line] : ends[line]].tobytes().strip()
        if text and not (text.startswith(b"{") and text.endswith(b"}")):
            shown = repr(text[:_QUOTED]) + ("..." if len(text) > _QUOTED else "")
            raise FormatError(path, int(starts[line]), f"the line {shown}", "a JSON object {...}")
        is_sample[line] = bool(text)
    kept: npt.NDArray[np.int64] = starts[is_sample]
    return kept
