"""Staged rows of an index: rows up to the last note survive a killed run."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from fastpack.webdataset.sample_index import staging as nvmeta_staging
from fastpack.webdataset.sample_index.staging import ShardRecord, Staging
from fastpack.webdataset.shard_index import ShardScan

SHARD = ShardRecord("ä.tar", 5, 6, 2, ["jpg"])


def scan(keys: list[bytes], names: list[bytes]) -> ShardScan:
    """A shard whose samples have one field each."""
    n = len(keys)
    offsets = np.arange(n + 1) * 1024
    return ShardScan("x.tar", keys, offsets, np.arange(n), names, offsets[:-1] + 512, np.arange(n), np.empty(0, int), n)


def contents(staging: Staging) -> tuple[list[list[int]], list[bytes], list[list[int]], list[bytes]]:
    """Return the rows and their texts."""
    rows = staging.rows()
    keys = [rows.keys[a:b].tobytes() for a, b in zip(rows.key_bounds[:-1], rows.key_bounds[1:], strict=True)]
    names = [rows.names[a:b].tobytes() for a, b in zip(rows.name_bounds[:-1], rows.name_bounds[1:], strict=True)]
    return rows.samples.tolist(), keys, rows.fields[:, :4].tolist(), [names[i] for i in rows.fields[:, 4].tolist()]


def test_rows(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path / "x"), "p", mode=0o640)
    assert contents(staging) == ([], [], [], [])
    staging.add_shard(0, scan([b"a", b""], [b"jpg", b""]))
    staging.add_shard(1, scan(["日本".encode()], [b"jpg"]))
    staging.add_shard(2, scan([], []))
    assert contents(staging) == (
        [[0, 0, 0, 1024], [0, 1, 1024, 1024], [1, 0, 0, 1024]],
        [b"a", b"", "日本".encode()],
        [[0, 0, 512, 0], [0, 1, 1536, 1], [1, 0, 512, 0]],
        [b"jpg", b"", b"jpg"],
    )
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o640}
    assert {path.name.rpartition(".")[2] for path in tmp_path.iterdir()} == {"partial"}
    staging.remove()
    assert os.listdir(tmp_path) == []


def test_names_evicted_from_the_lookup_table_get_a_new_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvmeta_staging, "_MAX_KNOWN_NAMES", 3)
    names = [b"%d" % (i // 2 % 7) for i in range(30)]
    staging = Staging(str(tmp_path / "x"), "p")
    for i in range(0, 30, 2):
        staging.add_shard(i, scan([b"a", b"b"], names[i : i + 2]))
    assert contents(staging)[3] == names
    assert 7 < len(staging.rows().name_bounds) - 1 <= 15
    staging.remove()


def suspended(path: Path, purpose: str = "p") -> None:
    """Leave two noted shards and half of a third one."""
    staging = Staging(str(path), purpose)
    staging.add_media(["copy"])
    for number in range(2):
        staging.add_shard(number, scan([b"%d" % number], [b"part%d" % number]))
        staging.add_media(["row", f"{number}"])
        staging.note(SHARD)
    staging.add_shard(2, scan([b"lost"], [b"lost"]))
    staging.add_media(["lost"])
    staging.suspend()


@pytest.mark.parametrize("torn", [b"", b'["half a no'])
def test_resuming_after_the_last_note(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "x"
    suspended(path)
    with open(tmp_path / ".x.notes.partial", "ab") as notes:
        notes.write(torn)
    staging = Staging(str(path), "p", keep=True)
    assert staging.done == [SHARD, SHARD]
    assert list(staging.media()) == [["copy"], ["row", "0"], ["row", "1"]]
    staging.add_shard(2, scan([b"c", b"d"], [b"part0", b"new"]))
    staging.note(SHARD)
    staging.suspend()
    staging = Staging(str(path), "p", keep=True)
    assert staging.done == [SHARD] * 3
    assert contents(staging) == (
        [[0, 0, 0, 1024], [1, 0, 0, 1024], [2, 0, 0, 1024], [2, 1, 1024, 1024]],
        [b"0", b"1", b"c", b"d"],
        [[0, 0, 512, 0], [1, 0, 512, 0], [2, 0, 512, 0], [2, 1, 1536, 1]],
        [b"part0", b"part1", b"part0", b"new"],
    )
    staging.start_over()
    assert (staging.done, contents(staging)) == ([], ([], [], [], []))
    staging.remove()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("column", ["samples", "keys", "key_bounds", "parts", "names", "name_bounds", "media", "notes"])
def test_a_truncated_column_restarts_the_run(tmp_path: Path, column: str) -> None:
    suspended(tmp_path / "x")
    file = tmp_path / f".x.{column}.partial"
    os.truncate(file, 0 if column == "notes" else file.stat().st_size // 4)
    staging = Staging(str(tmp_path / "x"), "p", keep=True)
    assert (staging.done, contents(staging)) == ([], ([], [], [], []))
    staging.remove()


@pytest.mark.parametrize(
    "line",
    [
        *(b"[]", b"{}", b"1", b'"text of six"', b"[1, 2, 3, 4, 5, [1]]", b"\xff", b"[", b"[" * 100_000),
        b'["x.tar", 1, 2, 3, ["txt"], {}]',
        b'["x.tar", 1, 2, 3, ["txt"], [0, 0, 0, 0, 0, 0, -1]]',
        b'["x.tar", 1, 2, 3, ["txt"], [0, 0, 0, 0, 0, 0, "1"]]',
        b'["x.tar", 1, 2, "3", ["txt"], [0, 0, 0, 0, 0, 0, 0]]',
    ],
    ids=range(12),
)
def test_invalid_notes_restart_the_run(tmp_path: Path, line: bytes) -> None:
    suspended(tmp_path / "x")
    with open(tmp_path / ".x.notes.partial", "ab") as notes:
        notes.write(line + b"\n")
    staging = Staging(str(tmp_path / "x"), "p", keep=True)
    assert staging.done == []
    staging.remove()


def test_another_purpose_or_boot_restarts_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suspended(tmp_path / "x", "q")
    staging = Staging(str(tmp_path / "x"), "p", keep=True)
    assert staging.done == []
    staging.note(SHARD)
    staging.suspend()
    monkeypatch.setattr(nvmeta_staging, "_BOOT_ID", str(tmp_path / "none"))
    staging = Staging(str(tmp_path / "x"), "p", keep=True)
    assert staging.done == []
    staging.note(SHARD)
    staging.suspend()
    header = json.loads((tmp_path / ".x.notes.partial").read_text().splitlines()[0])
    assert header == {"purpose": "p", "boot": f"process {os.getpid()}"}
    Staging(str(tmp_path / "x"), "p").remove()
    assert os.listdir(tmp_path) == []
