"""Facts about text sources that are not JSON Lines: Parquet, Arrow, CSV, TSV and plain text files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fastpack.analysis.document_lengths import LengthCounter, LengthTable
from fastpack.analysis.file_facts import File, FileFacts, length_facts
from fastpack.analysis.options import InspectOptions
from fastpack.documents.arrow_sources import ParquetTable, TextTable, open_table
from fastpack.documents.source_formats import SourceFormat, source_format
from fastpack.documents.text_columns import TextBatch
from fastpack.documents.text_files import read_text_file
from fastpack.errors import FormatError, counted
from fastpack.io import AnyPath, is_remote, size_of

DEFAULT_FIELD = "text"
_BATCH = 4 << 20  # bytes
_CODECS = {".gz": "gzip", ".zst": "zstd"}  # by the suffix of a compressed file


def table_facts(path: AnyPath, files: Sequence[str], options: InspectOptions) -> FileFacts:
    """Return the columns and rows of the files, and the lengths of the texts unless `options.quick` is set.

    Raises FormatError for a damaged file, MissingExtra without pyarrow, ValueError for `options.text_field` where it is
    not a column of strings. A default column that does not exist is a warning.
    """
    kind = source_format(files[0])
    sizes = [size_of(file) for file in files]
    layout = _layout(files, kind, options)
    warnings: list[str] = []
    field = None if kind == "text" else _text_field(files, kind, options.text_field, warnings)
    table: LengthTable | None = None
    nulls = None
    if not options.quick and (field is not None or kind == "text"):
        table, nulls = _lengths(files, sizes, kind, field, options)
        layout["rows"] = table.documents + nulls
    if nulls:
        warnings.append(f"{counted(nulls, 'row')} without a text, which packing skips")
    facts: dict[str, Any] = {
        "path": str(path),
        "kind": kind,
        "bytes": sum(sizes),
        "files": len(files),
        **layout,
        "text_field": field,
        "nulls": nulls,
        **length_facts("text_bytes", table),
        "warnings": warnings,
    }
    named = [File(os.path.basename(file), size, None) for file, size in zip(files, sizes, strict=True)]
    return FileFacts(facts, "bytes", table, named)


def _layout(files: Sequence[str], kind: SourceFormat, options: InspectOptions) -> dict[str, Any]:
    """Return the rows, groups, columns and codecs of the files; the columns are those of the first file."""
    if kind in ("csv", "tsv", "text"):
        found = {_CODECS.get(os.path.splitext(file)[1], "none") for file in files}
        columns = None if kind == "text" else column_types(open_table(files[0], kind, None))
        return {"rows": None, "row_groups": None, "columns": columns, "compression": sorted(found)}
    tables = [open_table(file, kind, None) for file in files]
    codecs = {codec for table in tables if isinstance(table, ParquetTable) for codec in table.codecs}
    is_read = kind == "arrow" and options.quick and any(map(is_remote, files))  # all of it, to count its rows
    groups = None if is_read else [table.group_rows() for table in tables]
    return {
        "rows": None if groups is None else sum(int(np.sum(rows)) for rows in groups if rows is not None),
        "row_groups": None if groups is None else sum(len(rows) for rows in groups if rows is not None),
        "columns": column_types(tables[0]),
        "compression": sorted(codecs) if kind == "parquet" else None,
    }


def column_types(table: TextTable) -> dict[str, str]:
    """Return the columns of a table with their types in Arrow's notation."""
    return {field.name: str(field.type) for field in table.schema}


def _text_field(files: Sequence[str], kind: SourceFormat, given: str | None, warnings: list[str]) -> str | None:
    """Return the name of the text column; None, with a warning, if a file does not have the default one."""
    name = given or DEFAULT_FIELD
    try:
        for file in files:
            open_table(file, kind, name.split("."))
    except FormatError:
        raise
    except ValueError as error:
        if given is not None:
            raise
        warnings.append(f"{error}; pass --text-field NAME, the column of the texts")
        return None
    return name


def _lengths(
    files: Sequence[str], sizes: Sequence[int], kind: SourceFormat, field: str | None, options: InspectOptions
) -> tuple[LengthTable, int]:
    """Return the lengths of all texts in bytes, and the number of rows without a text."""
    counter, missing, before = LengthCounter(), 0, 0
    for file, size in zip(files, sizes, strict=True):
        for batch in _texts(file, kind, field, options.split_on):
            lengths = batch.rows[:, 1]
            present = lengths >= 0
            counter.add(lengths[present])
            missing += int(np.count_nonzero(~present))
            if options.progress is not None:
                options.progress(before + min(batch.done, size), sum(sizes))
        before += size
    return counter.table(), missing


def _texts(file: str, kind: SourceFormat, field: str | None, split_on: str | None) -> Iterator[TextBatch]:
    if field is None:
        return read_text_file(file, None if split_on is None else split_on.encode(), 0, _BATCH)
    return open_table(file, kind, field.split(".")).read(0, None, _BATCH)
