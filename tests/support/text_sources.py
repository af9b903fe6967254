"""The same texts as JSON Lines, Parquet, Arrow, CSV and plain text files."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FORMATS = ("parquet", "arrow_file", "arrow_stream", "csv", "tsv", "csv.gz", "text")
SEPARATOR = "\n\N{BLACK SQUARE}\n"


def table_of(texts: Sequence[str | None], kind: pa.DataType | None = None) -> pa.Table:
    """Return a table with the texts in the columns `text` and `meta.text`, and with other columns."""
    column = pa.array(texts, kind or pa.string())
    return pa.table(
        {
            "id": pa.array(range(len(texts))),
            "text": column,
            "meta": pa.StructArray.from_arrays([column, pa.array(range(len(texts)))], ["text", "n"]),
        }
    )


def write_parquet(
    path: Path, texts: Sequence[str | None], group_rows: int = 50, kind: pa.DataType | None = None
) -> Path:
    """Write a Parquet file with row groups of `group_rows` rows."""
    pq.write_table(table_of(texts, kind), path, row_group_size=group_rows)
    return path


def write_arrow(path: Path, texts: Sequence[str | None], *, stream: bool, kind: pa.DataType | None = None) -> Path:
    """Write an Arrow IPC file or stream with record batches of 50 rows."""
    table = table_of(texts, kind)
    opened = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, opened(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    return path


def write_texts(folder: Path, format: str, texts: Sequence[str], name: str = "corpus") -> Path:
    """Write texts in one of FORMATS; return the path. Plain text has SEPARATOR between the texts."""
    if format == "parquet":
        return write_parquet(folder / f"{name}.parquet", texts)
    if format.startswith("arrow"):
        return write_arrow(folder / f"{name}_{format}.arrow", texts, stream=format == "arrow_stream")
    path = folder / f"{name}.{'txt' if format == 'text' else format}"
    if format == "text":
        path.write_text("".join(text + SEPARATOR for text in texts), newline="")
        return path
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    with plain.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if format == "tsv" else ",")
        writer.writerows([("id", "text"), *enumerate(texts)])
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    return path


def write_jsonl(path: Path, texts: Sequence[str | None]) -> Path:
    """Write the same texts as JSON Lines."""
    path.write_text("".join(json.dumps({"text": text, "meta": {"text": text}}) + "\n" for text in texts))
    return path
