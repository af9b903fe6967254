"""JSONL files as crude datasets."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastpack import CrudeSample, FormatError, SourceInfo, WebDataset


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 0}\n\n{"n": 1}\r\n{"n": 2}')
    np.array([0, 10, 20, 28], "<u8").tofile(tmp_path / "a.jsonl.idx")
    return path


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_lines_are_crude_samples(lines: Path, io: Any) -> None:
    dataset = WebDataset(lines, io=io, subflavors={"a": 1})
    assert [sample["json"]["n"] for sample in dataset] == [0, 1, 2]
    sample = pickle.loads(pickle.dumps(dataset))[-1]
    source = SourceInfo(dataset_path=lines, index=2, shard_name="a.jsonl", file_names=("2.json",))
    assert type(sample) is CrudeSample
    assert sample == {
        "__key__": "2",
        "__shard__": "a.jsonl",
        "json": {"n": 2},
        "__restore_key__": ("Webdataset", 2),
        "__sources__": (source,),
        "__subflavors__": {"a": 1},
    }
    assert (dataset.key(1), dataset.index("1"), dataset.get("1")["json"]["n"]) == ("1", 1, 1)
    assert dataset.get_file("0.json") == {"n": 0}
    assert WebDataset(lines, raw=True, io=io)[0] == {"__key__": "0", "json": b'{"n": 0}\n\n'}
    assert WebDataset(lines, raw=True, io=io, part_filter=[])[0] == {"__key__": "0"}
    for key in ("3", "01", "-1", "x", "", "٣", "1" * 5000):
        with pytest.raises(KeyError):
            dataset.get(key)
    dataset.will_need([0, 2])
    assert [sample["__key__"] for sample in dataset.iterate(shuffle=True, seed=3)] != ["0", "1", "2"]
    dataset.close()
    with pytest.raises(ValueError, match="closed"):
        dataset[0]


def test_golden_files(golden: Path, tmp_path: Path) -> None:
    folder = golden / "energon" / "jsonl"
    for name, case in json.loads((folder / "expected.json").read_text()).items():
        if case["rc"]:
            continue
        dataset = WebDataset(folder / f"{name}.jsonl", raw=True)
        data = (folder / f"{name}.jsonl").read_bytes()
        assert b"".join(sample["json"] for sample in dataset) == data
        assert len(dataset) == len(case["idx"]) - 1


def test_damaged_indexes_are_errors(lines: Path) -> None:
    index = lines.with_suffix(".jsonl.idx")
    for offsets, text in (
        ([1, 10, 20, 28], "its first offset is 1, not 0"),
        ([0, 10, 20, 27], "its last offset is 27, not 28"),
        ([0, 10, 10, 28], "the offset 10, expected one beyond 10"),
    ):
        np.array(offsets, "<u8").tofile(index)
        with pytest.raises(FormatError, match=text) as raised:
            WebDataset(lines)
        assert raised.value.path == str(index)
    index.unlink()
    with pytest.raises(FileNotFoundError, match="fastpack prepare"):
        WebDataset(lines)


def test_invalid_lines_and_truncated_files_are_errors(lines: Path, tmp_path: Path) -> None:
    bad = tmp_path / "b.jsonl"
    bad.write_bytes(b'{"n": 0}\n\n{"n" 1 }\r\n{"n": 2}')
    shutil.copy(lines.with_suffix(".jsonl.idx"), bad.with_suffix(".jsonl.idx"))
    dataset = WebDataset(bad, io="pread")
    with pytest.raises(FormatError, match="field 'json' of sample '1' that cannot be decoded") as raised:
        dataset[1]
    assert (raised.value.path, raised.value.offset) == (str(bad), 10)
    dataset.check_unchanged()
    os.truncate(bad, 22)
    with pytest.raises(FormatError, match="size has changed"):
        dataset.check_unchanged()
    with pytest.raises(FormatError, match="at byte 22: found the end of the file"):
        dataset[2]
