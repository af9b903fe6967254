"""A `.jsonl.idx` or `.tar.idx` that does not match the current file is an error."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
from tar_files import write_tar

import fastpack
from fastpack import StaleIndex

ROWS = [{"text": f"row {number}", "n": "x" * (number % 5)} for number in range(400)]
RAW = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "x.jsonl"
    path.write_text(RAW)
    fastpack.index_webdataset_jsonl(path)
    return path


def open_lines(path: Path) -> int:
    return len(fastpack.WebDataset(path))


def set_age(path: Path, seconds: float) -> None:
    time_ns = path.stat().st_mtime_ns - int(seconds * 1e9)
    os.utime(path.with_suffix(".jsonl.idx"), ns=(time_ns, time_ns))


@pytest.mark.parametrize("age", [-10, 10], ids=["newer", "older"])
@pytest.mark.parametrize(
    "text", [RAW + RAW[:30], "{}\n" + RAW[3:], RAW[-50:] + RAW[:-50], RAW.replace("\n", " ")], ids=str.__len__
)
def test_edited_lines_are_detected(lines: Path, text: str, age: int) -> None:
    lines.write_text(text)
    set_age(lines, age)
    with pytest.raises(StaleIndex, match=f"`fastpack prepare {lines}` rebuilds it"):
        open_lines(lines)
    assert any("is not the index of" in warning for warning in fastpack.inspect(lines)["warnings"])
    assert not fastpack.verify(lines).is_sound


def test_a_split_line_is_detected_if_the_index_is_older(lines: Path) -> None:
    place = RAW.index('{"text": "row 203"') + 9
    with lines.open("r+b") as file:
        file.seek(place)
        file.write(b"\n")
    set_age(lines, 1)
    with pytest.raises(StaleIndex, match="no sample begins with the line at byte"):
        open_lines(lines)
    assert not fastpack.verify(lines).is_sound


@pytest.mark.parametrize("age", [-10, 10], ids=["newer", "older"])
@pytest.mark.parametrize("name", ["blank", "plain"])
def test_an_unchanged_file_is_accepted(tmp_path: Path, name: str, age: int) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("\n\n{}\n  \n {} \n\n{}\n\n" if name == "blank" else "{}\r\n{}\n{}")
    fastpack.index_webdataset_jsonl(path)
    set_age(path, age)
    assert open_lines(path) == 3
    assert fastpack.verify(path).is_sound


def write_shard(path: Path, keys: range) -> None:
    write_tar(path, {f"{key:04d}.txt": f"text {key}".encode() for key in keys}, tarfile.USTAR_FORMAT)


def test_samples_added_to_a_shard_are_detected(tmp_path: Path) -> None:
    shard = tmp_path / "shard-0.tar"
    write_shard(shard, range(30))
    fastpack.prepare(tmp_path, split_ratio=(1, 0, 0), sample_type="CrudeWebdataset")
    assert fastpack.WebDataset(tmp_path)[29]["__key__"] == "0029"
    write_shard(shard, range(31))
    with pytest.raises(StaleIndex, match="a member follows byte"):
        fastpack.WebDataset(tmp_path)[0]
