"""Tables that Hugging Face's datasets writes are packed as the same texts in JSON Lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foreign_documents import read

import fastpack

datasets = pytest.importorskip("datasets")

TEXTS = [f"{'word ' * (number % 9)}{number} é\N{BLACK SQUARE}\n" for number in range(300)]
WRITERS: dict[str, Callable[[Any, Path], object]] = {
    "folder": lambda table, path: table.save_to_disk(path),
    "folder of shards": lambda table, path: table.save_to_disk(path, num_shards=3),
    "x.parquet": lambda table, path: table.to_parquet(path),
    "x.csv": lambda table, path: table.to_csv(path),
    "x.jsonl": lambda table, path: table.to_json(path),
}


def pack(source: Path, output: Path) -> list[list[int]]:
    return read(Path(fastpack.pack(source, output, tokenizer="bytes", num_workers=1).path))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("view", ["whole", "selected", "large", "nulls"])
def test_its_tables_are_sources(tmp_path: Path, name: str, view: str) -> None:
    texts: list[str | None] = [None if view == "nulls" and k % 7 == 0 else text for k, text in enumerate(TEXTS)]
    table = datasets.Dataset.from_dict({"id": range(300), "text": texts})
    if view == "selected":
        table = table.select(range(299, -1, -3)).filter(lambda row: row["id"] % 2 == 0)
    if view == "large":
        table = table.cast_column("text", datasets.Value("large_string"))
    expected = [[*text.encode(), 256] for text in table["text"] if text]
    WRITERS[name](table, tmp_path / name)
    assert pack(tmp_path / name, tmp_path / "out.pbin") == expected
