"""A stale index is rejected; an index that belongs to its file is accepted, whichever program wrote it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack import StaleIndex

LINES = [json.dumps({"text": f"document {number} é " + "x" * (number % 7)}).encode() for number in range(500)]
RAW = b"\n".join(LINES) + b"\n"


def read_index(path: Path) -> int:
    return len(fastpack.LargeFileLinesReader(path))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "x.jsonl"
    path.write_bytes(RAW)
    fastpack.create_raw_index(path)
    return path


def set_age(path: Path, seconds: float) -> None:
    """Make the index of a file older than the file by `seconds`."""
    time_ns = path.stat().st_mtime_ns - int(seconds * 1e9)
    os.utime(path.with_suffix(".idx"), ns=(time_ns, time_ns))


def replace_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "appended": lambda raw: raw + b'{"text": "more"}\n',
    "appended without a newline": lambda raw: raw + b'{"text": "more"}',
    "appended after a faulty line": lambda raw: raw + b'oops\n\n{"text": "more"}\n',
    "prepended": lambda raw: b'{"text": "more"}\n' + raw,
    "cut": lambda raw: raw[:-40],
    "reversed": lambda raw: b"\n".join(raw.split(b"\n")[::-1]),
    "emptied": lambda raw: raw[-1:],
    "a line removed and one added": lambda raw: raw[len(LINES[0]) + 1 :] + LINES[0] + b"\n",
    "last line continued": lambda raw: raw[:-2] + b', "more": 1}\n',
}


@pytest.mark.parametrize("age", [-10, 0, 10], ids=["newer", "same time", "older"])
@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_file_is_detected_with_any_times(source: Path, edit: str, age: int) -> None:
    source.write_bytes(EDITS[edit](RAW))
    set_age(source, age)
    with pytest.raises(StaleIndex, match="is not the index of") as caught:
        read_index(source)
    assert caught.value.path == str(source.with_suffix(".idx"))
    assert f"`fastpack index {source} --force`" in str(caught.value)


@pytest.mark.parametrize("number", [3, 250, 491])
def test_lines_joined_or_split_are_detected_if_the_index_is_older(source: Path, number: int) -> None:
    end = sum(len(line) + 1 for line in LINES[: number + 1]) - 1
    replace_at(source, end, b" ")  # the newline after a line
    set_age(source, 1)
    with pytest.raises(StaleIndex):
        read_index(source)
    replace_at(source, end, b"\n")
    set_age(source, 1)
    assert read_index(source) == 500
    replace_at(source, end - 4, b"\n")
    set_age(source, 1)
    with pytest.raises(StaleIndex):
        read_index(source)


def test_a_dropped_line_that_became_json_is_detected_if_the_index_is_older(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"text": b"}\n{"text": "c"}\n')
    with pytest.warns(UserWarning, match="faulty line"):
        fastpack.create_raw_index(path, drop_faulty_entries=True)
    set_age(path, 1)
    assert read_index(path) == 2
    replace_at(path, 14, b'{"text":"b"}')
    set_age(path, 1)
    with pytest.raises(StaleIndex, match="the line at byte 14 has no entry"):
        read_index(path)


@pytest.mark.parametrize("age", [-10, 0, 10], ids=["newer", "same time", "older"])
@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (Path(__file__).parents[1] / "golden/modalities/idx").glob("*.idx"))
)
def test_indexes_that_modalities_wrote_are_accepted(golden: Path, tmp_path: Path, name: str, age: int) -> None:
    shutil.copy(golden / "modalities/jsonl" / f"{name}.jsonl", tmp_path / "x.jsonl")
    shutil.copy(golden / "modalities/idx" / f"{name}.idx", tmp_path / "x.idx")
    set_age(tmp_path / "x.jsonl", age)
    assert read_index(tmp_path / "x.jsonl") == len(fastpack.read_raw_index(tmp_path / "x.idx"))


@pytest.mark.parametrize("age", [-10, 10], ids=["newer", "older"])
def test_an_index_in_characters_is_a_warning(golden: Path, tmp_path: Path, age: int) -> None:
    shutil.copy(golden / "modalities/jsonl/docs_crlf.jsonl", tmp_path / "x.jsonl")
    shutil.copy(golden / "modalities/legacy/v0.2.0/docs_crlf.v0.2.0.idx", tmp_path / "x.idx")
    set_age(tmp_path / "x.jsonl", age)
    with pytest.warns(UserWarning, match="in characters"):
        read_index(tmp_path / "x.jsonl")


@given(
    lines=st.lists(
        st.sampled_from([b"{}", b'{"text": "\xc3\xa9"}', b"", b"  ", b"oops", b"[1, 2]\r", b"\xff"]), max_size=9
    ),
    last_newline=st.booleans(),
    age=st.sampled_from([-10, 10]),
    seed=st.integers(0, 99),
)
@pytest.mark.filterwarnings("ignore:faulty line")
def test_an_index_of_the_unchanged_file_is_accepted(
    tmp_path: Path, lines: list[bytes], last_newline: bool, age: int, seed: int
) -> None:
    """In any order, with faulty lines left out."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n" * last_newline)
    fastpack.create_raw_index(path, drop_faulty_entries=True, if_exists="overwrite")
    rows = fastpack.read_raw_index(path.with_suffix(".idx"))
    np.random.default_rng(seed).shuffle(rows)
    fastpack.write_raw_index(path.with_suffix(".idx"), rows)
    set_age(path, age)
    if path.stat().st_size:
        assert read_index(path) == len(rows)


def test_the_index_of_another_file_is_named(tmp_path: Path) -> None:
    for name, text in (("a.json", "one"), ("a.jsonl", "two, and longer"), ("a.txt", "three")):
        (tmp_path / name).write_text(f'{{"text": "{text}"}}\n' * 3)
    fastpack.create_raw_index(tmp_path / "a.json")
    with pytest.raises(StaleIndex, match=r"It is the index of .*a\.json, which has the same default index path"):
        read_index(tmp_path / "a.jsonl")
    with pytest.raises(FileExistsError, match=r"is the index of .*a\.json,"):
        fastpack.create_raw_index(tmp_path / "a.jsonl")
    with pytest.warns(fastpack.DataWarning, match=r"a\.idx is not the index of .*a\.jsonl"):
        assert not fastpack.create_raw_index(tmp_path / "a.jsonl", if_exists="skip").written
    with pytest.warns(fastpack.DataWarning, match=r"was the index of .*a\.json; now it is that of .*a\.jsonl"):
        fastpack.create_raw_index(tmp_path / "a.jsonl", if_exists="overwrite")
    assert read_index(tmp_path / "a.jsonl") == 3
    with pytest.raises(StaleIndex, match=r"It is the index of .*a\.jsonl"):
        fastpack.MemMapDataset(tmp_path / "a.json", len, "input_ids")


def test_files_with_the_same_lines_share_an_index(tmp_path: Path) -> None:
    for name in ("a.json", "a.jsonl"):
        (tmp_path / name).write_text('{"text": "same"}\n' * 3)
        fastpack.create_raw_index(tmp_path / name, if_exists="overwrite")
        assert read_index(tmp_path / "a.json") == 3


def test_a_stale_index_pickles_as_an_error(source: Path) -> None:
    import pickle

    source.write_bytes(RAW + b"{}\n")
    with pytest.raises(StaleIndex) as caught:
        read_index(source)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.source, copy.owner) == (str(caught.value), str(source), None)
