"""`prepare` selects what to prepare from the type of its argument."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastpack.webdataset.preparation.dispatch import pairs
from fastpack.webdataset.preparation.path_kinds import kind_of


def test_prepare_selects_by_path(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "a.json").touch()
    (tmp_path / "a.yaml").touch()
    assert kind_of(tmp_path) == "webdataset"
    assert kind_of(tmp_path / "a.jsonl") == "jsonl"
    assert kind_of(tmp_path / "a.yaml") == "metadataset"
    assert kind_of(tmp_path / "a.json") == ""
    with pytest.raises(FileNotFoundError):
        kind_of(tmp_path / "b.jsonl")


def test_split_and_filter_pairs() -> None:
    assert pairs({"train": "a", "val": ["b", "c"]}) == [("train", "a"), ("val", "b"), ("val", "c")]
