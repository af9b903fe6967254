"""Verification of a prepared WebDataset: every kind of damage is reported, sound datasets pass."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fastpack.analysis.findings import Finding, VerifyReport
from fastpack.errors import JobError
from fastpack.inspection.verify import verify

Damage = Callable[[Path], object]


def sql(statement: str) -> Damage:
    def change(folder: Path) -> None:
        db = sqlite3.connect(folder / ".nv-meta" / "index.sqlite")
        db.executescript(statement)
        db.close()

    return change


def patched(name: str, offset: int, data: bytes) -> Damage:
    def change(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.seek(offset)
            file.write(data)

    return change


def info(change: Callable[[dict[str, int]], object]) -> Damage:
    def write(folder: Path) -> None:
        path = folder / ".nv-meta" / ".info.json"
        tree = json.loads(path.read_text())
        change(tree["shard_counts"])
        path.write_text(json.dumps(tree))

    return write


def split(splits: dict[str, list[str]], exclude: list[str] | None = None) -> Damage:
    tree = {"split_parts": splits, "exclude": exclude or []}
    return lambda folder: (folder / ".nv-meta" / "split.yaml").write_text(yaml.dump(tree))


ALL = ["train/part_{00..01}.tar", "train/part_03.tar", "train/part_{08..11}.tar", "val/v-{1..2}.tar", "val/v-03.tar"]


def test_energon_datasets_are_sound(prepared: Path) -> None:
    report = verify(prepared, decode=True)
    assert report.findings == []
    assert report.is_sound
    assert report.checked == {"shards": 10, "samples": 19, "parts": 76, "members": 76, "decoded": 19}
    assert list(report.lines())[-1].endswith("sound, 0 warnings")
    assert report.as_json()["sound"] is True


ERRORS: list[tuple[str, Damage, str, int | None, str]] = [
    # id, damage, file name, offset and text of the finding
    ("a flipped byte of a header", patched("train/part_00.tar", 4608, b"X"), "part_00.tar", 4608, "checksum"),
    ("a cut header", lambda f: os.truncate(f / "train/part_00.tar", 4700), "part_00.tar", 4608, ""),
    ("cut data", lambda f: os.truncate(f / "train/part_00.tar", 5200), "part_00.tar", None, ""),
    ("an empty tar", lambda f: os.truncate(f / "train/part_00.tar", 0), "part_00.tar", 0, "an empty file"),
    (
        "a concatenated archive",
        lambda f: append(f, "train/part_00.tar", "train/part_01.tar"),
        "part_00.tar",
        None,
        "data after",
    ),
    ("no shard", lambda f: (f / "train/part_00.tar").unlink(), "part_00.tar", None, "no file"),
    ("no index", lambda f: (f / "train/part_00.tar.idx").unlink(), "part_00.tar.idx", None, "no file"),
    ("a short index", lambda f: os.truncate(f / "train/part_00.tar.idx", 16), "part_00.tar.idx", 16, "1 samples"),
    ("an odd index", lambda f: os.truncate(f / "train/part_00.tar.idx", 17), "part_00.tar.idx", 17, "17 bytes"),
    (
        "a wrong offset",
        patched("train/part_00.tar.idx", 8, struct.pack("<q", 512)),
        "part_00.tar.idx",
        8,
        "the offset 512",
    ),
    (
        "a wrong end",
        patched("train/part_00.tar.idx", 16, struct.pack("<q", 9999)),
        "part_00.tar.idx",
        16,
        "the offset 9999",
    ),
    ("a wrong count", info(lambda c: c.update({"train/part_00.tar": 3})), "part_00.tar", None, "2 samples"),
    ("a shard outside the folder", info(lambda c: c.update({"../x.tar": 3})), ".info.json", None, "'../x.tar'"),
    ("no counts", lambda f: (f / ".nv-meta/.info.json").write_text("{"), ".info.json", 1, ""),
    ("no .info.json", lambda f: (f / ".nv-meta/.info.json").unlink(), ".info.json", None, "no file"),
    ("no split", lambda f: (f / ".nv-meta/split.yaml").unlink(), "split.yaml", None, "no file"),
    ("an invalid split", lambda f: (f / ".nv-meta/split.yaml").write_text("a: [b"), "split.yaml", None, ""),
    (
        "an unknown shard",
        split({"train": [*ALL, "absent.tar"]}),
        "split.yaml",
        None,
        "'absent.tar' in the split 'train'",
    ),
    ("an invalid uuid", lambda f: (f / ".nv-meta/index.uuid").write_text("no"), "index.uuid", 0, "'no'"),
    (
        "an invalid dataset.yaml",
        lambda f: (f / ".nv-meta/dataset.yaml").write_text("- 1"),
        "dataset.yaml",
        0,
        "list",
    ),
    ("no SQLite", lambda f: (f / ".nv-meta/index.sqlite").write_text("x" * 4096), "index.sqlite", 0, "not a database"),
    ("a wrong key", sql("UPDATE samples SET sample_key = 'z' WHERE rowid = 3"), "index.sqlite", None, "'z'"),
    ("a wrong size", sql("UPDATE samples SET byte_size = 7 WHERE rowid = 3"), "index.sqlite", None, ", 7)"),
    (
        "a missing row",
        sql("DELETE FROM samples WHERE tar_file_id = 9 AND sample_index = 2"),
        "index.sqlite",
        None,
        "no more rows",
    ),
    ("an extra row", sql("INSERT INTO samples VALUES (9, 'new', 3, 1, 1)"), "index.sqlite", None, "('new', 3, 1, 1)"),
    (
        "a wrong field offset",
        sql("UPDATE sample_parts SET content_byte_offset = 0 WHERE rowid = 1"),
        "index.sqlite",
        None,
        "",
    ),
    (
        "a row of an unknown shard",
        sql("INSERT INTO samples VALUES (10, 'new', 3, 1, 1)"),
        "index.sqlite",
        None,
        "1 rows of samples",
    ),
    ("a missing column", sql("ALTER TABLE samples DROP COLUMN byte_size"), "index.sqlite", 0, "no such column"),
]


def append(folder: Path, target: str, source: str) -> None:
    with (folder / target).open("ab") as file:
        file.write((folder / source).read_bytes())


@pytest.mark.parametrize(("how", "name", "offset", "found"), [case[1:] for case in ERRORS], ids=[c[0] for c in ERRORS])
def test_damage_is_reported_with_file_and_offset(
    prepared: Path, how: Damage, name: str, offset: int | None, found: str
) -> None:
    how(prepared)
    report = verify(prepared)
    errors = [finding for finding in report.findings if finding.severity == "error"]
    assert not report.is_sound
    matching = [e for e in errors if os.path.basename(e.file) == name and found in e.found]
    assert matching, list(report.lines())
    assert offset is None or matching[0].offset == offset
    assert len(errors) <= 3  # one error does not cause a hundred findings


WARNINGS: list[tuple[str, Damage, str]] = [
    ("a split without shards", split({"train": ALL, "val": []}), "no shards in the split 'val'"),
    ("a shard in two splits", split({"train": ALL, "val": ["val/v-1.tar"]}), "'val/v-1.tar' in train and val"),
    ("shards in no split", split({"train": ALL[:-2]}), "3 shards in no split: val/v-03.tar, val/v-1.tar, val/v-2.tar"),
    (
        "an excluded key that does not exist",
        split({"train": ALL}, ["val/v-1.tar/absent"]),
        "'val/v-1.tar/absent' under exclude",
    ),
    ("an excluded shard that does not exist", split({"train": ALL}, ["val/v-7.tar"]), "'val/v-7.tar' under exclude"),
    ("no uuid", lambda f: (f / ".nv-meta/index.uuid").unlink(), "no file"),
    ("no dataset.yaml", lambda f: (f / ".nv-meta/dataset.yaml").unlink(), "no file"),
    ("no index.sqlite", lambda f: (f / ".nv-meta/index.sqlite").unlink(), "no file"),
    ("Energon 6", sql("DROP TABLE sample_parts"), "no table sample_parts"),
    ("no tables", sql("DROP TABLE sample_parts; DROP TABLE samples"), "no table samples"),
    (
        "an extra tar",
        lambda f: shutil.copy(f / "val/v-1.tar", f / "val/new.tar"),
        "1 tars that are not prepared: val/new.tar",
    ),
]


@pytest.mark.parametrize(("how", "found"), [case[1:] for case in WARNINGS], ids=[case[0] for case in WARNINGS])
def test_harmless_problems_are_warnings(prepared: Path, how: Damage, found: str) -> None:
    how(prepared)
    report = verify(prepared)
    assert report.is_sound
    assert [finding.severity for finding in report.findings] == ["warning"]
    assert found in report.findings[0].found


def test_existing_exclusions_are_accepted(prepared: Path) -> None:
    split({"train": ALL[:-1]}, ["val/v-03.tar", "val/v-1.tar/val_v-1_0"])(prepared)
    assert verify(prepared).findings == []


def test_all_repeated_keys_are_reported(make: Callable[..., Path]) -> None:
    members = [(f"k{i:02d}.txt", b"x") for i in range(25)]
    folder = make({"a.tar": members, "b.tar": [("own.txt", b"y")], "c.tar": [("c.txt", b"z")]})
    shutil.copy(folder / "a.tar", folder / "c.tar")
    shutil.copy(folder / "a.tar.idx", folder / "c.tar.idx")
    (folder / ".nv-meta" / "index.sqlite").unlink()
    info(lambda counts: counts.update({"c.tar": 25}))(folder)
    found = [finding.found for finding in verify(folder).findings if finding.severity == "error"]
    assert found[0] == "the key 'k00' 1 times in a.tar, 1 times in c.tar"
    assert found[-1] == "5 more repeated keys"
    assert len(found) == 21


def test_shards_are_checked_in_parallel(make: Callable[..., Path]) -> None:
    members = {f"s/{n:03d}.tar": [(f"{n}/{i}.txt", b"x" * i) for i in range(1, 40)] for n in range(30)}
    folder = make(members)
    seen: list[tuple[int, int]] = []
    report = verify(folder, threads=4, progress=lambda done, total: seen.append((done, total)))
    assert [finding.severity for finding in report.findings] == ["warning", "warning"]  # val and test are empty
    assert report.checked == {"shards": 30, "samples": 1170, "parts": 1170, "members": 1170}
    assert seen[-1][0] == seen[-1][1] == sum(path.stat().st_size for path in folder.rglob("*.tar"))
    assert len(seen) == 30


def test_rows_beyond_the_first_batch_are_compared(make: Callable[..., Path]) -> None:
    folder = make({"a.tar": [(f"{i:05d}.t", b"") for i in range(40_000)]}, {"train": ["a.tar"]})
    assert verify(folder).findings == []
    sql("UPDATE sample_parts SET part_name = 'u' WHERE sample_index = 39999")(folder)
    (finding,) = verify(folder).findings
    assert finding.found.startswith("(39999, 'u',")
    assert "(39999, 't'," in finding.expected


def test_undecodable_samples_are_reported(make: Callable[..., Path]) -> None:
    pickled = b"cos\nsystem\n(S'false'\ntR."
    members = [("a.json", b"{"), ("b.txt", b"fine"), ("c.pkl", pickled), ("d.pkl", pickled), ("e.cls", b"x")]
    folder = make({"a.tar": members}, {"train": ["a.tar"]})
    assert verify(folder).findings == []
    report = verify(folder, decode=True)
    assert report.checked["decoded"] == 1
    errors = [finding for finding in report.findings if finding.severity == "error"]
    assert [(os.path.basename(finding.file), finding.offset) for finding in errors] == [("a.tar", 512), ("a.tar", 4608)]
    assert "'json'" in errors[0].found
    (warning,) = [finding for finding in report.findings if finding.severity == "warning"]
    assert "trust_code" in warning.found


@pytest.mark.parametrize("threads", [1, 3])
def test_findings_of_parallel_decoding_are_ordered(make: Callable[..., Path], threads: int) -> None:
    bad = {17, 40, 41, 199}
    members = [(f"{i:03d}.json", b"{" if i in bad else b"{}") for i in range(200)]
    folder = make({"a.tar": members, "b.tar": [("x.json", b"]")]}, {"train": ["a.tar", "b.tar"]})
    done: list[int] = []
    report = verify(folder, decode=True, threads=threads, progress=lambda n, _: done.append(n))
    assert report.checked["decoded"] == 196
    assert [finding.offset for finding in report.findings] == [1024 * i + 512 for i in sorted(bad)] + [512]
    assert done == sorted(done)


def test_unknown_formats_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="a prepared WebDataset"):
        verify(tmp_path)
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "absent")


def test_long_reports_are_truncated() -> None:
    report = VerifyReport("x", "webdataset")
    report.take(*(Finding("warning", "f", None, str(i), "y") for i in range(1003)))
    report.add("error", "f", 7, "a", "b")
    assert (len(report.findings), report.n_more, report.n_errors) == (1000, 4, 1)
    assert not report.is_sound
    lines = list(report.lines())
    assert lines[-2] == "and 4 more"
    assert lines[-1] == "x: webdataset: : 1 error, 1,003 warnings"
    assert report.as_json()["more"] == 4
    assert str(Finding("error", "f", 7, "a", "b")) == "error: f: at byte 7: found a, expected b"
