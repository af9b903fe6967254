"""Index a JSONL file that is a dataset by itself: the offset of each sample, and the file size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastpack.display import Result, facts
from fastpack.documents.json_lines import Rows, scan_lines
from fastpack.documents.offset_index import jsonl_offsets_path
from fastpack.errors import FormatError
from fastpack.io import AnyPath, AtomicFile, PathLike, Progress, as_path, map_bytes

_MAX_QUOTED_BYTES = 60  # of an invalid line, in a message
_RETURN, _OPEN, _CLOSE = 13, 123, 125


@dataclass(frozen=True, slots=True, repr=False)
class JsonlIndexResult(Result):
    """Describe the index that `prepare` wrote for a JSONL file.

    Parameters
    ----------
    path
        The index.
    samples
        Number of samples.
    bytes
        Size of the JSONL file.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "crude.jsonl")
    >>> _ = path.write_text('{"text": "a"}')
    >>> result = fastpack.prepare(path)
    >>> result.path.name, result.samples, result.bytes
    ('crude.jsonl.idx', 1, 13)
    >>> folder.cleanup()
    """

    _shown = facts("path", "samples", "bytes")

    path: AnyPath
    samples: int
    bytes: int


def index_webdataset_jsonl(path: PathLike, *, progress: Progress | None = None) -> JsonlIndexResult:
    """Write ``<stem>.jsonl.idx`` next to a JSONL file, byte for byte as ``energon prepare`` does.

    The index contains the uint64 offset of each sample, and the file size. A sample is a line. Blank lines belong to
    the sample before them (at the start of the file: to the first sample).

    Parameters
    ----------
    path
        The JSONL file.
    progress
        Called with (bytes done, bytes in total).

    Returns
    -------
    JsonlIndexResult
        The path of the index, the number of samples and the size of the file.

    Raises
    ------
    FormatError
        If a line does not start with ``{`` and end with ``}``, or the file has no samples. Nothing is then written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "x.jsonl")
    >>> _ = path.write_bytes(b'{"text": "a"}' + bytes([10]) + b'{"text": "b"}')
    >>> fastpack.index_webdataset_jsonl(path).samples
    2
    >>> fastpack.WebDataset(path)[1]["json"]
    {'text': 'b'}
    >>> folder.cleanup()
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
    """Return the offsets of samples. The first and last byte decide for most lines; the others are stripped first."""
    starts = rows[:, 0].copy()
    ends = starts + rows[:, 1]
    last = np.maximum(ends - 1, starts)
    last -= (data[np.minimum(last, len(data) - 1)] == _RETURN) & (last > starts)
    is_sample = (data[np.minimum(starts, len(data) - 1)] == _OPEN) & (data[last] == _CLOSE) & (last > starts)
    for line in np.flatnonzero(~is_sample).tolist():
        text = data[starts[line] : ends[line]].tobytes().strip()
        if text and not (text.startswith(b"{") and text.endswith(b"}")):
            shown = repr(text[:_MAX_QUOTED_BYTES]) + ("..." if len(text) > _MAX_QUOTED_BYTES else "")
            raise FormatError(path, int(starts[line]), f"the line {shown}", "a JSON object {...}")
        is_sample[line] = bool(text)
    kept: npt.NDArray[np.int64] = starts[is_sample]
    return kept
