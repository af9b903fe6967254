"""Measure the overhead of distributed runs: each command as one process, as ranks, and on two local Ray nodes.

`python tests/system/distributed/overhead.py [--megabytes N] [--ranks N] [--no-ray]` prints a table of ratios to
one process: the CPU time of all processes, and the wall time including the last step.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

import numpy as np
from preparing import write_tar
from ranks import COMMAND
from ray_nodes import namespaces, run_on_two_nodes

from fastpack.tokens.pbin.packed_writer import PackedWriter

TOKENIZER = Path(__file__).parents[2] / "golden" / "modalities" / "tokenizers" / "tok_bpe2000"
EOD = "<|endoftext|>"
CHUNK = ["--chunk-id", "0", "--num-chunks", "2", "--seed", "1"]


class Cost(NamedTuple):
    """CPU and wall time in seconds."""

    cpu: float
    wall: float


def measured(work: Callable[[], None]) -> Cost:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, time.perf_counter() - started)


def run(folder: Path, *commands: list[str]) -> None:
    """Run all commands at the same time."""
    started = [subprocess.Popen([*COMMAND, *words, "-q"], cwd=folder) for words in commands]
    assert [process.wait() for process in started] == [0] * len(commands)


def make(folder: Path, n_bytes: int) -> None:
    rng = random.Random(0)
    words = [rng.randbytes(rng.randrange(1, 6)).hex() for _ in range(3000)]
    lines = [json.dumps({"text": " ".join(rng.choices(words, k=200))}) + "\n" for _ in range(2000)]
    block = "".join(lines)
    for name, size in (("large", n_bytes), ("small", n_bytes // 16)):
        (folder / f"{name}.jsonl").write_text(block * max(1, size // len(block)))
    (folder / "shards").mkdir()
    content = rng.randbytes(3000)
    for shard in range(max(1, n_bytes // (4 << 20))):
        members = [f"{shard}_{k}.{part}" for k in range(400) for part in ("jpg", "json")]
        write_tar(folder / "shards" / f"{shard:04}.tar", members, content)
    run(folder, ["index", "large.jsonl"], ["index", "small.jsonl"])
    make_packed(folder, n_bytes)


def make_packed(folder: Path, n_bytes: int) -> None:
    """Write two files of documents of about 800 tokens."""
    rng = np.random.default_rng(0)
    for name in ("a.pbin", "b.pbin"):
        with PackedWriter(folder / name, 2) as writer:
            while writer.n_tokens < n_bytes // 4:
                lengths = rng.lognormal(6.3, 0.9, 1000).astype(int) + 1
                writer.append_many(rng.integers(0, 60_000, int(lengths.sum()), np.uint16), lengths)


def jobs(ranks: int, n_bytes: int) -> dict[str, tuple[list[str], list[str], str]]:
    """Return for each job its command, the options of the last step, and the output."""
    large = ["--task-bytes", str(max(1, n_bytes // (4 * ranks)))]
    small = ["--task-bytes", str(max(1, n_bytes // (64 * ranks)))]
    tokens = ["--tokenizer", "tokenizer", "--eod-token", EOD, "-o", "x.pbin"]
    return {
        "index": (["index", "large.jsonl", "--index-path", "x.idx", *large], [], "x.idx"),
        "pack, bytes": (["pack", "large.jsonl", "--tokenizer", "bytes", "-o", "x.pbin", *large], [], "x.pbin"),
        "pack, BPE": (["pack", "small.jsonl", *tokens, *small], [], "x.pbin"),
        "merge": (["merge", "a.pbin", "b.pbin", "x.pbin", *large], [], "x.pbin"),
        "shuffle": (["shuffle", "a.pbin", "x.pbin", "--seed", "1", *large], [], "x.pbin"),
        "shuffle lines": (["shuffle", "large.jsonl", "x.jsonl", "--seed", "1", *large], [], "x.jsonl"),
        "chunk": (["chunk", "a.pbin", "b.pbin", "-o", "x.pbin", *CHUNK, *large], [], "x.pbin"),
        "prepare": (["prepare", "shards", *large], ["--split-ratio", "8,1,1", "--non-interactive"], "shards/.nv-meta"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--only", nargs="*", metavar="JOB", help="such as merge (default: all)")
    args = parser.parse_args()
    reason = "--no-ray" if args.no_ray else namespaces()
    print(f"{'':13} {'local s':>8} {'cpu s':>7} {f'{args.ranks} ranks: cpu x':>16} {'wall x':>7} {'Ray: wall x':>12}")  # noqa: T201
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, args.megabytes << 20)
        shutil.copytree(TOKENIZER, folder / "tokenizer")
        for job, (words, last, written) in jobs(args.ranks, args.megabytes << 20).items():
            if args.only is not None and job not in args.only:
                continue
            print(f"{job:13} {line(folder, words, last, written, args.ranks, reason)}", flush=True)  # noqa: T201
    if reason is not None:
        print(f"without Ray: {reason}")  # noqa: T201


def line(folder: Path, words: list[str], last: list[str], written: str, n_ranks: int, no_ray: str | None) -> str:
    alone = words[: words.index("--task-bytes")]
    one = [*alone, *last, *(["--num-cpus", "1"] if words[0] == "pack" else [])]
    one += ["--num-workers", "1"] if words[0] == "prepare" else []
    local = measured(lambda: run(folder, one))
    clean(folder, written)

    def ranks() -> None:
        run(folder, *([*words, "--rank", str(rank), "--world-size", str(n_ranks)] for rank in range(n_ranks)))
        run(folder, [*words, *last, "--collect"])

    shared = measured(ranks)
    clean(folder, written)
    text = f"{local.wall:8.2f} {local.cpu:7.2f} {shared.cpu / local.cpu:16.2f} {shared.wall / local.wall:7.2f}"
    if no_ray is not None:
        return f"{text} {'-':>12}"
    on_ray = run_on_two_nodes(folder, [*words, *last, "-q"])
    assert on_ray["code"] == 0, on_ray["err"]
    clean(folder, written)
    return f"{text} {on_ray['seconds'] / local.wall:12.2f}"


def clean(folder: Path, written: str) -> None:
    path = folder / written
    if path.is_dir():
        shutil.rmtree(path)
        for index in path.parent.glob("*.tar.idx"):
            index.unlink()
    else:
        path.unlink()


if __name__ == "__main__":
    main()
