"""The comparison with Megatron-Energon: its inputs, measurements and results. Energon itself is not needed."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module", autouse=True)
def peers() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "asv_benchmarks"))
    yield
    sys.path.remove(str(ROOT / "asv_benchmarks"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "peers"]:
        del sys.modules[name]


@pytest.fixture
def prepared(golden: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return two copies of a dataset that Energon prepared."""
    for side in ("theirs", "ours"):
        shutil.copytree(golden / "energon" / "split", tmp_path / side)
    return tmp_path / "theirs", tmp_path / "ours"


def execute(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    db.executescript(statement)
    db.close()


def test_differences_of_prepared_folders(prepared: tuple[Path, Path]) -> None:
    from peers.prepared import differences

    theirs, ours = prepared
    assert differences(theirs, ours) == []
    meta = ours / ".nv-meta"
    meta.joinpath("index.uuid").write_text("00000000-0000-4000-8000-000000000000")
    execute(meta / "index.sqlite", "UPDATE media_filters SET created_at_utc = 'now'")
    assert differences(theirs, ours) == []
    meta.joinpath("index.uuid").write_text("no")
    (ours / "train" / "part_00.tar.idx").unlink()
    meta.joinpath("split.yaml").write_text("other")
    execute(meta / "index.sqlite", "UPDATE samples SET byte_size = 1 WHERE sample_key = 'train_part_01_2'")
    found = differences(theirs, ours)
    assert found[0] == "train/part_00.tar.idx: only in one of them"
    assert ".nv-meta/index.uuid: not a uuid" in found
    assert ".nv-meta/split.yaml: other bytes" in found
    assert any("samples, sorted row 4: " in text and "'train_part_01_2'" in text for text in found)
    assert len(found) == 4


def test_tables_and_rows_on_one_side_only(prepared: tuple[Path, Path]) -> None:
    from peers.prepared import differences

    theirs, ours = prepared
    index = ours / ".nv-meta" / "index.sqlite"
    execute(index, "DELETE FROM samples WHERE tar_file_id = 9 AND sample_index = 2")
    assert any("None here" in text for text in differences(theirs, ours))
    execute(index, "DROP INDEX idx_sample_parts_seq")
    assert any("schema: " in text and "idx_sample_parts_seq" in text for text in differences(theirs, ours))


def test_empty_folders_are_not_equal(tmp_path: Path) -> None:
    from peers.prepared import differences

    assert differences(tmp_path, tmp_path) == ["nothing was written"]


def test_shards_have_the_described_contents(tmp_path: Path) -> None:
    from peers.tars import ALL_SHARDS, make_shards

    small = ALL_SHARDS[0].scaled(0.002)
    make_shards(tmp_path / "a", small)
    make_shards(tmp_path / "b", small)
    assert small.n_samples == 10
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [small.file_name(number) for number in range(8)]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with tarfile.open(tmp_path / "a" / names[3]) as tar:
        members = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    assert len(members) == 30
    key = small.key(3, 4)
    assert members[f"{key}.txt"].decode() == small.caption(3, 4)
    assert json.loads(members[f"{key}.json"])["caption"] == small.caption(3, 4)
    from PIL import Image

    with Image.open(io.BytesIO(members[f"{key}.jpg"])) as picture:
        picture.load()
        assert picture.mode == "RGB"
    sizes = [len(data) for name, data in members.items() if name.endswith("jpg")]
    assert 2_000 < sum(sizes) / len(sizes) < 4_000


def test_lines_are_json(tmp_path: Path) -> None:
    from peers.tars import make_lines

    make_lines(tmp_path / "a.jsonl", 500)
    lines = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["id"] for line in lines] == list(range(500))
    assert len({len(line) for line in lines}) > 50


def test_splits_requested_from_the_loader() -> None:
    from peers.energon import expected_of
    from peers.tars import ALL_SHARDS

    small, text, pictures = (expected_of(shards.scaled(0.001)) for shards in ALL_SHARDS)
    assert {split: found["samples"] for split, found in small.items()} == {"train": 30, "val": 5, "test": 5}
    assert {split: found["samples"] for split, found in text.items()} == {"train": 100}
    assert {split: found["samples"] for split, found in pictures.items()} == {"train": 4, "val": 2, "test": 2}
    assert small["val"]["digest"] != small["test"]["digest"]


def row(**changes: Any) -> Any:
    from peers.energon import Row

    sides = {
        "peer": {"cpu": 5.0, "wall": 4.0, "peak": 258e6},
        "ours": {"cpu": 0.1, "wall": 0.2, "peak": 40e6},
    }
    return Row("tars", 25, **{**sides, "loaded": 7, "expected": 7, **changes})


def test_a_row_and_its_targets() -> None:
    assert row().failures == []
    assert row().cells() == [
        *("tars", "5 / 4 s", "0.1 / 0.2 s", "**50x**", "25x", "20x", "258 / 40 MB", "yes", "7 of 7"),
    ]
    assert row(ours={"cpu": 0.5, "wall": 0.5, "peak": 101e6}).failures == [
        "10x, expected at least 25x",
        "101 MB, expected at most 100",
    ]
    assert row(different=["x: other bytes"]).failures == ["differs: x: other bytes"]
    assert row(note="fastpack ended with 1").failures == ["fastpack ended with 1"]
    assert row(note="fastpack ended with 1").cells()[-1] == "fastpack ended with 1"
    assert len(row(note="x").cells()) == len(row().cells())
    assert row().as_json()["failures"] == []


def test_a_process_is_measured_with_its_children(tmp_path: Path) -> None:
    from peers.energon import Comparison, RunFailure

    comparison = Comparison(tmp_path, sys.executable, 1, 1.0)
    child = "x = bytearray(150_000_000); sum(range(10**7))"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    found = comparison._run("fastpack", [sys.executable, "-c", code])
    assert found["code"] == 0
    assert found["cpu"] > 0.05
    assert found["wall"] > 0.05
    assert 150e6 < found["peak"] < 250e6
    small = comparison._run("fastpack", [sys.executable, "-I", "-S", "-c", "pass"])
    assert small["peak"] < 40e6  # excludes the memory of this process
    with pytest.raises(RunFailure, match="fastpack ended with 3: so it is"):
        comparison._run("fastpack", [sys.executable, "-c", "print('so it is'); raise SystemExit(3)"])


def test_the_readme_has_the_markers_of_the_table(tmp_path: Path) -> None:
    from markdown_tables import write_between
    from peers.energon import END, START

    path = tmp_path / "README.md"
    path.write_text((ROOT / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
    write_between(path, "new table", START, END)
    assert f"{START}\nnew table\n{END}" in path.read_text(encoding="utf-8")
