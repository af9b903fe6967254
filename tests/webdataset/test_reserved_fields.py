"""Fields with reserved names are rejected, so that they never replace the key of a sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from preparing import write_tar

import fastpack
from fastpack.errors import FormatError
from fastpack.inspection.verify import verify

RESERVED = ["__key__", "__shard__", "__restore_key__", "__sources__", "__subflavors__"]
CRUDE = {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}


def members(field: str) -> list[str]:
    return ["000.txt", f"001.{field}", "001.txt", "002.txt"]


@pytest.fixture(params=RESERVED)
def reserved(request: pytest.FixtureRequest, tmp_path: Path, prepare: Any) -> tuple[Path, str]:
    """A crude dataset as Energon prepares it, which accepts the name, and the name."""
    field: str = request.param
    write_tar(tmp_path / "set/a.tar", members(f"x{field[1:]}"))
    prepare(tmp_path / "set", split={"train": ["a.tar"]}, definition=CRUDE)
    write_tar(tmp_path / "set/a.tar", members(field))  # the offsets in the indexes stay valid
    return tmp_path / "set", field


def test_samples_are_rejected(reserved: tuple[Path, str]) -> None:
    folder, field = reserved
    for raw in (True, False):
        dataset = fastpack.WebDataset(folder, raw=raw)
        with pytest.raises(FormatError, match=f"field '{field}' of sample '001'") as caught:
            dataset[1]
        assert (caught.value.path, caught.value.offset) == (str(folder / "a.tar"), 1536)
        with pytest.raises(FormatError, match=f"rename 001.{field} in the tar"):
            dataset.get("001")
        assert [dataset[i]["__key__"] for i in (0, 2)] == ["000", "002"]


def test_fields_that_are_not_read_may_have_reserved_names(reserved: tuple[Path, str]) -> None:
    sample = fastpack.WebDataset(reserved[0], part_filter=["txt"])[1]
    assert (sample["__key__"], sample["__shard__"], sample["txt"]) == ("001", "a.tar", "{}")


@pytest.mark.parametrize("deep", [False, True])
def test_verify_reports_it(reserved: tuple[Path, str], deep: bool) -> None:
    folder, field = reserved
    report = verify(folder, decode=deep)
    assert not report.is_sound
    finding = next(one for one in report.findings if one.severity == "error")
    assert (finding.file, finding.offset) == (str(folder / "a.tar"), 1536)
    assert f"field {field!r} of sample '001'" in finding.found


@pytest.mark.parametrize("field", RESERVED)
def test_prepare_rejects_the_shard(tmp_path: Path, field: str) -> None:
    write_tar(tmp_path / "a.tar", members(field))
    write_tar(tmp_path / "b.tar", ["b.txt", "b.__keys__", "b.jpg.__key__"])
    with pytest.raises(FormatError, match=f"field '{field}' of sample '001'"):
        fastpack.prepare(tmp_path, split_ratio=(1, 0, 0))
    result = fastpack.prepare(tmp_path, split_ratio=(1, 0, 0), skip_bad_shards=True, force_overwrite=True)
    assert list(result.shards) == ["b.tar"]
    assert f"field '{field}'" in result.skipped["a.tar"]
