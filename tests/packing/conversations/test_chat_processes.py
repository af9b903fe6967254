"""Packing of conversations in several processes: kills, resumption, and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fastpack

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
TEMPLATE += "{% if add_generation_prompt %}assistant: {% endif %}"
SCRIPT = """
import sys
import fastpack
from fastpack.packing import packing_pipeline as run
run.MIN_BATCH_BYTES = run.MAX_BATCH_BYTES = run.CHAT_WORKER_BYTES = 3000
run.CHECKPOINT_SECONDS = -1
source, workers, waits = sys.argv[1:]
def progress(done, total):
    if int(waits):
        print(done, flush=True)
        sys.stdin.readline()
result = fastpack.pack_conversations(
    source, "chats.pbin", tokenizer="bytes", chat_template="t.jinja", num_workers=int(workers), resume=True,
    progress=progress,
)
print(result.resumed_documents, result.loss_tokens, result.turns, len(result.skipped), flush=True)
"""
PEAK = """
import sys
from fastpack.cli import main
code = main(sys.argv[1:])
(peak,) = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(peak >> 10, code)
"""


def write(folder: Path, n_chats: int, copies: int = 1, *, even: bool = False) -> Path:
    """Write conversations and a template; those with an odd number of turns, unless `even`, cannot be packed."""
    (folder / "t.jinja").write_text(TEMPLATE)
    rows = []
    for number in range(n_chats):
        n_turns = 2 + number % 4 + (number % 2 if even else 0)
        turns = [(("user", "assistant")[i % 2], f"{number} " * (number % 7 + i)) for i in range(n_turns)]
        rows.append(json.dumps({"messages": [{"role": role, "content": text} for role, text in turns]}) + "\n")
    source = folder / "source.jsonl"
    with source.open("w") as file:
        for _ in range(copies):
            file.write("".join(rows))
    return source


def start(folder: Path, workers: int, waits: bool) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, "source.jsonl", str(workers), str(int(waits))]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_runs_are_resumed_to_the_same_bytes(tmp_path: Path, workers: int) -> None:
    source = write(tmp_path, 300)
    whole = fastpack.pack_conversations(
        source, tmp_path / "whole.pbin", tokenizer="bytes", chat_template=tmp_path / "t.jinja", num_workers=1
    )
    for n_batches in (2, 1, 5):
        process = start(tmp_path, workers, waits=True)
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(n_batches):
            assert int(process.stdout.readline()) > 0
            process.stdin.write("\n")
            process.stdin.flush()
        process.kill()
        process.communicate()
        assert not (tmp_path / "chats.pbin").exists()
        assert not (tmp_path / "chats.pbin.mask").exists()
    out, error = start(tmp_path, workers, waits=False).communicate()
    resumed, *counts = map(int, out.split())
    assert resumed > 0, error
    assert counts == [whole.loss_tokens, whole.turns, len(whole.skipped)]
    for suffix in ("", ".mask"):
        assert (tmp_path / f"chats.pbin{suffix}").read_bytes() == Path(f"{whole.path}{suffix}").read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/status")
def test_memory_does_not_grow_with_the_source(tmp_path: Path) -> None:
    """A token takes one bit of memory, a document 24 bytes; one that is skipped, and listed, about 200."""
    peaks = []
    for copies in (10, 60):
        source = write(tmp_path, 5_000, copies, even=True)
        words = ["chat", str(source), "--tokenizer", "bytes", "--chat-template", str(tmp_path / "t.jinja"), "--force"]
        run = [sys.executable, "-c", PEAK, *words, "-o", str(tmp_path / "o.pbin"), "--num-workers", "1", "-q"]
        done = subprocess.run(run, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-2]))
    assert peaks[1] < peaks[0] + 60, f"{peaks} MiB for a source of {source.stat().st_size >> 20} MiB"
