"""Facts about JSON Lines files and their indexes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.analysis.document_lengths import LengthCounter, LengthTable
from fastpack.analysis.file_facts import File, FileFacts, length_facts
from fastpack.analysis.options import InspectOptions
from fastpack.documents.json_lines import Rows, count_lines, scan_lines
from fastpack.documents.offset_index import jsonl_offsets_path, read_jsonl_offsets, read_offset_index
from fastpack.documents.raw_index import read_raw_index
from fastpack.documents.raw_index_check import counts_characters, default_index_path, read_raw_index_of
from fastpack.errors import StaleIndex
from fastpack.io import AnyPath, Progress, map_bytes


def jsonl_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    """Return the number and lengths of lines, from the index if there is one. Raises FormatError."""
    data = map_bytes(path)
    index_path, offsets_path = default_index_path(path), jsonl_offsets_path(path)
    warnings: list[str] = []
    index = _index_of(path, data, warnings) if index_path.exists() else None
    if index is not None:
        table, n_lines = LengthTable.of(index[:, 1]), count_lines(data, options.progress)
        if len(index) != n_lines:
            warnings.append(f"the index has {len(index):,} entries, the file {n_lines:,} lines")
    else:
        table = _scan(data, options.progress)
        n_lines = table.documents
    samples = None
    if offsets_path.exists():
        try:
            samples = len(read_jsonl_offsets(path)) - 1
        except StaleIndex as error:
            warnings.append(str(error))
    facts: dict[str, Any] = {
        "path": str(path),
        "kind": "jsonl",
        "bytes": len(data),
        "lines": n_lines,
        "index": str(index_path) if index_path.exists() else None,
        "energon_index": str(offsets_path) if samples is not None else None,
        "energon_samples": samples,
        **length_facts("line_bytes", table),
        "warnings": warnings,
    }
    return FileFacts(facts, "bytes", table, [File(path.name, len(data), None)])


def _index_of(path: AnyPath, data: npt.NDArray[np.uint8], warnings: list[str]) -> Rows | None:
    """Read the rows of the index; None, with a warning, if it does not belong to the file."""
    try:
        index = read_raw_index_of(path, default_index_path(path), data)
    except StaleIndex as error:
        warnings.append(str(error))
        return None
    if counts_characters(data, index):
        warnings.append("the index counts characters, not bytes: `fastpack index --repair-legacy`")
    return index


def index_facts(path: AnyPath, options: InspectOptions) -> FileFacts:
    """Return facts about an index alone: `.idx` of Modalities, or `.jsonl.idx` and `.tar.idx` of Energon."""
    del options
    warnings: list[str] = []
    if path.name.endswith((".jsonl.idx", ".tar.idx")):
        lengths = np.diff(read_offset_index(path))
    else:
        lengths = read_raw_index(path)[:, 1]
        if (raw := path.with_suffix(".jsonl")).is_file():
            _index_of(raw, map_bytes(raw), warnings)
    n_bytes, table = path.stat().st_size, LengthTable.of(lengths)
    facts: dict[str, Any] = {
        "path": str(path),
        "kind": "idx",
        "bytes": n_bytes,
        "entries": len(lengths),
        **length_facts("line_bytes", table),
        "warnings": warnings,
    }
    return FileFacts(facts, "bytes", table, [File(path.name, n_bytes, None)])


def _scan(data: npt.NDArray[np.uint8], progress: Progress | None) -> LengthTable:
    counter = LengthCounter()
    for rows in scan_lines(data, progress):
        counter.add(rows[:, 1].copy())
    return counter.table()
