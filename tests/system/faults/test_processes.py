"""Real processes: killed, with failing system calls, racing, and with limited memory."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tar_files import write_tar

from fastpack import MemoryMappedDataset
from fastpack.cli import main
from fastpack.errors import FastpackError
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.pbin.packed_writer import PackedWriter

COMMAND = [sys.executable, "-m", "fastpack"]
PACK = ["pack", "docs.jsonl", "--tokenizer", "bytes", "--eod-token", "<|endoftext|>", "--num-cpus", "1"]
CALLS = ("write", "pwrite64", "fsync", "fdatasync", "rename", "ftruncate")
WORDS = {
    "index": ["index", "docs.jsonl", "--force"],
    "pack": [*PACK, "-o", "out", "--force"],
    "merge": ["merge", "a.pbin", "a.pbin", "out", "--force"],
    "shuffle": ["shuffle", "a.pbin", "out", "--seed", "1", "--force"],
    "write-checksums": ["verify", "docs.jsonl", "--write-checksums"],
    "prepare": ["prepare", "ds", "--split-ratio=1,0,0", "--num-workers=1", "--force-overwrite", "--non-interactive"],
}
FAULTS = ("signal=SIGKILL", "error=ENOSPC", "error=EIO", "error=EINTR")
FAST = (("index", "signal=SIGKILL"), ("index", "error=ENOSPC"))


@functools.cache
def strace_works() -> bool:
    if shutil.which("strace") is None:
        return False
    probe = ["strace", "-f", "-e", "trace=write", "-e", "inject=write:error=EIO:when=1", "true"]
    return subprocess.run(probe, capture_output=True).returncode == 0


def need_strace() -> None:
    if strace_works():
        return
    assert "strace" not in os.environ.get("FASTPACK_REQUIRE", ""), "FASTPACK_REQUIRE names strace, which does not work"
    pytest.skip("strace is missing, or may not trace: real calls are not failed here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with sources and existing outputs."""
    (tmp_path / "docs.jsonl").write_text("".join(f'{{"text": "document {n}"}}\n' for n in range(9)))
    (tmp_path / "docs.idx").write_bytes(b"")
    assert main(["index", str(tmp_path / "docs.jsonl"), "--force", "-q"]) == 0
    with PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append(np.arange(50))
    (tmp_path / "out").write_bytes(b"what was there before")
    write_tar(tmp_path / "ds/s.tar", {"a.txt": b"abc"})
    return tmp_path


def traced(folder: Path, words: list[str], *options: str) -> tuple[int, str, str]:
    """Run with strace; return the exit code, stderr, and the log of calls on files of the folder."""
    log = folder.parent / f"{folder.name}.log"
    strace = ["strace", "-f", "-y", "-qq", "-o", str(log), "-e", f"trace={','.join(CALLS)}", *options]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*strace, *COMMAND, *words], cwd=folder, capture_output=True, text=True, env=environment)
    return done.returncode, done.stderr, log.read_text()


def states(folder: Path) -> dict[str, bytes]:
    changing = ("index.uuid", ".fastpack.json")
    found = (path for path in folder.rglob("*") if path.is_file() and path.name not in changing)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(found)}


class CallSite(NamedTuple):
    """The `at`-th call of this name in a command."""

    call: str
    at: int


def call_sites(log: str, folder: Path) -> tuple[list[CallSite], list[str]]:
    """Return the logged calls that change files of the folder, and the relative paths of these files."""
    counts: Counter[str] = Counter()
    found, names = [], {""}
    for line in log.splitlines():
        paths = re.findall(rf"{re.escape(str(folder))}/?([^\">]*)", line)
        match = re.match(r"\d+ +(\w+)\(", line)
        if match and "rename(" in line and not paths:  # with paths relative to the working directory
            paths = re.findall(r'"([^"]+)"', line)
        if match and paths:
            counts[match[1]] += 1
            found.append(CallSite(match[1], counts[match[1]]))
            names.update(paths)
    return found, sorted(names)


def case(name: str, fault: str) -> Any:
    """Return the parameters of a command and a fault, marked slow unless they take only a second or two."""
    return pytest.param(name, fault, marks=[] if (name, fault) in FAST else [pytest.mark.slow])


@pytest.mark.parametrize(("name", "fault"), [case(name, fault) for name in WORDS for fault in FAULTS])
def test_failing_system_calls(
    fault: str, name: str, folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """strace lets each call fail, or kills the process at it; an interrupted call (EINTR) has no effect.

    For `prepare` and some faults, only the first calls of each name are tested, unless FASTPACK_EVERY_CALL is set.
    """
    need_strace()
    before, where = states(folder), tmp_path_factory.mktemp("run")
    shutil.copytree(folder, where / "whole")
    code, errors, log = traced(where / "whole", WORDS[name])
    assert code == 0, errors
    after = states(where / "whole")
    calls, names = call_sites(log, where / "whole")
    assert {"pwrite64", "fsync", "rename", "ftruncate"} <= {point.call for point in calls}
    if "FASTPACK_EVERY_CALL" not in os.environ:  # otherwise four hundred processes
        last = 99 if fault in FAULTS[:2] else 1
        calls = [point for point in calls if point.at <= (min(last, 2) if name == "prepare" else last)]

    def run(point: CallSite) -> tuple[int, str]:
        place = where / f"{point.call} {point.at}"
        shutil.copytree(folder, place)
        only = [word for name in names for word in ("-P", str(place / name))]
        inject = f"inject={point.call}:{fault}:when={point.at}"
        code, errors, log = traced(place, WORDS[name], *only, "-e", inject)
        assert "(INJECTED)" in log or "killed by SIGKILL" in log, point
        return code, errors

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(run, calls))
    for point, (code, errors) in zip(calls, results, strict=True):
        place = where / f"{point.call} {point.at}"
        there = states(place)
        now = {path: data for path, data in there.items() if not path.endswith(".partial")}
        assert set(now) <= set(after), point
        assert all(now[path] in (before.get(path), after.get(path)) for path in now), point
        assert set(before) <= set(now), point
        if fault == "signal=SIGKILL":
            assert code == -signal.SIGKILL, (point, errors)
        elif fault == "error=EINTR" and point.call != "rename":
            assert (code, now) == (0, after), (point, errors)
        else:
            expected = os.strerror(getattr(errno, fault.removeprefix("error=")))
            assert (code, errors.count("\n"), now) == (1, 1, there), (point, errors)
            assert expected in errors, point
        monkeypatch.chdir(place)
        assert main([*WORDS[name], "-q"]) == 0, point
        assert states(place) == after, point


@pytest.mark.parametrize("name", ["index", "pack", "merge", "shuffle", "write-checksums", "prepare"])
def test_a_file_size_limit(name: str, folder: Path) -> None:
    """With RLIMIT_FSIZE, the write fails with EFBIG, because the signal is ignored."""
    before = states(folder)
    limited = ["bash", "-c", 'ulimit -f 0; exec "$@"', "bash", *COMMAND, *WORDS[name]]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(limited, cwd=folder, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert os.strerror(errno.EFBIG) in done.stderr
    assert states(folder) == before


def test_one_of_several_concurrent_commands_succeeds(folder: Path) -> None:
    """Of two concurrent commands, one writes the file; the other reports that the file is being or was written."""
    words = ["merge", "a.pbin", "a.pbin", "raced.pbin"]
    for _ in range(3):
        racers = [
            subprocess.Popen([*COMMAND, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        errors = [racer.communicate()[1] for racer in racers]
        assert sorted(racer.returncode for racer in racers) == [0, 1], errors
        messages = "".join(errors)
        assert "another process is writing" in messages or "exists. Pass --force to overwrite it." in messages
        assert len(PackedFile(folder / "raced.pbin")) == 2
        (folder / "raced.pbin").unlink()


RACER = """
import contextlib, io, json, sys, time
from fastpack.cli import main
for line in sys.stdin:
    words, start = json.loads(line)
    messages = io.StringIO()
    while time.monotonic() < start:
        pass
    with contextlib.redirect_stderr(messages):
        code = main(words)
    print(json.dumps([code, messages.getvalue()]), flush=True)
"""


@pytest.mark.parametrize("name", ["index", "pack"])
def test_each_of_fifty_races_has_one_winner(name: str, folder: Path) -> None:
    """Two processes start a command at the same moment, fifty times, without restarting their interpreters."""
    target = folder / ("raced.idx" if name == "index" else "raced.pbin")
    words = ["index", "docs.jsonl", "--index-path"] if name == "index" else [*PACK, "-o"]
    assert subprocess.run([*COMMAND, *words, target.name, "-q"], cwd=folder).returncode == 0
    expected, names = target.read_bytes(), sorted(os.listdir(folder))
    outcomes: Counter[str] = Counter()
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": folder}
    with contextlib.ExitStack() as stack:
        racers = [stack.enter_context(subprocess.Popen([sys.executable, "-c", RACER], **pipes)) for _ in range(2)]
        for _ in range(50):
            target.unlink()
            line = json.dumps([[*words, target.name, "-q"], time.monotonic() + 0.01])
            for racer in racers:
                racer.stdin.write(line + "\n")
                racer.stdin.flush()
            (won, quiet), (lost, messages) = sorted(json.loads(racer.stdout.readline()) for racer in racers)
            assert (won, quiet, lost, messages.count("\n")) == (0, "", 1, 1), messages
            outcomes[
                "writing"
                if "another process is writing" in messages
                else "exists"
                if "exists" in messages
                else messages
            ] += 1
            assert target.read_bytes() == expected
            assert sorted(os.listdir(folder)) == names
    assert set(outcomes) <= {"writing", "exists"}
    assert outcomes.total() == 50


def test_random_kills_and_resumes_give_equal_bytes(folder: Path) -> None:
    words = [*PACK, "--resume", "-o", "killed.pbin"]
    rng = np.random.default_rng(0)
    for _ in range(4):
        process = subprocess.Popen([*COMMAND, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.1, 0.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*COMMAND, *words], cwd=folder, check=True, capture_output=True)
    subprocess.run([*COMMAND, *PACK, "-o", "whole.pbin"], cwd=folder, check=True, capture_output=True)
    assert (folder / "killed.pbin").read_bytes() == (folder / "whole.pbin").read_bytes()
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_a_shard_that_shrinks_is_an_error_with_pread(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100_000, dtype=np.uint16))
    dataset = MemoryMappedDataset(tmp_path, 1000, io="pread")
    assert dataset.batch([0])["labels"][0, 0] == 1
    os.truncate(tmp_path / "a.npy", 5000)
    with pytest.raises(FastpackError, match=r"a\.npy"):
        dataset.batch([90])


STATUS = """
def status(name):  # KiB; not ru_maxrss, in which Linux also counts what the process that forked this one had
    (kib,) = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)]
    return kib
"""
MEASURED = f"""{STATUS}
import sys
from fastpack.cli import main
code = main(sys.argv[1:])
print(status("VmHWM"), code)
"""
READ = f"""{STATUS}
import numpy as np
from fastpack import LargeFileLinesReader, MemoryMappedDataset, PackedMemMapDatasetContinuous, WebDataset
n_bytes = 0
{{script}}
# Of pages that are mapped the system may take any back at any time: what counts is what is left.
print(status("RssAnon" if {{mapped}} else "VmHWM"), int(n_bytes < 1_000_000_000))
"""
BATCHES = """
for first in range(0, len(dataset) - 64, 64):
    n_bytes += 2 * next(iter(dataset.batch(np.arange(first, first + 64)).values())).size
"""
READERS = {  # commands that read a gibibyte; whether they map it
    "shards": (f"dataset = MemoryMappedDataset('.', 8192, '*.bin', dtype='uint16', io='pread'){BATCHES}", False),
    "packed": (f"dataset = PackedMemMapDatasetContinuous('docs.pbin', 'x', 8192, False){BATCHES}", True),
    "lines": ("for line in LargeFileLinesReader('docs.jsonl'):\n    n_bytes += len(line)", True),
    "JSON": ("for sample in WebDataset('docs.jsonl', io='pread'):\n    n_bytes += len(sample['json']['text'])", False),
    "tars": ("for sample in WebDataset('ds', io='pread'):\n    n_bytes += len(sample['txt'])", False),
}


def check_memory(folder: Path, script: str, *words: str) -> None:
    """Check the peak resident memory including mapped pages, which are released after they were read."""
    run = [sys.executable, "-c", script, *words]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peak, code = map(int, done.stdout.split()[-2:])
    assert code == 0, (words, done.stderr)
    assert peak < 300 << 10, f"{words or script}: {peak / 1024:.0f} MiB"


def write_a_gibibyte(path: Path) -> None:
    line = b'{"text": "' + b"some words of a document " * 160 + b'"}\n'
    with open(path, "wb") as file:
        for _ in range((1 << 30) // (len(line) * 1024)):
            file.write(line * 1024)


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/status")
def test_memory_of_a_gibibyte(tmp_path: Path) -> None:
    write_a_gibibyte(tmp_path / "docs.jsonl")
    merge = ["merge", "docs.pbin", "merged.bin"]
    for words in (["index", "docs.jsonl"], [*PACK, "-o", "docs.pbin"], merge, ["verify", "docs.pbin"]):
        check_memory(tmp_path, MEASURED, *words, "-q")
    for name in ("shards", "packed", "lines"):
        script, mapped = READERS[name]
        check_memory(tmp_path, READ.format(script=script, mapped=mapped))


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/status")
def test_memory_of_a_gibibyte_of_samples(tmp_path: Path) -> None:
    """JSON lines and tars as datasets: prepared, verified and decoded."""
    write_a_gibibyte(tmp_path / "docs.jsonl")
    text = b"words of a text " * (1 << 12)
    for shard in range(4):
        write_tar(tmp_path / f"ds/s{shard}.tar", {f"{shard}_{number}.txt": text for number in range(4096)})
    prepare = ["prepare", "ds", "--split-ratio=1,0,0", "--non-interactive", "--sample-type=CrudeWebdataset"]
    for words in (["prepare", "docs.jsonl"], ["verify", "docs.jsonl"], prepare, ["verify", "ds", "--deep"]):
        check_memory(tmp_path, MEASURED, *words, "-q")
    for name in ("JSON", "tars"):
        script, mapped = READERS[name]
        check_memory(tmp_path, READ.format(script=script, mapped=mapped))
