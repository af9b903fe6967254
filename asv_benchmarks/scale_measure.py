"""Measure the inputs of scale.py on this machine, with seeded data: seconds of CPU time, bytes, calls."""

from __future__ import annotations

import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from peers.inputs import text_lines
from report import processor

import fastpack
from fastpack.tokens.edit.shuffle_order import stdlib_order
from fastpack.tokens.pbin.packed_file import PackedFile

EOD, VOCABULARY = "<|endoftext|>", 32_000
COMMAND = [sys.executable, "-c", "import sys; from fastpack.cli import main; sys.exit(main(sys.argv[1:]))"]
QUESTION = re.compile(r'\d+ +(\w+)\([^"]*("[^"]*"(?:, (?:AT_FDCWD, )?"[^"]*")?)')
ROUNDS = 2
MIB = 1 << 20
N_FILES, N_SHARDS, N_ORDERED, SMALL_TASK = 4000, 4000, 5_000_000, 16 << 10
SAMPLES, SAMPLE_BYTES = 10_000, 400  # of each tar; only the headers of its members are read
SIZES = {"text": (32 * MIB, 256 * MIB), "hf": (MIB, 6 * MIB), "tokens": (32 * MIB, 256 * MIB), "tars": (1, 13)}


class Cost(NamedTuple):
    """The cost of a process: CPU and wall seconds, peak memory in bytes including mapped pages of files."""

    cpu: float
    wall: float
    memory: int

    def least(self, other: Cost) -> Cost:
        return Cost(*map(min, self, other))


def run(folder: Path, *words: object) -> Cost:
    """Run a command to its end."""
    started = time.perf_counter()
    process = subprocess.Popen([*COMMAND, *map(str, words), "-q"], cwd=folder)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} ended with {process.returncode}")
    return Cost(used.ru_utime + used.ru_stime, time.perf_counter() - started, used.ru_maxrss * 1024)


def make(folder: Path) -> None:
    """Write JSON lines of several kilobytes, packed files (about 800 tokens per document), tars of small samples."""
    rng = np.random.default_rng(1)
    texts = list(text_lines(SIZES["text"][0], rng))
    make_tokenizer(folder / "tokenizer.json", texts[:2000])
    lines = b"\n".join(texts) + b"\n"
    for name, sizes in (("text", SIZES["text"]), ("hf", SIZES["hf"])):
        for number, n_bytes in enumerate(sizes):
            block = (lines * (1 + n_bytes // len(lines)))[:n_bytes]
            (folder / f"{name}{number}.jsonl").write_bytes(block[: block.rindex(b"\n") + 1])
            fastpack.create_raw_index(folder / f"{name}{number}.jsonl")
    for number, n_bytes in enumerate(SIZES["tokens"]):
        lengths = np.maximum(2, rng.lognormal(6.18, 1.0, n_bytes // 4 // 800)).astype(np.int64)
        with fastpack.PackedWriter(folder / f"tokens{number}.pbin", 4) as writer:
            for length in lengths.tolist():
                writer.append(rng.integers(0, 128_000, length, dtype=np.uint32))
    picture = random.Random(2).randbytes(SAMPLE_BYTES)
    for number, n_tars in enumerate(SIZES["tars"]):
        (folder / f"tars{number}").mkdir()
        for shard in range(n_tars):
            write_tar(folder / f"tars{number}" / f"{shard:04}.tar", shard, picture)
    (folder / "many").mkdir()
    for number in range(N_FILES):
        (folder / "many" / f"{number:05}.jsonl").write_bytes(b'{"text": "a"}\n')
    (folder / "shards").mkdir()
    for number in range(N_SHARDS):
        np.save(folder / "shards" / f"{number:05}.npy", rng.integers(0, 60_000, 4097, dtype=np.uint16))


def make_tokenizer(path: Path, lines: list[bytes]) -> None:
    """Train a byte-level BPE tokenizer on the text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[EOD], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator((json.loads(line)["text"] for line in lines), trainer)
    tokenizer.save(str(path))


def write_tar(path: Path, shard: int, picture: bytes) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for sample in range(SAMPLES):
            for part, content in (("jpg", picture), ("json", b'{"caption": "a picture"}')):
                member = tarfile.TarInfo(f"{shard:04}_{sample:06}.{part}")
                member.size = len(content)
                tar.addfile(member, BytesIO(content))


def jobs() -> dict[str, tuple[list[str], str, str]]:
    """Return name -> (arguments with {n} for the size, output, SIZES)."""
    hf = ["--tokenizer", "tokenizer.json", "--eod-token", EOD, "--engine", "tokenizers"]
    prepare = ["prepare", "tars{n}", "--split-ratio", "1,0,0", "--non-interactive"]
    return {
        "index": (["index", "text{n}.jsonl", "--index-path", "out"], "out", "text"),
        "pack, tokenizers": (["pack", "hf{n}.jsonl", *hf, "-o", "out.pbin"], "out.pbin", "hf"),
        "pack, bytes": (["pack", "text{n}.jsonl", "--tokenizer", "bytes", "-o", "out.pbin"], "out.pbin", "text"),
        "merge": (["merge", "tokens{n}.pbin", "out.pbin"], "out.pbin", "tokens"),
        "shuffle": (["shuffle", "tokens{n}.pbin", "out.pbin", "--seed", "1"], "out.pbin", "tokens"),
        "chunk": (
            ["chunk", "tokens{n}.pbin", "-o", "out.pbin", "--chunk-id", "0", "--num-chunks", "1", "--global-seed", "1"],
            "out.pbin",
            "tokens",
        ),
        "prepare": (prepare, "tars{n}/.nv-meta", "tars"),
        "verify": (["verify", "tokens{n}.pbin"], "", "tokens"),
    }


def measure_jobs(folder: Path) -> dict[str, Any]:
    """Measure each command and its last step: bytes (or samples of `prepare`) per second and core, start-up seconds,
    and memory, in total and per byte or sample."""
    found: dict[str, Any] = {}
    for name, (words, written, _) in jobs().items():
        costs: list[tuple[Cost, Cost]] = []
        n_bytes = []
        for number in (0, 1):
            filled = [word.format(n=number) for word in words]
            least: tuple[Cost, Cost] | None = None
            for _ in range(ROUNDS if number == 0 else 2):
                ranks = run(folder, *without_last(filled), "--rank", 0, "--world-size", 1)
                last = run(folder, *filled, "--collect")
                least = (ranks, last) if least is None else (least[0].least(ranks), least[1].least(last))
                n_out = remove(folder, written.format(n=number))
            assert least is not None
            costs.append(least)
            n_bytes.append(source_bytes(folder, filled[1]))
        more = n_bytes[1] - n_bytes[0]
        part: dict[str, Any] = {"out_per_byte": round(n_out / n_bytes[1], 4)}
        for step, small, large in zip(("ranks", "last"), *costs, strict=True):
            rate = more / max(large.cpu - small.cpu, 0.01)
            start = max(0.1, small.cpu - n_bytes[0] / rate)
            grown = max(0, large.memory - small.memory) / more
            part[step] = {
                "per_s": round(rate),
                "start_s": round(start, 3),
                "memory": large.memory,
                "memory_grows": round(grown, 4),
            }
        found[name] = part
        print(name, part, file=sys.stderr, flush=True)
    return found


def without_last(words: list[str]) -> list[str]:
    """Remove the arguments of the last step, which a rank of prepare does not accept."""
    return words[:2] if words[0] == "prepare" else words


def source_bytes(folder: Path, name: str) -> int:
    """Return the size of a file; for tars the number of samples, which determines the cost of their headers."""
    path = folder / name
    return SAMPLES * len(list(path.glob("*.tar"))) if path.is_dir() else path.stat().st_size


def remove(folder: Path, written: str) -> int:
    """Remove the output of a command; return its size."""
    path = folder / written
    if not written:
        return 0
    if path.is_dir():
        n_bytes = sum(file.stat().st_size for file in path.rglob("*"))
        shutil.rmtree(path)
        for index in path.parent.glob("*.idx"):
            n_bytes += index.stat().st_size
            index.unlink()
        return n_bytes
    n_bytes = path.stat().st_size
    path.unlink()
    return n_bytes


def best(work: Callable[[], object]) -> float:
    """Return the best CPU seconds in this process."""
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def measure_overheads(folder: Path, index: dict[str, Any]) -> dict[str, float]:
    """Measure the seconds per source in a plan, per task, and per marker."""
    rank = ["--rank", 1, "--world-size", 2]  # a rank without tasks
    start = min(run(folder, "index", folder / "hf0.jsonl", "--index-path", "none", *rank).cpu for _ in range(ROUNDS))
    packed = folder / "tokens1.pbin"
    text, n_bytes = folder / "text0.jsonl", (folder / "text0.jsonl").stat().st_size
    n_tasks = -(-n_bytes // SMALL_TASK)
    words = ["index", text, "--index-path", folder / "out", "--task-bytes", SMALL_TASK]
    words += ["--rank", 0, "--world-size", 1]
    planned = min(run(folder, "index", folder / "many", *rank).cpu for _ in range(ROUNDS))
    first = run(folder, *words)
    again = min(run(folder, *words).cpu for _ in range(ROUNDS))
    # the first run reads every marker once at its end, the second also at its start
    mark = max(1e-6, (again - start) / (2 * n_tasks))
    spent = start + n_bytes / index["ranks"]["per_s"] + n_tasks * mark
    return {
        "source_s": (planned - start) / N_FILES,
        "index_row_s": best(lambda: len(PackedFile(packed).index)) / len(PackedFile(packed).index),
        "ordered_s": best(lambda: stdlib_order(N_ORDERED, 1)) / N_ORDERED,
        "task_s": max(1e-4, (first.cpu - spent) / n_tasks),
        "mark_s": mark,
    }


def measure_calls(folder: Path) -> dict[str, float]:
    """Count the metadata calls of a plan per source, and of a task, with strace.

    Equal calls count once, because clients cache the answers for some seconds.
    """

    def calls(*words: object) -> int:
        log = folder / "strace.log"
        command = ["strace", "-f", "-qq", "-e", "trace=%file", "-o", str(log), *COMMAND, *map(str, words), "-q"]
        subprocess.run(command, cwd=folder, check=True)
        matches = (QUESTION.match(line) for line in log.read_text().splitlines())
        return len({found.groups() for found in matches if found and str(folder) in found[2]})

    text = folder / "hf1.jsonl"
    words = ["index", text, "--rank", 0, "--world-size", 1, "--index-path"]
    sizes = [SMALL_TASK * 16, SMALL_TASK]
    n_tasks = [-(-text.stat().st_size // size) for size in sizes]
    few, many = (calls(*words, folder / f"out{size}", "--task-bytes", size) for size in sizes)
    planned = calls("index", folder / "many", "--rank", 1, "--world-size", 2)
    return {"per_source": planned / N_FILES, "per_task": (many - few) / (n_tasks[1] - n_tasks[0])}


def measure_training(folder: Path) -> dict[str, float]:
    """Measure seconds to open a shard and a manifest, and per first use of a shard, batch token, sample position."""
    fastpack.write_manifest(folder / "shards")
    shards, manifest = folder / "shards", folder / "shards" / "manifest.fpm"
    of_folder = best(lambda: fastpack.MemoryMappedDataset(shards, 4097))
    of_manifest = best(lambda: fastpack.MemoryMappedDataset(manifest, 4097))
    every = list(range(N_SHARDS))

    def read(path: Path) -> float:
        dataset = fastpack.MemoryMappedDataset(path, 4097)
        started = time.process_time()
        for first in range(0, N_SHARDS, 8):
            dataset.batch(every[first : first + 8])
        cold = time.process_time() - started
        again = best(lambda: [dataset.batch(every[first : first + 8]) for first in range(0, N_SHARDS, 8)])
        nonlocal warm
        warm = again
        return cold - again

    warm = 0.0
    use = min(read(shards) for _ in range(ROUNDS))
    n_samples = 10_000_000
    order = best(lambda: fastpack.DistributedSampler(range(n_samples), 1, 0).indices())
    return {
        "open_shard_s": of_folder / N_SHARDS,
        "open_manifest_s": of_manifest,
        "use_shard_s": use / N_SHARDS,
        "token_s": warm / (N_SHARDS * 4096),
        "order_sample_s": order / n_samples,
    }


def measure() -> dict[str, Any]:
    """Run all measurements in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # In a separate process, because the peak of a child starts with that of its parent.
        subprocess.run([sys.executable, __file__, "--make", name], check=True)
        found = measure_jobs(folder)
        sections = {
            "jobs": found,
            "overheads": measure_overheads(folder, found["index"]),
            "calls": measure_calls(folder),
            "training": measure_training(folder),
        }
        return {"machine": f"{processor()}, Python {platform.python_version()}", **sections}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        make(Path(sys.argv[2]))
    else:
        print(json.dumps(measure(), indent=1))
