"""`prepare` by ranks writes the files of a local run, except for the random uuid and timestamps."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from preparing import rows, write_tar
from ranks import run, run_and_kill

from fastpack.cli import main
from fastpack.distributed.plan import clear
from fastpack.distributed.prepare_tasks import plan_walk, walker_of
from fastpack.distributed.ranks import run_rank
from fastpack.errors import FormatError, JobError
from fastpack.io import TargetExists
from fastpack.webdataset.preparation.prepare_webdataset import PrepareResult, prepare_webdataset
from fastpack.webdataset.preparation.settings import ExecutionSettings, PrepareSettings, SplitSpec
from fastpack.webdataset.preparation.walk_shards import WalkResult

TIME = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")  # media_filters records when a filter was first used
RATIO = (8, 1, 1)
VARYING = {"index.uuid", ".fastpack.json"}  # a random uuid; modification times


def make(folder: Path, n_shards: int, n_samples: int, first: int = 0) -> None:
    rng = random.Random(0)
    for shard in range(first, first + n_shards):
        members = []
        for sample in range(rng.randrange(1, n_samples)):
            key = f"{shard}_{sample}_ü"
            members += [f"{key}.{field}" for field in ("jpg", "json", "ä.txt")[: rng.randrange(1, 4)]]
        write_tar(folder / f"{shard % 3}" / f"{shard:03}.tar", members, rng.randbytes(40))


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
    make(tmp_path / "local", 14, 30)
    shutil.copytree(tmp_path / "local", tmp_path / "distributed")
    return tmp_path / "local", tmp_path / "distributed"


@pytest.mark.parametrize("sample_tables", [True, False])
@pytest.mark.parametrize(("size", "n_bytes"), [(1, None), (2, 20_000), (5, 1)])
def test_files_equal_those_of_a_local_run(
    two: tuple[Path, Path], size: int, n_bytes: int | None, sample_tables: bool
) -> None:
    local = prepared(two[0], num_workers=1, sample_tables=sample_tables)
    result = run_distributed(two[1], size, n_bytes, sample_tables=sample_tables)
    assert content(two[1]) == content(two[0])
    assert (result.shards, result.splits, result.part_types) == (local.shards, local.splits, local.part_types)
    if sample_tables:
        assert len(rows(two[1], "samples")) == local.samples


def test_unchanged_shards_are_not_scanned_again(two: tuple[Path, Path]) -> None:
    prepared(two[0])
    run_distributed(two[1], 2)
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


def test_media_are_read_by_the_ranks(two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    import io

    data = io.BytesIO()
    image.fromarray(np.zeros((3, 5, 3), np.uint8)).save(data, "png")
    for folder in two:
        write_tar(folder / "a.tar", ["x.png", "y.png"], data.getvalue())
    words = ["--split-ratio", "1,1,0", "--non-interactive", "--media-metadata-by-extension", "--json"]
    assert main(["prepare", str(two[0]), *words]) == 0
    local = json.loads(capsys.readouterr().out)
    assert main(["prepare", str(two[1]), *words, "--rank", "0", "--world-size", "1"]) == 0
    capsys.readouterr()
    assert main(["prepare", str(two[1]), *words, "--collect"]) == 0
    assert {**json.loads(capsys.readouterr().out), "path": 0} == {**local, "path": 0}
    assert local["media"] == 2
    one, other = ({name: TIME.sub(b"", data) for name, data in content(folder).items()} for folder in two)
    assert one == other


def test_command_line(two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["prepare", str(two[1]), "--task-bytes", "20000", "--json"]
    assert main(["prepare", str(two[0]), "--split-ratio", "8,1,1", "--json"]) == 0
    local = json.loads(capsys.readouterr().out)
    assert main([*words, "--split-ratio", "8,1,1", "--collect"]) == 1
    assert "are not done" in capsys.readouterr().err
    for rank in "10":
        assert main([*words, "--rank", rank, "--world-size", "2"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["left"] == 0
    assert main([*words, "--collect"]) == 2
    assert "--split-ratio" in capsys.readouterr().err
    assert main([*words, "--split-ratio", "8,1,1", "--collect"]) == 0
    assert {**json.loads(capsys.readouterr().out), "path": 0} == {**local, "path": 0}
    assert content(two[1]) == content(two[0])
    with pytest.raises(TargetExists):
        plan_walk(two[1])
    assert main(["prepare", str(two[1] / "x.jsonl"), "--collect"]) == 1
    (two[1] / "x.jsonl").write_text("{}\n")
    assert main(["prepare", str(two[1] / "x.jsonl"), "--collect"]) == 2
    assert "only for folders of shards" in capsys.readouterr().err


@pytest.mark.parametrize("seed", [pytest.param(n, marks=pytest.mark.long if n else pytest.mark.slow) for n in range(2)])
def test_killed_ranks_can_be_rerun(two: tuple[Path, Path], seed: int) -> None:
    for folder in two:
        make(folder / "more", 60, 300, first=100)
    prepared(two[0])
    words = ["prepare", ".", "--task-bytes", "1000"]
    assert run_and_kill(words, two[1], 3, kills=4, seed=seed) > 0
    collected = run([*words, "--split-ratio", "8,1,1", "--collect"], two[1])
    assert collected.returncode == 0, collected.stderr
    assert content(two[1]) == content(two[0])
