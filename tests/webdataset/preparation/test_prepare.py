"""`prepare` writes the same bytes or rows as Energon; runs after the first reuse unchanged results."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from preparing import keys, prepare, rows, write_tar

from fastpack.errors import JobError
from fastpack.io import TargetExists
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset import shard_index as webdataset
from fastpack.webdataset.metadata import NotPrepared
from fastpack.webdataset.preparation.dataset_yaml import SampleTypeSpec, write_sample_type
from fastpack.webdataset.preparation.media import media_filter
from fastpack.webdataset.preparation.prepare_media import prepare_media
from fastpack.webdataset.preparation.prepare_webdataset import rebuild_indexes
from fastpack.webdataset.sample_index import MAX_FIELD_NAMES

SPLIT = Path(__file__).parents[2] / "golden/energon/split"
EXPECTED = json.loads((SPLIT / "expected.json").read_text())


@pytest.mark.parametrize("num_workers", [1, 3])
def test_files_match_energon(tmp_path: Path, num_workers: int) -> None:
    folder = tmp_path / "split"
    shutil.copytree(SPLIT, folder, ignore=shutil.ignore_patterns(".nv-meta", "*.idx", "*.json"))
    result = prepare(
        folder,
        sample_type="CaptioningSample",
        field_map='{"image": "jpg", "caption": "json[caption],txt"}',
        num_workers=num_workers,
    )
    for name in (".info.json", "split.yaml", "dataset.yaml"):
        assert (folder / ".nv-meta" / name).read_bytes() == (SPLIT / ".nv-meta" / name).read_bytes()
    for name in result.shards:
        assert (folder / f"{name}.idx").read_bytes() == (SPLIT / f"{name}.idx").read_bytes()
    for table in ("samples", "sample_parts"):
        assert rows(folder, table) == sorted(map(tuple, EXPECTED[table]))
    assert result.samples == len(EXPECTED["samples"])
    assert result.part_types == ["jpg", "txt", "json", "mask.png"]
    assert result.warnings == []
    assert sorted(result.files) == sorted(os.listdir(folder / ".nv-meta"))


def test_a_second_run_needs_force_overwrite(shards: Path) -> None:
    prepare(shards, force_overwrite=False)
    with pytest.raises(TargetExists, match="already been prepared"):
        prepare(shards, force_overwrite=False)
    assert prepare(shards, force_overwrite=False, resume=True).reused == 4


def test_only_changed_shards_are_walked_again(shards: Path) -> None:
    prepare(shards)
    before = {path.name: path.stat().st_mtime_ns for path in [*shards.iterdir(), *(shards / ".nv-meta").iterdir()]}
    assert prepare(shards).reused == 4
    write_tar(shards / "s1.tar", ["new.txt"])
    write_tar(shards / "a.tar", ["first.txt"])
    (shards / "s3.tar").unlink()
    scanned: list[str] = []
    scan = webdataset.scan_shard
    with mock.patch.object(webdataset, "scan_shard", lambda path: scanned.append(os.path.basename(path)) or scan(path)):
        result = prepare(shards)
    assert scanned == ["a.tar", "s1.tar"]
    assert result.reused == 2
    assert keys(shards) == [(0, "first"), (1, "0_a"), (1, "0_b"), (2, "new"), (3, "2_a"), (3, "2_b")]
    assert len(rows(shards, "sample_parts")) == 10
    assert result.shards == nvmeta.read_info(shards) == {"a.tar": 1, "s0.tar": 2, "s1.tar": 1, "s2.tar": 2}
    after = {path.name: path.stat().st_mtime_ns for path in [*shards.iterdir(), *(shards / ".nv-meta").iterdir()]}
    assert after["s0.tar.idx"] == before["s0.tar.idx"]
    assert after["s1.tar.idx"] != before["s1.tar.idx"]


def test_an_unchanged_dataset_keeps_its_uuid(shards: Path) -> None:
    prepare(shards)
    uuid, index = (shards / ".nv-meta/index.uuid").read_text(), nvmeta.index_path(shards).stat().st_ino
    prepare(shards, split_ratio=(1, 1, 1))
    assert (shards / ".nv-meta/index.uuid").read_text() == uuid
    assert nvmeta.index_path(shards).stat().st_ino == index
    assert [len(split) for split in nvmeta.read_split(shards).shards.values()] == [1, 1, 2]
    assert prepare(shards, walk_all=True).reused == 0
    assert (shards / ".nv-meta/index.uuid").read_text() != uuid


@pytest.mark.parametrize("what", ["index", "history", "shard index", "tables"])
def test_files_modified_by_others_are_rebuilt(shards: Path, what: str) -> None:
    prepare(shards)
    if what == "index":
        db = sqlite3.connect(nvmeta.index_path(shards))
        db.execute("DELETE FROM samples WHERE tar_file_id = 1")
        db.commit()
        db.close()
    elif what == "history":
        (shards / ".nv-meta/.fastpack.json").write_text('{"version": 1')
    elif what == "shard index":
        (shards / "s2.tar.idx").unlink()
    result = prepare(shards, sample_tables=what != "tables")
    assert result.reused == (3 if what == "shard index" else 0)
    assert (shards / "s2.tar.idx").is_file()
    if what != "tables":
        assert len(keys(shards)) == 8


def test_permissions(shards: Path) -> None:
    shards.chmod(0o750)
    (shards / "s0.tar").chmod(0o440)
    prepare(shards, sample_type="CrudeWebdataset")
    assert stat.S_IMODE((shards / ".nv-meta").stat().st_mode) == 0o750
    assert {stat.S_IMODE(path.stat().st_mode) for path in (shards / ".nv-meta").iterdir()} == {0o640}


@pytest.mark.parametrize("damage", [{}, None, [{}], ["sixsix"], [[1, 2, 3, 4, 5]], [["s0.tar", 1, 2, "3", []]]])
def test_a_damaged_history_is_ignored(shards: Path, damage: object) -> None:
    prepare(shards)
    history = shards / ".nv-meta/.fastpack.json"
    tree = json.loads(history.read_text())
    history.write_text(json.dumps(tree | {"shards": damage}))
    assert prepare(shards).reused == 0
    assert prepare(shards).reused == 4


def test_dry_run(shards: Path) -> None:
    result = prepare(shards, dry_run=True, force_overwrite=False, sample_type="CrudeWebdataset")
    assert not (shards / ".nv-meta").exists()
    assert not result.written
    assert list(result.shards) == ["s0.tar", "s1.tar", "s2.tar", "s3.tar"]
    assert result.splits == {"train": ["s0.tar", "s1.tar", "s2.tar"], "val": [], "test": ["s3.tar"]}
    assert result.warnings == ["the split val has no shards: loading it will fail"]
    assert "dataset.yaml" in result.files


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_shard_that_energon_loses_is_kept_with_a_warning(shards: Path, shuffle: bool) -> None:
    result = prepare(shards, split_ratio=(7, 2, 1), shuffle_tars=shuffle)
    last = result.splits["test"][-1]
    assert sorted(name for names in result.splits.values() for name in names) == sorted(result.shards)
    assert [text for text in result.warnings if "Energon's rounding" in text] == [
        f"at this ratio Energon's rounding leaves {last} out of every split; here it is in test. "
        "--compat energon leaves it out as well"
    ]
    theirs = prepare(shards, split_ratio=(7, 2, 1), shuffle_tars=shuffle, compat="energon")
    assert theirs.splits == {**result.splits, "test": result.splits["test"][:-1]}
    assert f"1 shard is in no split: {last}" in theirs.warnings
    assert not any("Energon's rounding" in text for text in theirs.warnings)


def test_progress_counts_bytes_of_shards(shards: Path) -> None:
    reports: list[tuple[int, int]] = []
    prepare(shards, progress=lambda done, total: reports.append((done, total)))
    sizes = [(shards / f"s{i}.tar").stat().st_size for i in range(4)]
    assert reports == [(sum(sizes[: i + 1]), sum(sizes)) for i in range(4)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"split_ratio": None}, "exactly one way to split"),
        ({"split_parts": [("train", "s")]}, "exactly one way to split"),
        ({"split_ratio": (1, 2)}, "three numbers"),
        ({"split_ratio": None, "split_parts": [("train", "(")]}, "not a regular expression"),
        ({"compat": "energon-7"}, "unknown compat"),
        ({"sample_type": "VQAOCRSample"}, "unknown sample type"),
        ({"field_map": {"image": "jpg"}}, "needs a sample type"),
        ({"sample_type": "ImageSample", "field_map": "{"}, "is not valid JSON"),
        ({"sample_type": "ImageSample", "field_map": {"image": "jpg", "x": "y"}}, "has no field x"),
        ({"sample_type": "VQASample", "field_map": {"image": "jpg"}}, "lacks context"),
        ({"sample_type": "ImageSample", "field_map": {"image": 1}}, "maps sample fields"),
        ({"num_workers": 0}, "at least 1"),
        ({"exclude": "("}, "not a regular expression"),
    ],
)
def test_invalid_arguments_are_rejected(shards: Path, options: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        prepare(shards, **options)
    assert not (shards / ".nv-meta").exists()


def test_globs_and_patterns(shards: Path) -> None:
    result = prepare(shards, split_ratio=None, split_globs=[("train", "s[0-2].tar"), ("val", "s2.tar")])
    assert nvmeta.read_split(shards).shards == {"train": ["s0.tar", "s1.tar", "s2.tar"], "val": ["s2.tar"]}
    assert result.warnings == ["1 shard is in no split: s3.tar", "1 shard is in several splits: s2.tar"]


def test_a_template_of_the_sample_loader(shards: Path) -> None:
    result = prepare(shards, sample_type="MultiChoiceVQASample")
    loader = shards / ".nv-meta/sample_loader.py"
    assert result.files[-2:] == ["dataset.yaml", "sample_loader.py"]
    names: dict[str, object] = {}
    exec(compile(loader.read_text(), loader, "exec"), names)
    assert names["part_filter"]("txt")  # type: ignore[operator]
    assert not names["part_filter"]("jpg")  # type: ignore[operator]
    assert set(names["sample_loader"]({"TODO": 1})) == {"image", "context", "choices", "correct_choice_idx"}  # type: ignore[operator]
    assert nvmeta.read_dataset_yaml(shards) == {
        "sample_type": {"__module__": "megatron.energon", "__class__": "MultiChoiceVQASample"},
        "sample_loader": "sample_loader.py:sample_loader",
        "part_filter": "sample_loader.py:part_filter",
    }
    loader.write_text("mine")
    assert "sample_loader.py" not in prepare(shards, sample_type="MultiChoiceVQASample").files
    assert loader.read_text() == "mine"


def test_indexes_only(shards: Path) -> None:
    with pytest.raises(NotPrepared):
        rebuild_indexes(shards)
    prepare(shards)
    split = (shards / ".nv-meta/split.yaml").read_bytes()
    nvmeta.index_path(shards).unlink()
    (shards / "s0.tar.idx").unlink()
    write_tar(shards / "s1.tar", ["one.txt"])
    write_tar(shards / "s9.tar", ["nine.txt"])
    result = rebuild_indexes(shards, num_workers=2)
    assert result.warnings == ["the number of samples has changed in s1.tar"]
    assert nvmeta.read_info(shards) == {"s0.tar": 2, "s1.tar": 1, "s2.tar": 2, "s3.tar": 2}
    assert (shards / ".nv-meta/split.yaml").read_bytes() == split
    assert len(keys(shards)) == 7
    assert (shards / "s0.tar.idx").is_file()
    write_tar(shards / "s2.tar", ["two.txt"])
    assert rebuild_indexes(shards, compat="energon").warnings == []
    assert nvmeta.read_info(shards)["s2.tar"] == 2


def test_indexes_only_of_an_older_dataset(shards: Path) -> None:
    prepare(shards)
    info = shards / ".nv-meta/.info.json"
    info.with_suffix(".yaml").write_text("shard_counts: {s1.tar: 2, s0.tar: 2}\n")
    info.unlink()
    rebuild_indexes(shards)
    assert list(nvmeta.read_info(shards)) == ["s1.tar", "s0.tar"]
    assert info.is_file()
    assert keys(shards) == [(0, "1_a"), (0, "1_b"), (1, "0_a"), (1, "0_b")]


def test_recorded_field_names_are_limited(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [f"k.{i}" for i in range(200)])
    assert prepare(tmp_path).part_types == [str(i) for i in range(MAX_FIELD_NAMES)]


def test_media_metadata_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "split"
    shutil.copytree(SPLIT, folder)
    assert prepare(folder).reused == 0
    for table in ("samples", "media_metadata"):
        assert rows(folder, table) == sorted(map(tuple, EXPECTED[table]))
    assert [row[:3] for row in rows(folder, "media_filters")] == [(1, "EXTENSION", "")]


@pytest.mark.parametrize("content", [b"", b"no database, and long enough to be looked at" * 100])
def test_an_unreadable_index_is_replaced(shards: Path, content: bytes) -> None:
    (shards / ".nv-meta").mkdir()
    nvmeta.index_path(shards).write_bytes(content)
    result = prepare(shards)
    assert result.samples == len(keys(shards)) == 8
    lost = [text for text in result.warnings if "prepare-media" in text and "index.sqlite" in text]
    assert len(lost) == bool(content)  # an empty file is a valid database without tables
    assert rebuild_indexes(shards).warnings == []


@pytest.mark.parametrize("when", ["write_uuid", "write_info", "write_split"])
def test_a_concurrent_run_is_rejected(shards: Path, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between writing the index and the other files, which would otherwise come from two runs."""
    errors = []

    def overtaken(*arguments: Any, **options: Any) -> None:
        if not errors:
            with pytest.raises(JobError, match="another process is writing") as error:
                prepare(shards, exclude="s0")
            errors.append(str(error.value))
        real(*arguments, **options)

    real = getattr(nvmeta, when)
    monkeypatch.setattr(nvmeta, when, overtaken)
    assert prepare(shards).samples == 8
    assert len(errors) == 1
    assert list(nvmeta.read_info(shards)) == [f"s{i}.tar" for i in range(4)]
    assert prepare(shards).reused == 4
    assert prepare(shards, exclude="s0").samples == len(keys(shards)) == 6


def test_a_folder_that_is_a_link_is_not_written_through(shards: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (shards / ".nv-meta").symlink_to(outside)
    for write in (
        lambda: prepare(shards),
        lambda: nvmeta.write_split(shards, {"train": ["s0.tar"]}),
        lambda: write_sample_type(shards, SampleTypeSpec("TextSample")),
        lambda: prepare_media(shards, media_filter("*.tar")),
    ):
        with pytest.raises(JobError, match=r"\.nv-meta is a link to .*outside"):
            write()
    assert os.listdir(outside) == []
    assert sorted(os.listdir(shards)) == [".nv-meta", "s0.tar", "s1.tar", "s2.tar", "s3.tar"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_run_can_be_resumed(error: type[BaseException], shards: Path, tmp_path: Path) -> None:
    """Also without resume=True, walked shards are kept and not walked again."""
    shutil.copytree(shards, tmp_path / "whole")
    prepare(tmp_path / "whole")
    calls: list[int] = []

    def stop(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 3:
            raise error

    with pytest.raises(error) as stopped:
        prepare(shards, num_workers=1, progress=stop)
    assert stopped.value.__notes__ == ["stopped at 75 %; call again with resume=True to continue"]
    assert not (shards / ".nv-meta" / "index.sqlite").exists()
    scanned: list[str] = []
    scan = webdataset.scan_shard
    with mock.patch.object(webdataset, "scan_shard", lambda path: scanned.append(os.path.basename(path)) or scan(path)):
        assert prepare(shards, resume=True).reused == 3
    assert scanned == ["s3.tar"]
    for table in ("samples", "sample_parts"):
        assert rows(shards, table) == rows(tmp_path / "whole", table)
    assert not [path for path in (shards / ".nv-meta").iterdir() if path.name.endswith(".partial")]
