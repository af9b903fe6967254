"""`.nv-meta`: files are written byte for byte as by Energon; older files are read; others are rejected."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest

from fastpack.errors import FormatError
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.metadata import NotPrepared, Split

SPLIT = Path(__file__).parents[1] / "golden/energon/split"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    nvmeta.meta_path(tmp_path).mkdir()
    return tmp_path


def test_written_files_match_energon(folder: Path) -> None:
    nvmeta.write_info(folder, nvmeta.read_info(SPLIT))
    split = nvmeta.read_split(SPLIT)
    nvmeta.write_split(folder, split.shards, split.exclude)
    nvmeta.write_dataset_yaml(folder, nvmeta.read_dataset_yaml(SPLIT))
    for name in (".info.json", "split.yaml", "dataset.yaml"):
        assert nvmeta.meta_path(folder, name).read_bytes() == nvmeta.meta_path(SPLIT, name).read_bytes()


def test_reading_the_golden_split(folder: Path) -> None:
    split = nvmeta.read_split(SPLIT)
    assert split.shards["val"] == ["val/v-1.tar"]
    assert len(split.shards["train"]) == 8
    assert split.exclude == []
    assert list(nvmeta.read_info(SPLIT).items())[:2] == [("train/part_00.tar", 2), ("train/part_01.tar", 3)]


def test_long_and_non_ascii_names(folder: Path) -> None:
    long = "/".join(["a folder with a name"] * 8) + ".tar"
    nvmeta.write_split(folder, {"train": [long, "日本-ü.tar", "c{1,2}.tar"]})
    text = nvmeta.meta_path(folder, "split.yaml").read_text()
    assert "\\u65E5\\u672C-\\xFC.tar" in text
    assert max(map(len, text.splitlines())) <= 88
    assert nvmeta.read_split(folder) == Split({"train": [long, "日本-ü.tar", "c{1,2}.tar"]}, [])
    nvmeta.write_info(folder, {"日本.tar": 1})
    assert '"\\u65e5\\u672c.tar": 1' in nvmeta.meta_path(folder, ".info.json").read_text()
    assert nvmeta.read_info(folder) == {"日本.tar": 1}


def test_legacy_info(folder: Path) -> None:
    assert not nvmeta.is_prepared(folder)
    legacy = nvmeta.meta_path(folder, ".info.yaml")
    legacy.write_text("shard_counts:\n  b.tar: 3\n  a.tar: 1\n")
    assert nvmeta.is_prepared(folder)
    assert list(nvmeta.read_info(folder).items()) == [("b.tar", 3), ("a.tar", 1)]
    nvmeta.write_info(folder, {"x.tar": 2, "a.tar": 5})
    assert legacy.read_text() == "energon_version: 7.4.1\nshard_counts:\n  a.tar: 5\n  x.tar: 2\n"
    legacy.write_text("shard_counts: {}\n")
    assert nvmeta.read_info(folder) == {"x.tar": 2, "a.tar": 5}


def test_split_json(folder: Path) -> None:
    nvmeta.write_split(folder, {"train": ["a1.tar", "a2.tar"]}, ["b.tar/key"], name="split.json")
    assert json.loads(nvmeta.meta_path(folder, "split.json").read_text()) == {
        "split_parts": {"train": ["a{1..2}.tar"]},
        "exclude": ["b.tar/key"],
    }
    assert nvmeta.read_split(folder) == Split({"train": ["a1.tar", "a2.tar"]}, ["b.tar/key"])


def test_names_of_splits_are_texts(folder: Path) -> None:
    nvmeta.meta_path(folder, "split.yaml").write_text("split_parts: {yes: [1], 1: []}\nexclude:\n")
    assert nvmeta.read_split(folder) == Split({"yes": ["1"], "1": []}, [])


@pytest.mark.parametrize("name", [".info.json", "split.yaml", "dataset.yaml", "index.uuid"])
def test_permissions(folder: Path, name: str) -> None:
    nvmeta.write_info(folder, {}, 0o640)
    nvmeta.write_split(folder, {}, mode=0o640)
    nvmeta.write_dataset_yaml(folder, {}, mode=0o640)
    nvmeta.write_uuid(folder, 0o640)
    assert stat.S_IMODE(nvmeta.meta_path(folder, name).stat().st_mode) == 0o640


def test_uuids_differ(folder: Path) -> None:
    texts = set()
    for _ in range(3):
        nvmeta.write_uuid(folder)
        texts.add(nvmeta.meta_path(folder, "index.uuid").read_text())
    assert len(texts) == 3
    assert {len(text) for text in texts} == {36}


def test_missing_files_are_errors(folder: Path) -> None:
    with pytest.raises(NotPrepared, match="is not prepared"):
        nvmeta.read_info(folder)
    with pytest.raises(FileNotFoundError):
        nvmeta.read_split(folder)
    with pytest.raises(FileNotFoundError):
        nvmeta.read_dataset_yaml(folder)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".info.json", "{"),
        (".info.json", "[]"),
        (".info.json", '{"shard_counts": {"a.tar": -1}}'),
        (".info.json", '{"shard_counts": {"a.tar": true}}'),
        (".info.json", '{"shard_counts": {"a.tar": "1"}}'),
        (".info.yaml", "shard_counts: {1: 1}"),
        (".info.yaml", "a: &a [1]\nb: *a\n"),
        ("split.yaml", "split_parts: []"),
        ("split.yaml", "- a"),
        ("split.yaml", "split_parts: {train: a}"),
        ("split.yaml", "split_parts: {train: [[a]]}"),
        ("split.yaml", "split_parts: {train: ['{a']}"),
        ("split.yaml", "split_parts: {train: ['{1..999999999}.tar']}"),
        ("split.yaml", "a: [&a b, *a]"),
        ("split.yaml", "{"),
        ("dataset.yaml", "- 1"),
        ("dataset.yaml", "!!python/object:os.system {}"),
        ("dataset.yaml", ""),
    ],
)
def test_damaged_files(folder: Path, name: str, text: str) -> None:
    nvmeta.meta_path(folder, name).write_text(text)
    read = {".info": nvmeta.read_info, "split": nvmeta.read_split, "datas": nvmeta.read_dataset_yaml}[name[:5]]
    with pytest.raises(FormatError, match=name):
        read(folder)


def test_a_copied_golden_is_prepared(folder: Path) -> None:
    shutil.copytree(SPLIT / ".nv-meta", nvmeta.meta_path(folder), dirs_exist_ok=True)
    assert nvmeta.is_prepared(folder)
    assert nvmeta.index_path(folder).is_file()
