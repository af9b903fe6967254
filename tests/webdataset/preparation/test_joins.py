"""Join indexes of a metadataset: byte for byte as Energon's; errors for datasets that cannot be joined."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fastpack import DataWarning, prepare, write_checksums
from fastpack.cli import main
from fastpack.errors import FormatError, JobError
from fastpack.webdataset.preparation import joins
from fastpack.webdataset.preparation.metadataset import MetadatasetResult, prepare_metadataset

GOLDEN = Path(__file__).parents[2] / "golden/energon/joins"


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.cache"))
    shutil.copy(tmp_path / "skip.split.yaml", tmp_path / "a/.nv-meta/split.yaml")
    return tmp_path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """Return the database connections that the test opens."""
    connections: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def connect_and_keep(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connections.append(connect(*arguments, **options))
        return connections[-1]

    monkeypatch.setattr(sqlite3, "connect", connect_and_keep)
    return connections


def rows(path: str) -> list[list[int]]:
    data = Path(path).read_bytes()
    assert data[:8] == b"JIDX0001"
    n_sets = int.from_bytes(data[8:16], "little")
    return np.frombuffer(data[16:], "<i8").reshape(-1, 3 * n_sets).tolist()


@pytest.mark.parametrize("name", ["skip", "none"])
@pytest.mark.parametrize("at_once", [3, 1000])
def test_join_indexes_match_energon(sets: Path, name: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "_ROWS", at_once)
    shutil.copy(sets / f"{name}.split.yaml", sets / "a/.nv-meta/split.yaml")
    result = prepare_metadataset(sets / f"{name}.yaml")
    expected = {path.name: path.read_bytes() for path in (GOLDEN / f"{name}.yaml.cache").iterdir()}
    assert {path.name: path.read_bytes() for path in (sets / f"{name}.yaml.cache").iterdir()} == expected
    assert {Path(path).name for path in result.joins} == set(expected)
    assert all(len(rows(path)) == n_rows for path, n_rows in result.joins.items())


def test_join_indexes_are_reused_and_outdated_ones_removed(sets: Path) -> None:
    first = prepare_metadataset(sets / "skip.yaml")
    for path in first.joins:
        write_checksums(path)
    again = prepare_metadataset(sets / "skip.yaml")
    assert again == MetadatasetResult(sets / "skip.yaml", dict.fromkeys(first.joins), [])
    (sets / "c/.nv-meta/index.uuid").write_text("another")
    third = prepare_metadataset(sets / "skip.yaml")
    assert sorted(third.removed) == sorted(first.joins)
    assert sorted(path.name for path in (sets / "skip.yaml.cache").iterdir()) == sorted(
        Path(path).name for path in third.joins
    )


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def no_uuid(sets: Path) -> None:
    (sets / "b/.nv-meta/index.uuid").unlink()


def no_index(sets: Path) -> None:
    (sets / "b/.nv-meta/index.sqlite").unlink()


def no_table(sets: Path) -> None:
    (sets / "b/.nv-meta/index.sqlite").write_bytes(b"")


def no_match(sets: Path) -> None:
    change(sets / "skip.yaml", "nonmatch: skip", "nonmatch: error")


def wrong_mode(sets: Path) -> None:
    change(sets / "skip.yaml", "nonmatch: skip", "nonmatch: perhaps")


def first_skips(sets: Path) -> None:
    change(sets / "skip.yaml", "a: {path: a}", "a: {path: a, nonmatch: skip}")


def no_split(sets: Path) -> None:
    change(sets / "skip.yaml", "train:", "test:")


def unknown_shard(sets: Path) -> None:
    change(sets / "b/.nv-meta/split.yaml", "s/", "t/")


def elsewhere(sets: Path) -> None:
    change(sets / "b/.nv-meta/split.yaml", "{0..1}", "1")


def no_splits(sets: Path) -> None:
    change(sets / "skip.yaml", "splits:", "parts:")


def no_path(sets: Path) -> None:
    change(sets / "skip.yaml", "a: {path: a}", "a: {way: a}")


def no_list(sets: Path) -> None:
    change(sets / "skip.yaml", "    blend:\n", "    blend: 1\n    other:\n")


def nothing_at_all(sets: Path) -> None:
    change(sets / "skip.yaml", "blend:", "join: []\n    blend_:")


@pytest.mark.parametrize(
    ("damage", "kind", "reason"),
    [
        (no_uuid, FileNotFoundError, "--tar-index-only"),
        (no_index, FileNotFoundError, "Prepare the dataset first"),
        (no_table, JobError, "cannot be joined"),
        (no_match, ValueError, r"the sample 'k..' is not in .*c. To allow this, set its nonmatch"),
        (wrong_mode, ValueError, "one of error, skip, none"),
        (first_skips, ValueError, "the first dataset of a join"),
        (no_split, ValueError, "no shards in the split 'test'"),
        (unknown_shard, FormatError, "the shard t/0.tar"),
        (elsewhere, ValueError, "is not in .*b. To allow this"),
        (no_splits, FormatError, "no splits"),
        (no_path, FormatError, "a text under path"),
        (no_list, FormatError, "a list under blend"),
        (nothing_at_all, FormatError, "a list or mapping of datasets under join"),
    ],
)
def test_invalid_joins_are_errors(
    sets: Path, damage: Callable[[Path], None], kind: type[Exception], reason: str, opened: list[sqlite3.Connection]
) -> None:
    damage(sets)
    with pytest.raises(kind, match=reason):
        prepare_metadataset(sets / "skip.yaml")
    assert not list(sets.rglob("*.partial"))
    for db in opened:  # Python 3.13 warns about an open connection
        with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
            db.execute("SELECT 1")


def test_a_join_without_rows_is_an_error(sets: Path) -> None:
    change(sets / "a/.nv-meta/split.yaml", "exclude: [s/1.tar]", "exclude: [s/0.tar, s/1.tar, s/2.tar]")
    samples = [f"s/3.tar/k{i}" for i in range(15, 20)]
    change(sets / "a/.nv-meta/split.yaml", "s/2.tar]", f"s/2.tar, {', '.join(samples)}]")
    with pytest.raises(JobError, match="no sample of"):
        prepare_metadataset(sets / "skip.yaml")


def test_a_cache_that_is_a_link_is_not_written_through(sets: Path) -> None:
    (sets / "outside").mkdir()
    (sets / "outside/join_index_0.bin").write_bytes(b"precious")
    (sets / "skip.yaml.cache").symlink_to(sets / "outside")
    with pytest.raises(JobError, match=r"skip\.yaml\.cache is a link"):
        prepare_metadataset(sets / "skip.yaml")
    assert os.listdir(sets / "outside") == ["join_index_0.bin"]


def test_nested_metadatasets_are_prepared(sets: Path) -> None:
    outer = sets / "outer.yaml"
    outer.write_text("splits:\n  train: {blend: [{path: skip.yaml}, {path: b}]}\n  val: {path: b}\n")
    assert prepare_metadataset(outer) == MetadatasetResult(outer)
    assert len(list((sets / "skip.yaml.cache").iterdir())) == 1
    outer.write_text("splits: {train: {path: outer.yaml}}")
    with pytest.raises(FormatError, match="refers to itself"):
        prepare_metadataset(outer)


def test_command_line(sets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sets / "skip.yaml"
    assert main(["prepare", str(path), "--dry-run"]) == 0
    assert [line.rsplit(": ")[1] for line in capsys.readouterr().out.splitlines()] == ["8 rows", "9 rows"]
    assert not (sets / "skip.yaml.cache").exists()
    assert main(["prepare", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rsplit(": ")[1] for line in lines] == ["8 rows", "9 rows"]
    assert main(["prepare", str(path), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["joins"].values()) == [None, None]
    assert main(["prepare", str(path), "--exclude", "x"]) == 2
    path.write_text("splits: {train: {path: a}}")
    assert main(["prepare", str(path), "--dry-run"]) == 0
    assert "would be removed" in capsys.readouterr().out
    assert len(list((sets / "skip.yaml.cache").iterdir())) == 2
    assert main(["prepare", str(path)]) == 0
    assert "removed (outdated)" in capsys.readouterr().out
    assert main(["prepare", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: no joins, nothing to prepare\n"


def prepared_with(seed: str, path: Path) -> tuple[set[str], str]:
    """Return the names of the join indexes that a process with this PYTHONHASHSEED writes, and its messages."""
    command = [sys.executable, "-m", "fastpack", "prepare", str(path), "--force-overwrite"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return {file.name for file in Path(f"{path}.cache").iterdir()}, done.stderr


def energons_names(seed: str, path: Path) -> set[str]:
    """Return the names from Energon's order of operations: a set of the exclusions, then of those with a slash."""
    code = (
        "import hashlib, sys\n"
        "from fastpack.webdataset.metadata import read_split\n"
        "digest = hashlib.sha256()\n"
        "for number, folder in enumerate(sys.argv[1:]):\n"
        "    excluded = {text for text in read_split(folder).exclude}\n"
        "    digest.update(b'\\0uuid=' + open(f'{folder}/.nv-meta/index.uuid', 'rb').read() + b'\\0excludes=')\n"
        "    for text in list({text for text in excluded if '/' in text}):\n"
        "        digest.update(text.encode() + b'\\0')\n"
        "    digest.update(b'\\0nonmatch=skip\\0' if number else b'\\0nonmatch=error\\0')\n"
        "print(f'join_index_{digest.hexdigest()}.bin')\n"
    )
    command = [sys.executable, "-c", code, str(path.parent / "a"), str(path.parent / "b")]
    env = {**os.environ, "PYTHONHASHSEED": seed}
    return set(subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True).stdout.split())


def test_names_with_several_excludes_depend_on_the_hash_seed(sets: Path) -> None:
    exclude = ["x.tar/1", "x.tar/2", "x.tar/3", "y.tar/1", "none.tar"]
    split = sets / "a/.nv-meta/split.yaml"
    split.write_text(json.dumps(yaml.safe_load(split.read_text()) | {"exclude": exclude}))
    path = sets / "two.yaml"
    references = [{"path": "a"}, {"path": "b", "nonmatch": "skip"}]
    path.write_text(json.dumps({"splits": {"train": {"join": references}}}))
    names = set()
    for seed in ("0", "1", "7", "12345"):
        found, message = prepared_with(seed, path)
        assert found == energons_names(seed, path)
        assert "warning" not in message
        names |= found
    assert len(names) > 1
    _, message = prepared_with("random", path)
    assert message.count("depends on PYTHONHASHSEED. Set PYTHONHASHSEED=0 for this command and for training") == 1


def test_a_warning_for_names_that_depend_on_the_hash_seed(sets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert prepare_metadataset(sets / "skip.yaml").warnings == []
    split = sets / "a/.nv-meta/split.yaml"
    split.write_text(json.dumps(yaml.safe_load(split.read_text()) | {"exclude": ["x.tar/1", "y.tar/2"]}))
    with pytest.warns(DataWarning, match="depends on PYTHONHASHSEED"):
        prepare(sets / "skip.yaml")
