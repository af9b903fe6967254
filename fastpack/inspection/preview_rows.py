"""The first rows of Parquet, Arrow, CSV, TSV and plain text sources: the text that packing uses, or why it skips it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from fastpack.documents.json_fields import FaultyDocument, decode
from fastpack.documents.text_columns import REASONS, TextBatch
from fastpack.inspection.preview_lines import MAX_CHARACTERS, describe_text
from fastpack.inspection.preview_tokens import Reader
from fastpack.packing.settings import Source, find_pack_sources
from fastpack.packing.source_batches import open_source_table, read_source_texts

_BATCH = 1 << 16  # bytes


def preview_rows(
    files: Sequence[str],
    pattern: str = ".text",
    split_on: str | None = None,
    reader: Reader | None = None,
    start: int = 0,
    max_characters: int = MAX_CHARACTERS,
) -> Iterator[dict[str, Any]]:
    """Yield rows from number `start` on, counted over all files: {"file", "row", "bytes", "text", "error"}.

    row: its number in its file, from 0; bytes: length of the text, None if there is none; text: as `preview_lines`, but
    None without a text; error and the items of tokens: as `preview_lines`. Raises as `find_pack_sources` and
    `open_table`, and ValueError if there is no row `start`.
    """
    number = 0  # of the first row of a file
    for source in find_pack_sources(list(files), None, "optional", text_pattern=pattern, split_on=split_on):
        n_rows = _known_rows(source) if number < start else None
        if n_rows is None or number + n_rows > start:
            first = 0 if n_rows is None else start - number
            n_rows = 0
            for batch in read_source_texts(source, first, None, _BATCH):
                n_rows = batch.first_row + len(batch.rows)
                for row in range(max(batch.first_row, start - number), n_rows):
                    yield _describe(source.path, row, batch, reader, max_characters)
        number += n_rows
    if start >= max(1, number):
        raise ValueError(f"there is no row {start}: the source has {number}, counted from 0")


def _known_rows(source: Source) -> int | None:
    """Return the number of rows; None if only reading the whole file would tell."""
    group_rows = open_source_table(source).group_rows() if source.is_splittable else None
    return None if group_rows is None else int(group_rows.sum())


def _describe(path: str, row: int, batch: TextBatch, reader: Reader | None, max_characters: int) -> dict[str, Any]:
    start, length = batch.rows[row - batch.first_row].tolist()
    found: dict[str, Any] = {"file": os.path.basename(path), "row": row, "bytes": length}
    if length < 0:
        return found | {"bytes": None, "text": None, "error": REASONS[length]}
    try:
        text = decode(batch.data[start : start + length].data, "the text")
    except FaultyDocument as error:
        return found | {"text": None, "error": str(error)}
    return found | describe_text(text, reader, max_characters, f"{path}, row {row}")
