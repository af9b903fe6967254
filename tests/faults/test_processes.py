"""Real processes on a real system: killed, failed by the system's own calls, racing, and within their memory."""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fastpack import MemoryMappedDataset
from fastpack.cli import main
from fastpack.errors import FastpackError
from fastpack.formats.pbin import PackedFile, PackedWriter

COMMAND = [sys.executable, "-m", "fastpack"]
CALLS = ("write", "pwrite64", "fsync", "fdatasync", "rename", "ftruncate")
WORDS = {
    "index": ["index", "docs.jsonl", "--force"],
    "pack": ["pack", "docs.jsonl", "--tokenizer", "bytes", "--eod-token", "<|endoftext|>", "--num-cpus", "1"],
    "prepare": ["prepare", "ds", "--split-ratio=1,0,0", "--num-workers=1", "--force-overwrite", "--non-interactive"],
}


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
    """Sources, and an index to be replaced."""
    import io
    import tarfile

    (tmp_path / "docs.jsonl").write_text("".join(f'{{"text": "document {n}"}}\n' for n in range(9)))
    (tmp_path / "docs.idx").write_bytes(b"")
    assert main(["index", str(tmp_path / "docs.jsonl"), "--force", "-q"]) == 0
    with PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append(np.arange(50))
    (tmp_path / "out").write_bytes(b"what was there before")
    (tmp_path / "ds").mkdir()
    with tarfile.open(tmp_path / "ds/s.tar", "w") as tar:
        info = tarfile.TarInfo("a.txt")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))
    return tmp_path


def traced(folder: Path, words: list[str], *options: str) -> tuple[int, str, str]:
    """Exit code, errors, and the log of calls on files of the folder."""
    log = folder.parent / f"{folder.name}.log"
    strace = ["strace", "-f", "-y", "-qq", "-o", str(log), "-e", f"trace={','.join(CALLS)}", *options]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*strace, *COMMAND, *words], cwd=folder, capture_output=True, text=True, env=environment)
    return done.returncode, done.stderr, log.read_text()


def states(folder: Path) -> dict[str, bytes]:
    changing = ("index.uuid", ".fastpack.json")
    found = (path for path in folder.rglob("*") if path.is_file() and path.name not in changing)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(found)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index", "prepare"])
@pytest.mark.parametrize("fault", ["signal=SIGKILL", "error=EINTR"])
def test_calls_of_the_system(fault: str, name: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The first of each kind, by the system itself (test_every_call has every one); EINTR must not even be noticed."""
    need_strace()
    before, where = states(folder), tmp_path_factory.mktemp("run")
    shutil.copytree(folder, where / "whole")
    code, errors, log = traced(where / "whole", WORDS[name])
    assert code == 0, errors
    after = states(where / "whole")
    calls = [match[1] for match in re.finditer(rf"^\d+ +(\w+)\(.*{re.escape(str(where))}|^\d+ +(rename)\(", log, re.M)]
    assert len(calls) >= 3
    for call in dict.fromkeys(filter(None, calls)):
        for at in range(1, calls.count(call) + 1)[:2]:
            run = where / f"{call} {at}"
            shutil.copytree(folder, run)
            code, errors, _ = traced(run, WORDS[name], "-P", str(run), "-e", f"inject={call}:{fault}:when={at}")
            now = {path: data for path, data in states(run).items() if not path.endswith((".partial", ".journal"))}
            assert set(now) <= set(after), (call, at)
            assert all(now[path] in (before.get(path), after.get(path)) for path in now), (call, at)
            if fault == "error=EINTR" and call != "rename":
                assert (code, now) == (0, after), (call, at, errors)
            again = subprocess.run([*COMMAND, *WORDS[name], "-q"], cwd=run, capture_output=True, text=True)
            assert again.returncode == 0 or "File already exists" in again.stderr, (call, at, again.stderr)
            assert states(run) == after, (call, at)


def test_of_commands_that_race_one_wins(folder: Path) -> None:
    """Started together over and over: one writes the file, the other says that it is, or was, being written."""
    words = ["merge", "a.pbin", "a.pbin", "raced.pbin"]
    for _ in range(3):
        racers = [
            subprocess.Popen([*COMMAND, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        errors = [racer.communicate()[1] for racer in racers]
        assert sorted(racer.returncode for racer in racers) == [0, 1], errors
        said = "".join(errors)
        assert "another process is writing" in said or "File already exists" in said
        assert len(PackedFile(folder / "raced.pbin")) == 2
        (folder / "raced.pbin").unlink()


def test_random_kills_end_in_the_same_bytes(folder: Path) -> None:
    words = [*WORDS["pack"], "--resume", "-o", "killed.pbin"]
    rng = np.random.default_rng(0)
    for _ in range(4):
        process = subprocess.Popen([*COMMAND, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.1, 0.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*COMMAND, *words], cwd=folder, check=True, capture_output=True)
    subprocess.run([*COMMAND, *WORDS["pack"], "-o", "whole.pbin"], cwd=folder, check=True, capture_output=True)
    assert (folder / "killed.pbin").read_bytes() == (folder / "whole.pbin").read_bytes()
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_a_shard_that_shrinks_is_an_error_with_pread(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100_000, dtype=np.uint16))
    dataset = MemoryMappedDataset(tmp_path, 1000, io="pread")
    assert dataset.batch([0])["labels"][0, 0] == 1
    os.truncate(tmp_path / "a.npy", 5000)
    with pytest.raises(FastpackError, match=r"a\.npy"):
        dataset.batch([90])


MEASURED = """
import resource, sys
from fastpack.cli import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, code)
"""
DECODED = """
import resource
import numpy as np
from fastpack import MemoryMappedDataset
dataset = MemoryMappedDataset(".", 8192, "*.bin", dtype="uint16", io="pread")
for first in range(0, len(dataset) - 64, 64):
    dataset.batch(np.arange(first, first + 64))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, int(first < 60_000))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss in KiB")
def test_memory_of_a_gibibyte(tmp_path: Path) -> None:
    """Peak of the resident set, pages of mapped files included: those that were read are given back as it goes."""
    line = b'{"text": "' + b"some words of a document " * 160 + b'"}\n'
    with open(tmp_path / "docs.jsonl", "wb") as file:
        for _ in range((1 << 30) // (len(line) * 1024)):
            file.write(line * 1024)
    pack = ["pack", "docs.jsonl", "--tokenizer", "bytes", "--eod-token", "<|endoftext|>", "--num-cpus", "1"]
    commands = (["index", "docs.jsonl"], pack, ["merge", "docs.pbin", "merged.bin"], ["verify", "docs.pbin"])
    runs = [[MEASURED, *words, "-q"] for words in commands] + [[DECODED]]
    for script, *words in runs:
        run = [sys.executable, "-c", script, *words]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
        peak, code = map(int, done.stdout.split()[-2:])
        assert code == 0, done.stderr
        assert peak < 300 << 10, f"{words[:1]}: {peak / 1024:.0f} MiB"
