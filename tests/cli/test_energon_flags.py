"""The flags of Energon's commands other than `prepare`."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import Cli

import fastpack
from fastpack.webdataset.browsing.mount_tree import SampleTree


@pytest.fixture
def dataset(golden: Path, tmp_path: Path) -> Path:
    """A dataset with a second split file and definition; a sample of its split `odd` cannot be decoded."""
    folder = Path(shutil.copytree(golden / "energon" / "split", tmp_path / "set"))
    meta = folder / ".nv-meta"
    (meta / "few.yaml").write_text(
        "split_parts:\n  one: [train/part_00.tar]\n  odd: [val/v-1.tar]\n  none: []\nexclude: []\n"
    )
    (meta / "text.yaml").write_text(
        "sample_type: {__module__: megatron.energon, __class__: TextSample}\nfield_map: {text: 'txt,json[caption]'}\n"
    )
    shard = folder / "val/v-1.tar"
    data = shard.read_bytes()
    shard.write_bytes(data.replace(b"\xff\xd8\xff", b"\x00\xd8\xff"))  # its images are invalid
    return folder


def test_version(cli: Cli) -> None:
    assert cli("-V").out.startswith(f"fastpack {fastpack.__version__}\n")


def test_info(dataset: Path, cli: Cli) -> None:
    found = cli.json("info", str(dataset), "--split-config", "few.yaml", "--dataset-config", "text.yaml")
    assert (found["type"], found["fields"]) == ("TextSample", {"text": "txt,json[caption]"})
    assert list(found["split"]) == ["one", "odd", "none"]
    found = cli.json("info", str(dataset), "--split-parts", "val,train")
    assert list(found["split"]) == ["val", "train"]
    for words, message in (
        (["--split-parts", "nobody"], "split.yaml has no split 'nobody', only 'train', 'val', 'test'"),
        (["--split-config", "gone.yaml"], "gone.yaml"),
        (["--dataset-config", "gone.yaml"], "gone.yaml"),
    ):
        assert message in cli("info", dataset, *words, code=1).err


def test_lint(dataset: Path, cli: Cli) -> None:
    few = ["--split-config", "few.yaml", "--parallel", "3"]
    found = cli.json("lint", str(dataset), *few, "--split-parts", "one,none")
    assert (found["sound"], found["checked"]["decoded"]) == (True, 2)
    found = cli.json("lint", str(dataset), *few, "--split-parts", "one,odd", code=3)
    assert any("cannot be decoded" in one["found"] for one in found["findings"] if one["severity"] == "error")
    text = ["--split-parts", "odd", "--dataset-config", "text.yaml"]  # does not read images
    assert cli.json("lint", str(dataset), *few, *text)["sound"]
    assert not cli.json("lint", str(dataset), "--dataset-config", "gone.yaml", code=3)["sound"]
    assert "has no split 'nobody'" in cli("lint", dataset, "--split-parts", "nobody", code=1).err


def test_preview(dataset: Path, cli: Cli) -> None:
    words = ["preview", str(dataset), "-n", "9", "--split-config", "few.yaml"]
    found = cli.json(*words, "--split-parts", "odd,none,one")["samples"]
    assert [(one["index"], one["key"]) for one in found] == [
        *((0, "val_v-1_0"), (1, "val_v-1_1")),
        *((2, "train_part_00_0"), (3, "train_part_00_1")),
    ]
    later = cli.json(*words, "--split-parts", "odd,one", "--start", "3")["samples"]
    assert [one["key"] for one in later] == ["train_part_00_1"]
    found = cli.json(*words, "--split-part", "one", "--dataset-config", "text.yaml")["samples"]
    assert {field["name"] for sample in found for field in sample["parts"]} == {"txt", "json"}
    assert "has no split 'nobody'" in cli("preview", dataset, "--split-parts", "nobody", code=1).err


def test_mount(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    calls: list[Any] = []
    monkeypatch.setitem(sys.modules, "mfusepy", SimpleNamespace(FUSE=lambda *args, **_: calls.append(args)))
    expected = {entry.name: entry for entry in SampleTree(dataset, sample_folders=True).entries("train_part_00_1")}
    db = sqlite3.connect(dataset / ".nv-meta" / "index.sqlite")
    db.executescript("DROP TABLE sample_parts")  # as Energon 6 wrote it
    db.close()
    target = tmp_path / "target"
    target.mkdir()
    assert "--sample-folders --allow-slow" in cli("mount", dataset, target, "-s", code=1).err
    assert "--allow-slow needs --sample-folders" in cli("mount", dataset, target, "--allow-slow", code=1).err
    cli("mount", dataset, target, "-s", "-w")
    ((operations, _),) = calls
    assert operations.getattr("/train_part_00_1/txt")["st_size"] == expected["txt"].n_bytes
    tree = SampleTree(dataset, sample_folders=True, allow_slow=True)
    assert {entry.name: entry for entry in tree.entries("train_part_00_1")} == expected
    raw = fastpack.WebDataset(dataset, raw=True).get("train_part_00_1")
    assert {name: tree.open(f"train_part_00_1/{name}").read(0, 1 << 20) for name in expected} == {
        name: raw[name] for name in expected
    }
