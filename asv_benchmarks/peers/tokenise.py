"""Tokenise and write the same JSONL file with fastpack and with what people use; compare costs and tokens.

    python asv_benchmarks/peers/tokenise.py                              create an environment for each on the first run
    python asv_benchmarks/peers/tokenise.py --peer-python mds=PATH ...   use Pythons that have the systems
    python asv_benchmarks/peers/tokenise.py --only litdata --write       write the table to the page with its markers

Each run is a new process with one worker, measured as a whole: CPU seconds of its process tree, wall seconds, peak
memory. fastpack writes the same format as the system of the row. In the rows with gigatoken, the system's writer gets
the ids of gigatoken, and the last column compares only what a larger file costs more: no imports, no loading of
tokenizers, no proof of the engine. The exit code is 1 if tokens differ or a row misses its target.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fastpack

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from peers.command import CACHE, HERE, machine, make_parser, publish, run_folder  # noqa: E402
from peers.inputs import EOD, sources, text_lines, train_tokenizer, write_lines  # noqa: E402
from peers.processes import make_peer  # noqa: E402
from peers.table import shown  # noqa: E402

HEADER = (
    "job",
    "its CPU / wall / peak",
    "fastpack CPU / wall / peak",
    "CPU ratio",
    "without fixed cost",
    "tokens equal",
)
N_ENTRIES = 40_000
STRIPS = "no: it strips texts, shuffles"
LARGE = 5  # times the text, for the cost without fixed cost


@dataclass(frozen=True)
class System:
    """A system: what installs it, its rows by engine, and the format and the output of fastpack's run."""

    requirements: tuple[str, ...]
    titles: dict[str, str]
    format: str
    output: str = "a"
    expected: str = "yes"
    torch: bool = False


_FAST = ("gigatoken==0.10.0", "orjson", "tokenizers")
SYSTEMS = {
    "datatrove": System(
        ("datatrove[io,processing]==0.10.1", *_FAST),
        {"tokenizers": "datatrove, JsonlReader and DocumentTokenizer", "gigatoken": "datatrove's TokenizedFile"},
        "datatrove",
    ),
    "megatron": System(
        ("megatron-core==0.16.1", *_FAST),
        {"tokenizers": "megatron-core, loop of preprocess_data", "gigatoken": "Megatron's IndexedDatasetBuilder"},
        "megatron",
        torch=True,
    ),
    "nanogpt": System(
        ("datasets==5.2.0", *_FAST),
        {"tokenizers": "nanoGPT's prepare.py, datasets.map", "gigatoken": "raw uint16 of its form, ndarray.tofile"},
        "nanogpt",
        "a.bin",
    ),
    "litdata": System(
        ("litdata==0.2.76", *_FAST),
        {"tokenizers": "litData, optimize", "gigatoken": "litData, optimize"},
        "litdata",
        torch=True,
    ),
    "mds": System(
        ("mosaicml-streaming==0.13.0", *_FAST),
        {"tokenizers": "Streaming, MDSWriter", "gigatoken": "Streaming, MDSWriter"},
        "mds",
        torch=True,
    ),
    "dolma": System(
        ("dolma==1.2.1",), {"tokenizers": "dolma tokens"}, "olmo", "a.npy", "no: it strips texts, shuffles"
    ),
}
BARS = {"datatrove": 2.0, "megatron": 2.0, "litdata": 2.0}  # without fixed cost


@dataclass(frozen=True)
class Cost:
    """CPU seconds of a process tree, wall seconds, and peak memory in bytes."""

    cpu: float
    wall: float
    peak: int

    def __str__(self) -> str:
        return f"{shown(self.cpu)} s / {shown(self.wall)} s / {self.peak >> 20:,} MiB"


@dataclass(frozen=True)
class Row:
    """One row; steady: how many times more CPU its text costs, without fixed cost; None if not measured."""

    title: str
    theirs: Cost
    ours: Cost
    steady: float | None
    bar: float | None
    equal: str
    is_expected: bool

    @property
    def failure(self) -> str | None:
        if not self.is_expected:
            return f"tokens equal: {self.equal}"
        if self.steady is not None and self.bar is not None and self.steady < self.bar:
            return f"{shown(self.steady)}x without fixed cost, expected at least {self.bar:g}x"
        return None

    def cells(self) -> list[str]:
        steady = "-" if self.steady is None else f"**{shown(self.steady)}x**"
        ratio = f"**{shown(self.theirs.cpu / self.ours.cpu)}x**"
        return [self.title, str(self.theirs), str(self.ours), ratio, steady, self.equal]


class Comparison:
    """Runs both sides in turn, each in processes of its own, on files in a folder."""

    def __init__(self, folder: Path, mib: float, rounds: int, pythons: dict[str, str]) -> None:
        self.folder, self.rounds, self.pythons = folder, rounds, pythons
        self.environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "huggingface")}
        self.environment |= dict.fromkeys(("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self.environment |= {"TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
        self.environment |= {"XDG_CACHE_HOME": str(folder / "cache")}
        self.sources = [folder / "small" / "text.jsonl", folder / "large" / "text.jsonl"]
        for source, times in zip(self.sources, (1, LARGE), strict=True):
            source.parent.mkdir()
            write_lines(source, list(text_lines(int(mib * times * (1 << 20)), np.random.default_rng(times))))
        self.tokenizer = folder / "tokenizer.json"
        trained = train_tokenizer(list(sources()), N_ENTRIES)
        trained.save(str(self.tokenizer))
        self._steady: dict[str, float] = {}

    def compare(self, name: str, engine: str) -> Row:
        system = SYSTEMS[name]
        command = [sys.executable, "-m", "fastpack", "pack", str(self.sources[0]), "--tokenizer", str(self.tokenizer)]
        command += ["--eos-token", EOD, "--format", system.format, "--num-workers", "1", "-q", "-o"]
        found: list[tuple[Cost, Cost]] = []
        for _ in range(self.rounds):
            theirs, ours = self._empty("theirs"), self._empty("ours")
            words = self._side(name, engine, theirs, self.sources[:1])
            found.append((self._run(words, theirs), self._run([*command, str(ours / system.output)], ours)))
        equal = _compare_tokens(system, theirs, ours / system.output)
        steady = self.steady(name, self.pythons[name]) / self.ours if engine == "gigatoken" else None
        best = [min(costs, key=lambda cost: cost.cpu) for costs in zip(*found, strict=True)]
        title = system.titles[engine] + (" with gigatoken" if engine == "gigatoken" else "")
        return Row(title, best[0], best[1], steady, BARS.get(name), equal, equal == system.expected)

    @property
    def ours(self) -> float:
        """CPU seconds of fastpack for the text that the larger file has more."""
        return self.steady("fastpack", sys.executable)

    def steady(self, name: str, python: str) -> float:
        """Return the CPU seconds for the text that the larger file has more: the least of all rounds."""
        if name not in self._steady:
            seconds = []
            for _ in range(self.rounds):
                out = self._empty("steady")
                self._run(self._side(name, "gigatoken", out, self.sources, python), out)
                seconds.append(float((out / "seconds").read_text()))
            self._steady[name] = min(seconds)
        return self._steady[name]

    def warm(self) -> None:
        """Let fastpack keep its proof of the engine, as in every run but the first with a tokenizer."""
        self.steady("fastpack", sys.executable)

    def _side(self, name: str, engine: str, out: Path, files: Sequence[Path], python: str = "") -> list[str]:
        tokenizer = self.tokenizer if name != "dolma" else _for_older_libraries(self.tokenizer)
        side = [python or self.pythons[name], str(HERE / "tokenise_side.py"), name, engine]
        return [*side, str(tokenizer), str(out), *map(str, files)]

    def _run(self, command: list[str], out: Path) -> Cost:
        report, log = self.folder / "report", self.folder / "log"
        with log.open("w") as file:
            launch = [sys.executable, str(HERE / "launch.py"), str(report), *command]
            subprocess.run(launch, env=self.environment, stdout=file, stderr=file, check=True, cwd=out)
        found = json.loads(report.read_text())
        if found["code"]:
            raise SystemExit(f"{' '.join(command)} failed:\n{log.read_text()[-2000:]}")
        return Cost(found["cpu"], found["wall"], found["peak"])

    def _empty(self, name: str) -> Path:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder


def _for_older_libraries(tokenizer: Path) -> Path:
    """Return the tokenizer with its merges as text, as tokenizers before 0.20 read it, which dolma needs."""
    older = tokenizer.with_name("older.json")
    description = json.loads(tokenizer.read_text())
    description["model"]["merges"] = [" ".join(merge) for merge in description["model"]["merges"]]
    older.write_text(json.dumps(description))
    return older


def _compare_tokens(system: System, theirs: Path, ours: Path) -> str:
    """Return "yes" for equal documents in the same order, else what differs."""
    patterns = {"datatrove": "*.ds", "olmo": "a/*.npy"}
    path = next(iter(theirs.glob(patterns.get(system.format, system.output))), theirs / "a")
    expected, found = _documents(path, system.format), _documents(_written(ours, system.format), system.format)
    if expected == found:
        return "yes"
    if sorted(expected) == sorted(found):
        return "yes, in another order"
    if system.format == "olmo" and len(expected) == len(found):
        return STRIPS
    return f"no: {len(set(expected) & set(found)):,} of {len(found):,} documents"


def _written(path: Path, format: str) -> Path:
    return path.with_name(f"{path.name}_text_document") if format == "megatron" else path


def _documents(path: Path, format: str) -> list[bytes]:
    """Return a hash of each document; nanoGPT's form has none, so it is one."""
    options: dict[str, Any] = {"dtype": "uint16"} if format in ("olmo", "nanogpt") else {}
    if format == "nanogpt":
        return [hashlib.blake2b(path.read_bytes(), digest_size=8).digest()]
    with fastpack.open_tokens(path, format=None if path.is_dir() else format, **options) as file:
        arrays = (np.asarray(file.document(i)).astype("<u4") for i in range(file.n_documents))
        return [hashlib.blake2b(array.tobytes(), digest_size=8).digest() for array in arrays]


def footer(args: argparse.Namespace, size: float) -> str:
    return (
        f"{machine()}. {size:.0f} MB of JSON Lines, a byte-level BPE tokenizer "
        f"of {N_ENTRIES:,} entries, both of Python's standard library; one worker. Whole processes, the best of "
        f"{args.rounds} rounds in turn; fastpack with gigatoken, whose proof it has kept. Without fixed cost: the CPU "
        f"of {LARGE - 1} times as much further text, in a process that has already done the same. datatrove, nanoGPT's "
        "script, dolma and preprocess_data cannot use gigatoken: there it feeds their writers, in a loop of ours."
    )


def run(args: argparse.Namespace) -> list[Row]:
    """Measure the rows and print the table."""
    pythons = dict(word.split("=", 1) for word in args.peer_python)
    names = [name for name in SYSTEMS if name in (args.only or SYSTEMS)]
    for name in names:
        system = SYSTEMS[name]
        pythons.setdefault(name, "") or make_peer(CACHE / f"tokenise-{name}", system.requirements, torch=system.torch)
        pythons[name] = pythons[name] or str(CACHE / f"tokenise-{name}" / "bin" / "python")
    with run_folder(args) as folder:
        comparison = Comparison(folder, args.mib, args.rounds, pythons)
        comparison.warm()
        rows = [comparison.compare(name, engine) for name in names for engine in SYSTEMS[name].titles]
        size = comparison.sources[0].stat().st_size / 1e6
    results = {"rows": {row.title: asdict(row) for row in rows}, "megabytes": size}
    publish(args, "tokenise", HEADER, [row.cells() for row in rows], footer(args, size), results)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, None, "about 500 MB", only=False)
    parser.add_argument("--peer-python", action="append", default=[], metavar="SYSTEM=PATH")
    parser.add_argument("--only", action="append", choices=SYSTEMS, help="only the rows of this system (repeatable)")
    parser.add_argument("--mib", type=float, default=10, help="size of the text in MiB (default: 10)")
    rows = run(parser.parse_args(argv))
    for row in rows:
        if row.failure is not None:
            print(f"NOT KEPT: {row.title}: {row.failure}", file=sys.stderr)
    return int(any(row.failure is not None for row in rows))


if __name__ == "__main__":
    sys.exit(main())
