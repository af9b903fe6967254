"""Facts that `inspect` reports about a prepared WebDataset."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fastpack import inspect
from fastpack.cli import main
from fastpack.errors import FormatError


def test_facts_of_an_energon_dataset(prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspect(prepared)
    sizes = sum(path.stat().st_size for path in prepared.rglob("*.tar"))
    assert found["kind"] == "webdataset"
    assert (found["bytes"], found["shards"], found["samples"]) == (sizes, 10, 19)
    assert found["type"] == "CaptioningSample"
    assert found["fields"] == {"image": "jpg", "caption": "json[caption],txt"}
    assert found["energon_version"] == "7.4.1"
    assert list(found["parts"]) == ["jpg", "json", "mask.png", "txt"]
    assert found["parts"]["jpg"] == {"count": 19, "bytes": 11_999}
    assert found["split"] == {
        "train": {"shards": 8, "samples": 14},
        "val": {"shards": 1, "samples": 2},
        "test": {"shards": 1, "samples": 3},
    }
    assert found["warnings"] == []
    lengths = np.concatenate([np.diff(np.fromfile(path, "<i8")) for path in prepared.rglob("*.tar.idx")])
    assert found["sample_bytes"]["mean"] == round(lengths.mean(), 2)
    assert sum(one["documents"] for one in found["histogram"]["bins"]) == 19
    assert main(["info", str(prepared)]) == 0
    text = capsys.readouterr().out
    assert "jpg (count 19  bytes 11,999)" in text
    assert "train (shards 8  samples 14)" in text
    assert main(["info", "--json", str(prepared)]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_facts_of_a_crude_dataset(make: Callable[..., Path]) -> None:
    folder = make({"a.tar": [("k.txt", b"abc"), ("k.json", b"{}")]}, {"train": ["a.tar"]}, ["a.tar"])
    found = inspect(folder)
    assert (found["type"], found["fields"]) == ("CrudeWebdataset", None)
    assert found["split"] == {"train": {"shards": 0, "samples": 0}}
    assert found["excluded"] == 1


def test_missing_files_are_warnings(prepared: Path) -> None:
    (prepared / "train" / "part_00.tar").unlink()
    (prepared / ".nv-meta" / "dataset.yaml").unlink()
    (prepared / ".nv-meta" / "split.yaml").unlink()
    (prepared / ".nv-meta" / "index.sqlite").unlink()
    next(prepared.rglob("*.tar.idx")).unlink()
    found = inspect(prepared)
    assert (found["type"], found["parts"], found["split"], found["sample_bytes"]) == (None, None, None, None)
    assert len(found["warnings"]) == 5
    assert "1 of 10 shards" in found["warnings"][0]


def test_listed_field_names_are_limited(prepared: Path) -> None:
    with sqlite3.connect(prepared / ".nv-meta" / "index.sqlite") as db:
        rows = ((0, 0, f"p{i}", 0, 1) for i in range(200))
        db.executemany("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)", rows)
    db.close()
    found = inspect(prepared)
    assert len(found["parts"]) == 100
    assert "204 field names" in found["warnings"][0]


def test_damaged_files_are_errors(prepared: Path) -> None:
    (prepared / ".nv-meta" / "split.yaml").write_text("split_parts: {train: [absent.tar]}")
    with pytest.raises(FormatError, match=r"absent\.tar"):
        inspect(prepared)
    (prepared / ".nv-meta" / ".info.json").unlink()
    with pytest.raises(FileNotFoundError, match="is not prepared"):
        inspect(prepared)
