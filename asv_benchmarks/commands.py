"""Measure whole commands in new processes: packing with gigatoken, start-up, the first batch of fastpack.torch.

    python asv_benchmarks/commands.py                       print the table
    python asv_benchmarks/commands.py --only start          one group: pack, workers, start or torch
    python asv_benchmarks/commands.py --torch-python PATH   a Python that has fastpack and torch
    python asv_benchmarks/commands.py --write               write the table to the page with its markers

Seconds are CPU seconds of the process tree, except for the wall seconds of a second worker. Each command has run once
before, so that bytecode, the proof of the engine and indexes are there. Rounds alternate, and the least counts. The
exit code is 1 if a row misses its target, which is that of an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from peers.command import machine, publish  # noqa: E402
from peers.inputs import EOD, sources, text_lines, train_tokenizer, write_lines  # noqa: E402

HERE = Path(__file__).resolve().parent
GROUPS = ("pack", "workers", "start", "torch")
VOCABULARIES = {"40k": 40_000, "128k": 128_000}
PACK_TARGETS = {("40k", 10): 0.35, ("128k", 10): 0.8}
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
FIRST_BATCH = """
from fastpack.torch import MemoryMappedDataset, StatefulDataLoader
next(iter(StatefulDataLoader(MemoryMappedDataset(".", 8), batch_size=2)))
"""


@dataclass(frozen=True)
class Row:
    """One row; target: the most for seconds and milliseconds, the least for a ratio (x)."""

    title: str
    value: float
    unit: str
    target: float | None = None

    @property
    def is_met(self) -> bool:
        if self.target is None:
            return True
        return self.value >= self.target if self.unit == "x" else self.value <= self.target

    def cells(self) -> list[str]:
        target = "-" if self.target is None else f"{self.target:g} {self.unit}"
        digits = 0 if self.unit.startswith("ms") else 2
        return [self.title, f"**{self.value:.{digits}f}** {self.unit}", target]


class Commands:
    """Runs commands in a folder with the inputs."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder, self.rounds = folder, rounds
        self.environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.environment |= {**ONE_THREAD, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONWARNINGS": "ignore"}
        self.environment |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}

    def least(self, *commands: Sequence[str], cost: str = "cpu") -> list[float]:
        """Return the least seconds of each command, which run in turn."""
        rounds = [[self._run(command)[cost] for command in commands] for _ in range(self.rounds + 1)]
        return [min(seconds) for seconds in zip(*rounds[1:], strict=True)]

    def _run(self, command: Sequence[str]) -> dict[str, float]:
        report = self.folder / "report"
        launch = [sys.executable, str(HERE / "peers" / "launch.py"), str(report), *command]
        subprocess.run(launch, env=self.environment, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        found: dict[str, float] = json.loads(report.read_text())
        if found["code"]:
            raise SystemExit(f"{' '.join(command)} failed")
        return found


def make_tokenizers(folder: Path) -> None:
    """Train the tokenizers; for merges of rare words, the texts are followed by seeded words."""
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgk", "S1").astype(str)
    words = ("".join(rng.choice(letters, int(n))) for n in rng.integers(6, 14, 30_000))
    texts = [*sources(), " ".join(words)]
    for name, n_entries in VOCABULARIES.items():
        train_tokenizer(texts, n_entries).save(str(folder / f"{name}.json"))


def pack_command(megabytes: int, vocabulary: str, workers: int) -> list[str]:
    command = [sys.executable, "-m", "fastpack", "pack", f"{megabytes}.jsonl", "--tokenizer", f"{vocabulary}.json"]
    command += ["--eos-token", EOD, "--engine", "gigatoken", "--num-workers", str(workers)]
    return [*command, "-o", f"{workers}.pbin", "--if-exists", "overwrite", "-q"]


def write_texts(folder: Path, sizes: Sequence[int]) -> None:
    for megabytes in sizes:
        write_lines(folder / f"{megabytes}.jsonl", list(text_lines(megabytes * 10**6, np.random.default_rng(1))))


def pack_rows(commands: Commands) -> Iterator[Row]:
    cases = [(vocabulary, megabytes) for megabytes in (10, 100) for vocabulary in VOCABULARIES]
    found = commands.least(*(pack_command(megabytes, vocabulary, 1) for vocabulary, megabytes in cases))
    for (vocabulary, megabytes), seconds in zip(cases, found, strict=True):
        target = PACK_TARGETS.get((vocabulary, megabytes))
        yield Row(f"`pack` of {megabytes} MB, gigatoken, {vocabulary} entries, CPU", seconds, "s", target)


def worker_rows(commands: Commands) -> Iterator[Row]:
    one, two = commands.least(pack_command(100, "40k", 1), pack_command(100, "40k", 2), cost="wall")
    if (commands.folder / "1.pbin").read_bytes() != (commands.folder / "2.pbin").read_bytes():
        raise SystemExit("two workers write other bytes than one")
    yield Row("`pack` of 100 MB, gigatoken, 40k entries, wall of one worker by that of two", one / two, "x", 1.8)


def start_rows(commands: Commands) -> Iterator[Row]:
    """Yield rows of commands on a file of two lines, less a process that imports NumPy."""
    fastpack = [sys.executable, "-m", "fastpack"]
    words = [["index", "tiny.jsonl", "--if-exists", "overwrite", "-q"], ["info", "tiny.pbin"], ["verify", "tiny.pbin"]]
    numpy, *found = commands.least([sys.executable, "-c", "import numpy"], *([*fastpack, *each] for each in words))
    yield Row("a process that imports NumPy, CPU", 1e3 * numpy, "ms")
    for (name, *_), seconds in zip(words, found, strict=True):
        yield Row(f"`{name}` of a tiny file, more than that", 1e3 * (seconds - numpy), "ms", 22)


def torch_rows(commands: Commands, python: str) -> Iterator[Row]:
    torch, ours = commands.least([python, "-c", "import torch"], [python, "-c", FIRST_BATCH])
    yield Row(
        "first batch of `fastpack.torch`, more than a process that imports torch, CPU", 1e3 * (ours - torch), "ms", 50
    )


def make_tiny(folder: Path) -> None:
    import fastpack

    (folder / "tiny.jsonl").write_text('{"text": "a b c"}\n{"text": "d"}\n')
    fastpack.pack(folder / "tiny.jsonl", folder / "tiny.pbin", tokenizer="bytes", index_path=folder / "of_pack.idx")
    np.save(folder / "tiny.npy", np.arange(64, dtype=np.uint16))


def rows_of(folder: Path, groups: Sequence[str], rounds: int, torch_python: str) -> Iterator[Row]:
    commands = Commands(folder, rounds)
    make_tiny(folder)
    if {"pack", "workers"} & set(groups):
        make_tokenizers(folder)
        write_texts(folder, (10, 100))
    if "pack" in groups:
        yield from pack_rows(commands)
    if "workers" in groups:
        yield from worker_rows(commands)
    if "start" in groups:
        yield from start_rows(commands)
    if "torch" in groups and torch_python:
        yield from torch_rows(commands, torch_python)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=GROUPS, help="a group of rows (repeatable)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--torch-python", default="", metavar="PATH", help="a Python that has fastpack and torch")
    parser.add_argument("--write", action="store_true", help="write the table to the page with its markers")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="fastpack-commands-") as folder:
        rows = list(rows_of(Path(folder), args.only or GROUPS, args.rounds, args.torch_python))
    footer = (
        f"{machine()}, numpy {np.__version__}. New processes, one thread each; the least of "
        f"{args.rounds} rounds in turn. Texts and tokenizers of Python's standard library."
    )
    publish(args, "commands", ("what", "measured", "target"), [row.cells() for row in rows], footer)
    return int(not all(row.is_met for row in rows))


if __name__ == "__main__":
    sys.exit(main())
