"""Prepare the same data with Megatron-Energon 7.4.1 and with fastpack, compare every file, and train on fastpack's.

    python asv_benchmarks/peers/energon.py                       create an environment for Energon on the first run
    python asv_benchmarks/peers/energon.py --peer-python PATH    use a Python that has megatron-energon==7.4.1
    python asv_benchmarks/peers/energon.py --write               write the table to the page with its markers
    python asv_benchmarks/peers/energon.py --scale 0.01          a quick check, in a minute

Each run is a whole process with its imports; rounds alternate, and the best round of each side counts. Then Energon's
loader reads the output of fastpack, and every sample must occur exactly once. The exit code is 1 if a row misses its
target.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from peers.command import HERE, find_python, machine, make_parser, publish, run_folder  # noqa: E402
from peers.prepared import differences, written  # noqa: E402
from peers.table import shown  # noqa: E402
from peers.tars import ALL_SHARDS, N_LINES, Shards, make_lines, make_shards  # noqa: E402

REQUIREMENTS = ("megatron-energon==7.4.1",)
HEADER = (
    "prepare",
    "Energon CPU / wall",
    "fastpack CPU / wall",
    "CPU ratio",
    "at least",
    "wall ratio",
    "peak memory",
    "files equal",
    "samples that Energon's loader gets",
)
MIB = 1 << 20
PEAK_BAR = 100 * 10**6  # bytes
SPLITS = ("train", "val", "test")
LINES_SPLIT = "all"


class RunFailure(Exception):
    """A command failed; the message contains the last line of its output."""


@dataclass
class Work:
    """A dataset to prepare: `title`, the target CPU ratio, arguments of `prepare`, and the expected samples.

    expected: split -> {"samples", "distinct", "digest"}, as energon_read.py prints it.
    """

    title: str
    bar: float
    source: Path
    arguments: list[str]
    expected: dict[str, Any]


@dataclass
class Row:
    """The result: `peer` and `ours` are {"cpu", "wall", "peak"} of the best round; `note` names failures."""

    title: str
    bar: float
    peer: dict[str, float] = field(default_factory=dict)
    ours: dict[str, float] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)
    loaded: int = 0
    expected: int = 0
    note: str = ""

    def ratio(self, what: str) -> float:
        return self.peer[what] / self.ours[what]

    @property
    def failures(self) -> list[str]:
        """Return the targets that the row misses."""
        if self.note:
            return [self.note]
        found = [f"differs: {text}" for text in self.different]
        if self.ratio("cpu") < self.bar:
            found.append(f"{shown(self.ratio('cpu'))}x, expected at least {self.bar:g}x")
        if self.ours["peak"] > PEAK_BAR:
            found.append(f"{self.ours['peak'] / 10**6:.0f} MB, expected at most {PEAK_BAR / 10**6:.0f}")
        return found

    def cells(self) -> list[str]:
        if self.note:
            return [self.title, "-", "-", "-", f"{self.bar:g}x", "-", "-", "-", self.note]
        times = [f"{shown(side['cpu'])} / {shown(side['wall'])} s" for side in (self.peer, self.ours)]
        peaks = " / ".join(f"{side['peak'] / 10**6:.0f}" for side in (self.peer, self.ours))
        return [
            self.title,
            *times,
            f"**{shown(self.ratio('cpu'))}x**",
            f"{self.bar:g}x",
            f"{shown(self.ratio('wall'))}x",
            f"{peaks} MB",
            "no" if self.different else "yes",
            f"{self.loaded:,} of {self.expected:,}",
        ]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "failures": self.failures}


class Comparison:
    """The two sides: `folder`/energon and `folder`/fastpack contain hard links to the same tars and lines."""

    def __init__(self, folder: Path, peer_python: str, rounds: int, budget: float) -> None:
        self.folder, self.rounds, self.budget = folder, rounds, budget
        self.peer_python = peer_python
        self.commands = {
            "energon": [peer_python, "-c", "import sys; from megatron.energon.cli.main import main; sys.exit(main())"],
            "fastpack": [sys.executable, "-P", "-m", "fastpack"],
        }
        self.environment = {**os.environ, "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise modules can be compiled in every run

    def row(self, work: Work) -> Row:
        """Prepare `work` alternately, compare, and load it with Energon; failures become the note of the row."""
        row = Row(work.title, work.bar, expected=sum(split["samples"] for split in work.expected.values()))
        sides = {name: self._links(name, work.source) for name in self.commands}
        best: dict[str, dict[str, float]] = {}
        started = time.monotonic()
        try:
            for number in range(self.rounds):
                if number and time.monotonic() - started > self.budget:
                    break
                for name, path in sides.items():
                    found = self._prepare(name, path, work.arguments)
                    best[name] = min(best.get(name, found), found, key=lambda run: run["cpu"])
                    best[name]["wall"] = min(best[name]["wall"], found["wall"])
            row.peer, row.ours = best["energon"], best["fastpack"]
            row.different = differences(*(path.parent if path.is_file() else path for path in sides.values()))
            row.loaded = self._load(sides["fastpack"], work.expected)
        except RunFailure as failure:
            row.note = str(failure)
        return row

    def _links(self, side: str, source: Path) -> Path:
        target = self.folder / side / source.stem / source.name
        for path in [source] if source.is_file() else sorted(source.iterdir()):
            link = target if source.is_file() else target / path.name
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, link)
        return target

    def _prepare(self, side: str, path: Path, arguments: list[str]) -> dict[str, float]:
        for old in written(path if path.is_dir() else path.parent).values():
            old.unlink()
        shutil.rmtree(path / ".nv-meta", ignore_errors=True)
        return self._run(side, [*self.commands[side], "prepare", str(path), *arguments])

    def _run(self, side: str, command: list[str]) -> dict[str, float]:
        report = self.folder / "report.json"
        launch = [sys.executable, "-I", "-S", str(HERE / "launch.py"), str(report)]
        done = subprocess.run(
            [*launch, *command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        found: dict[str, float] = json.loads(report.read_text()) if done.returncode == 0 else {"code": done.returncode}
        if found["code"]:
            output = [*done.stdout.splitlines(), *done.stderr.splitlines()] or ["no output"]
            raise RunFailure(f"{side} ended with {found['code']:.0f}: {output[-1].strip()}")
        return found

    def _load(self, path: Path, expected: dict[str, Any]) -> int:
        """Return the number of samples that Energon's loader reads; raise RunFailure for wrong samples."""
        command = [self.peer_python, str(HERE / "energon_read.py"), str(path), *expected]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines() or [""]
        if done.returncode:
            raise RunFailure(f"Energon's loader: {(done.stderr.splitlines() or ['no output'])[-1]}")
        found = json.loads(lines[-1])
        for split, samples in expected.items():
            if found[split] != samples:
                raise RunFailure(f"Energon's loader read from {split}: {found[split]}, expected {samples}")
        return sum(samples["samples"] for samples in found.values())


def all_work(folder: Path, scale: float, only: str) -> Iterator[Work]:
    """Yield the datasets; create each input just before it is needed. JSON lines come last."""
    for (title, bar), shards in zip(TITLES, (shards.scaled(scale) for shards in ALL_SHARDS), strict=True):
        if only in title:
            make_shards(folder / shards.name, shards)
            yield Work(title, bar, folder / shards.name, prepare_arguments(shards), expected_of(shards))
    if only in LINES_TITLE:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "lines.jsonl"
        make_lines(path, max(3, round(N_LINES * scale)))
        lines = enumerate(path.read_text(encoding="utf-8").splitlines())
        found = {LINES_SPLIT: summary((str(i), json.loads(line)["text"]) for i, line in lines)}
        yield Work(LINES_TITLE, 50, path, [], found)


TITLES = (
    ("8 shards x 5,000 samples (3 KB jpg, txt, json)", 25),
    ("1 shard x 100,000 samples (txt, json)", 25),
    ("4 shards x 1,000 samples (300 KB jpg, json)", 5),
)
LINES_TITLE = "600,000 JSON lines"


def prepare_arguments(shards: Shards) -> list[str]:
    """Return the options for both sides."""
    caption = "txt,json[caption]" if shards.has_text else "json[caption]"
    fields = {"image": "jpg", "caption": caption} if shards.picture_bytes else {"text": caption}
    kind = "CaptioningSample" if shards.picture_bytes else "TextSample"
    options = ["--non-interactive", "--split-ratio", shards.ratio, "--no-progress", "--sample-type", kind]
    return [*options, "--field-map", json.dumps(fields)]


def expected_of(shards: Shards) -> dict[str, Any]:
    """Return the expected samples of each non-empty split."""
    found, first = {}, 0
    for split, count in zip(SPLITS, shards.counts, strict=True):
        numbers = range(first, first + count)
        samples = [(n, i) for n in numbers for i in range(shards.n_samples)]
        if samples:
            found[split] = summary((shards.key(n, i), shards.caption(n, i)) for n, i in samples)
        first += count
    return found


def summary(samples: Iterator[tuple[str, str]]) -> dict[str, Any]:
    """Return the summary of pairs of key and text, as energon_read.py."""
    lines = sorted(f"{key}\t{text}\n" for key, text in samples)
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    return {"samples": len(lines), "distinct": len(lines), "digest": digest}


def footer(peer_python: str, rounds: int, scale: float) -> str:
    code = "import platform; print(platform.python_version())"
    version = subprocess.check_output([peer_python, "-c", code], text=True).strip()
    smaller = "" if scale == 1 else f" {scale:g} times the samples named."
    return (
        f"{machine()}, Energon's {version}. Whole "
        f"processes with their imports, the best of up to {rounds} rounds, the sides taking turns; CPU is user and "
        "system time of a process and its children; peak memory is that of the largest process, Energon's / "
        f"fastpack's. Equal: every file byte for byte, every table of index.sqlite row for row.{smaller}"
    )


def run(args: argparse.Namespace) -> list[Row]:
    """Measure the selected rows; print each one when it is finished, then the table."""
    python, rows = find_python(args, REQUIREMENTS), []
    with run_folder(args) as folder:
        comparison = Comparison(folder, python, args.rounds, args.budget)
        for work in all_work(folder / "inputs", args.scale, args.only):
            rows.append(comparison.row(work))
            print(" | ".join(rows[-1].cells()), file=sys.stderr, flush=True)
    results = {"rows": [row.as_json() for row in rows]}
    publish(args, "energon", HEADER, [row.cells() for row in rows], footer(python, args.rounds, args.scale), results)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, "energon-7.4.1", "about 2 GB")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the numbers of samples and lines (default: 1)"
    )
    parser.add_argument(
        "--budget", type=float, default=120.0, help="seconds per row after which no further round starts"
    )
    args = parser.parse_args(argv)
    rows = run(args)
    failed = [(row, text) for row in rows for text in row.failures]
    for row, text in failed:
        print(f"NOT KEPT: {row.title}: {text}", file=sys.stderr)
    return int(bool(failed) or not rows)


if __name__ == "__main__":
    sys.exit(main())
