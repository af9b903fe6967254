"""Worker processes of `pack`: cleanup when a worker or the parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pack_sources import config_of, line, pack_lines, tokenizer_of, write_source

from fastpack.errors import JobError
from fastpack.packing import pack_job, worker_pool
from fastpack.packing.pack import pack_encoded_data

SCRIPT = """
import sys
from fastpack.packing import pack
from fastpack.packing import packing_pipeline as run, worker_pool
from fastpack.tokenizers.bytes_tokenizer import BytesTokenizer
BytesTokenizer.worker_bytes = 20_000
run.MIN_BATCH_BYTES = run.MAX_BATCH_BYTES = 20_000
source, way = sys.argv[1:]
if way == "new interpreters":
    worker_pool.can_fork = lambda: False
pack.pack_encoded_data({
    "settings": {"src_path": source, "dst_path": source + ".pbin", "jq_pattern": ".text", "num_cpus": 2,
                 "eod_token": "<|endoftext|>"},
    "tokenizer": {"variant_key": "builtin_bytes"},
}, progress=lambda done, total: print(done, flush=True) or sys.stdin.readline())
"""


def children(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)


@pytest.fixture(params=["forks", "new interpreters"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Start a pack run with two workers that waits for a line on its standard input after its first batch."""
    source = write_source(tmp_path, [line("x" * 5000) for _ in range(400)])
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(source), request.param],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # its threads would forbid forks
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert int(process.stdout.readline()) > 0
        if sys.platform.startswith("linux"):
            commands = [Path(f"/proc/{worker}/cmdline").read_bytes() for worker in children(process.pid)]
            assert [b"worker_pool import main" in command for command in commands] == [request.param != "forks"] * 2
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_killed_parent_leaves_no_workers_and_no_target(running: Any, tmp_path: Path) -> None:
    workers = children(running.pid)
    assert len(workers) == 2
    running.send_signal(signal.SIGKILL)
    running.wait()
    wait_until(lambda: not any(map(is_running, workers)))
    assert not (tmp_path / "src.jsonl.pbin").exists()
    result = pack_encoded_data(config_of(tmp_path / "src.jsonl", dst_path=tmp_path / "src.jsonl.pbin"))
    assert result.documents == 400
    assert not [p for p in tmp_path.iterdir() if "partial" in p.name]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_killed_worker_ends_the_run_with_a_clear_error(running: Any, tmp_path: Path) -> None:
    workers = children(running.pid)
    os.kill(workers[0], signal.SIGKILL)
    _, errors = running.communicate(input=b"\n" * 200)
    assert running.returncode == 1
    assert b"JobError: a tokenising process died (killed by SIGKILL" in errors
    assert b"nothing was written" in errors
    assert not any(map(is_running, workers))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["src.idx", "src.jsonl"]


def test_forks_and_new_interpreters_write_the_same_bytes(running: Any, tmp_path: Path) -> None:
    running.communicate(input=b"\n" * 200)
    assert running.returncode == 0
    alone = pack_encoded_data(config_of(tmp_path / "src.jsonl", dst_path=tmp_path / "alone.pbin", num_cpus=1))
    assert (tmp_path / "src.jsonl.pbin").read_bytes() == (tmp_path / "alone.pbin").read_bytes()
    assert alone.documents == 400


def test_worker_that_cannot_start_reports_the_reason(
    tmp_path: Path, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokenizer disappears between the check in the main process and the start of the workers."""
    tokenizer = tokenizer_of(tmp_path, ["<unk>", "a"], ["<eod>"])
    source = write_source(tmp_path, [line("a " * 1000)] * 20)
    real = pack_job.files.may_write

    def vanish(*args: Any) -> bool:
        (tmp_path / "tokenizer.json").unlink(missing_ok=True)
        return real(*args)

    monkeypatch.setattr(pack_job.files, "may_write", vanish)
    monkeypatch.setattr(worker_pool, "can_fork", lambda: False)
    with pytest.raises(JobError, match=r"FileNotFoundError: .*tokenizer\.json"):
        pack_encoded_data(config_of(source, tokenizer, num_cpus=2, eod_token="<eod>"))
    assert not source.with_suffix(".pbin").exists()


def test_environment_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, "true"):
        monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
        if value is not None:
            monkeypatch.setenv("TOKENIZERS_PARALLELISM", value)
        pack_lines(tmp_path, [line("a")])
        assert os.environ.get("TOKENIZERS_PARALLELISM") == value
