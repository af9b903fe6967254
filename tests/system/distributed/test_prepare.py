"""`prepare` by ranks: unchanged, bad and changed shards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from distributed_sources import write_shards
from preparing import write_tar

from fastpack.distributed.plan import clear
from fastpack.distributed.prepare_tasks import plan_walk, walker_of
from fastpack.distributed.ranks import run_rank
from fastpack.errors import FormatError, JobError
from fastpack.io import TargetExists
from fastpack.webdataset.preparation.prepare_webdataset import PrepareResult, prepare_webdataset
from fastpack.webdataset.preparation.settings import ExecutionSettings, PrepareSettings, SplitSpec
from fastpack.webdataset.preparation.walk_shards import WalkResult

RATIO = (8, 1, 1)
VARYING = {"index.uuid", ".fastpack.json"}  # a random uuid; modification times


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in VARYING)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def prepared(folder: Path, walker: Callable[[str], WalkResult] | None = None, **execution: bool | int) -> PrepareResult:
    settings = PrepareSettings(SplitSpec(ratio=RATIO), execution=ExecutionSettings(**execution))  # type: ignore[arg-type]
    return prepare_webdataset(folder, settings, walker=walker)


def run_distributed(folder: Path, size: int, n_bytes: int | None = 5000, **options: bool) -> PrepareResult:
    skip = options.pop("skip_bad_shards", False)
    execution = ExecutionSettings(force_overwrite=True, **options)
    plan = plan_walk(folder, bytes_per_task=n_bytes, execution=execution)
    for rank in range(size):
        run_rank(plan, rank, size)
    walker = walker_of(plan, skip_bad_shards=skip)
    result = prepared(folder, walker, force_overwrite=True, skip_bad_shards=skip, **options)
    clear(plan)
    return result


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Write a dataset and a copy of it."""
    write_shards(tmp_path / "local")
    shutil.copytree(tmp_path / "local", tmp_path / "distributed")
    return tmp_path / "local", tmp_path / "distributed"


def test_unchanged_shards_are_not_scanned_again(two: tuple[Path, Path]) -> None:
    prepared(two[0])
    run_distributed(two[1], 2)
    with pytest.raises(TargetExists):
        plan_walk(two[1])
    for folder in two:
        write_tar(folder / "1" / "new.tar", ["n.jpg", "n.json"])
        os.utime(folder / "0" / "003.tar")
    local = prepared(two[0], force_overwrite=True)
    result = run_distributed(two[1], 2)
    assert result.reused == local.reused == 13
    assert content(two[1]) == content(two[0])
    assert run_distributed(two[1], 1, walk_all=True).reused == 0
    assert content(two[1]) == content(two[0])


def test_bad_shards(two: tuple[Path, Path]) -> None:
    for folder in two:
        bad = folder / "2" / "008.tar"
        bad.write_bytes(bad.read_bytes()[:700])
        write_tar(folder / "2" / "empty.tar", [])
    with pytest.raises(FormatError) as local:
        prepared(two[0])
    with pytest.raises(FormatError) as error:
        run_distributed(two[1], 2)
    assert str(error.value).replace("/distributed/", "/local/") == str(local.value)
    skipped = prepared(two[0], skip_bad_shards=True, force_overwrite=True).skipped
    assert (
        list(run_distributed(two[1], 2, skip_bad_shards=True).skipped) == list(skipped) == ["2/008.tar", "2/empty.tar"]
    )
    assert content(two[1]) == content(two[0])


def test_shard_that_changed_after_its_task_is_named(two: tuple[Path, Path]) -> None:
    plan = plan_walk(two[0])
    run_rank(plan, 0, 1)
    walker = walker_of(plan)
    write_tar(two[0] / "0" / "000.tar", ["other.txt"])
    with pytest.raises(JobError, match=r"000\.tar has changed since its task"):
        prepared(two[0], walker)
    with pytest.raises(JobError, match="are not done"):
        walker_of(plan_walk(two[0]))
