"""Read the same GPT samples with megatron-core 0.16.1 and with fastpack; compare times, memory and values.

    python asv_benchmarks/peers/megatron.py                       create an environment on the first run
    python asv_benchmarks/peers/megatron.py --peer-python PATH    use a Python that has megatron-core==0.16.1 and torch
    python asv_benchmarks/peers/megatron.py --write               write the table to the page with its markers
    python asv_benchmarks/peers/megatron.py --documents 100000    a quick check

Each run is a new process that reads batches of 8 samples of 2,048 tokens on one core; rounds alternate, and the best
round of each side counts. Linux only. The exit code is 1 if values differ or a row misses its target.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fastpack

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from peers.command import HERE, find_python, machine, make_parser, publish, run_folder  # noqa: E402
from peers.table import shown  # noqa: E402

REQUIREMENTS = ("megatron-core==0.16.1", "pybind11")
HEADER = ("Megatron's GPT samples", "megatron-core", "fastpack", "ratio", "bar")
LENGTH, BATCH, N_BATCHES = 2048, 8, 200
BLOCK = 1_000_000  # documents that are written at once


@dataclass(frozen=True)
class Row:
    """One row; `ratio` is how many times better fastpack is."""

    title: str
    theirs: str
    ours: str
    ratio: float
    bar: str
    is_met: bool

    def cells(self) -> list[str]:
        return [self.title, self.theirs, self.ours, f"**{shown(self.ratio)}x**", self.bar]


def write_corpus(folder: Path, n_documents: int) -> str:
    """Write documents of 20 to 79 tokens, each of which ends with token 0; return the prefix."""
    rng = np.random.default_rng(1)
    with fastpack.PackedWriter(folder / "corpus.pbin", 2) as writer:
        for first in range(0, n_documents, BLOCK):
            lengths = rng.integers(20, 80, min(BLOCK, n_documents - first))
            tokens = rng.integers(1, 50_000, int(lengths.sum()), dtype=np.uint16)
            tokens[np.cumsum(lengths) - 1] = 0
            writer.append_many(tokens, lengths)
    fastpack.convert(folder / "corpus.pbin", folder / "corpus", format="megatron")
    (folder / "corpus.pbin").unlink()
    return str(folder / "corpus")


class Comparison:
    """Runs both sides in turn, in processes of their own."""

    def __init__(self, pythons: dict[str, str], prefix: str, folder: Path, rounds: int) -> None:
        self.pythons, self.prefix, self.folder, self.rounds = pythons, prefix, folder, rounds

    def read(self, side: str, index_files: Path, *words: str) -> dict[str, Any]:
        numbers = map(str, (LENGTH, BATCH, N_BATCHES))
        command = [self.pythons[side], str(HERE / "megatron_read.py"), side, self.prefix, *numbers, str(index_files)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        with (self.folder / f"{side}.log").open("a") as log:
            run = subprocess.run(
                [*command, *words], env=environment, stdout=subprocess.PIPE, stderr=log, check=True, text=True
            )
        answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
        return answer

    def measure(self, *words: str) -> dict[str, list[dict[str, Any]]]:
        """Return the answers of each side; of megatron, also with its index files there ("again")."""
        found: dict[str, list[dict[str, Any]]] = {"megatron": [], "again": [], "fastpack": []}
        for number in range(self.rounds):
            index_files = self.folder / f"index_files_{number}{''.join(words)}"
            found["megatron"].append(self.read("megatron", index_files, *words))
            found["again"].append(self.read("megatron", index_files, *words))
            found["fastpack"].append(self.read("fastpack", index_files, *words))
        if len({answer["digest"] for answers in found.values() for answer in answers}) > 1:
            raise SystemExit("the samples differ")
        return found


def best(answers: list[dict[str, Any]], *names: str) -> list[float]:
    """Return the least CPU and wall seconds of these stages together."""
    return [min(sum(answer[name][k] for name in names) for answer in answers) for k in (0, 1)]


def time_row(title: str, theirs: list[float], ours: list[float], limit: float | None = None) -> Row:
    cells = [f"{shown(cpu)} / {shown(wall)} s" for cpu, wall in (theirs, ours)]
    bar = "-" if limit is None else f"below {limit:g} s"
    return Row(title, *cells, theirs[0] / ours[0], bar, limit is None or ours[0] < limit)


def rate_row(title: str, theirs: list[float], ours: list[float], bar: float) -> Row:
    rates = [N_BATCHES * BATCH / seconds[0] for seconds in (theirs, ours)]
    cells = [f"{rate:,.0f} samples per CPU-s" for rate in rates]
    return Row(title, cells[0], cells[1], rates[1] / rates[0], f"{bar:g}x", rates[1] / rates[0] >= bar)


def rows_of(comparison: Comparison, n_documents: int) -> list[Row]:
    plain, eod = comparison.measure(), comparison.measure("--eod")
    theirs, again, ours = plain["megatron"], plain["again"], plain["fastpack"]
    bytes_each = [min(answer["grown"] for answer in answers) / n_documents for answers in (theirs, ours)]
    return [
        time_row(
            "first batch of a new process, CPU / wall", best(theirs, "imports", "first"), best(ours, "imports", "first")
        ),
        time_row("the same without imports", best(theirs, "first"), best(ours, "first"), 2),
        time_row("the same, Megatron's index files exist", best(again, "first"), best(ours, "first"), 2),
        Row(
            "peak memory up to the first batch, without tokens",
            *(f"{shown(number)} bytes a document" for number in bytes_each),
            bytes_each[0] / bytes_each[1],
            "below 20",
            bytes_each[1] < 20,
        ),
        rate_row("batches", best(theirs, "rest"), best(ours, "rest"), 2),
        rate_row(
            "batches with `reset_position_ids` and `eod_mask_loss`; fastpack also gives `cu_seqlens` and `max_seqlen`",
            best(eod["megatron"], "rest"),
            best(eod["fastpack"], "rest"),
            2,
        ),
    ]


def footer(args: argparse.Namespace) -> str:
    return (
        f"{machine()}, megatron-core 0.16.1. {args.documents:,} documents of 20 "
        f"to 79 tokens, batches of {BATCH} samples of {LENGTH:,} tokens, one core; torch collates megatron-core's "
        f"samples. The best of {args.rounds} rounds, the sides taking turns. The samples are equal."
    )


def run(args: argparse.Namespace) -> list[Row]:
    """Measure all rows and print the table."""
    pythons = {"megatron": find_python(args, REQUIREMENTS), "fastpack": sys.executable}
    with run_folder(args) as folder:
        prefix = write_corpus(folder, args.documents)
        rows = rows_of(Comparison(pythons, prefix, folder, args.rounds), args.documents)
    publish(args, "megatron", HEADER, [row.cells() for row in rows], footer(args))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, "megatron-core-0.16.1", "about 2 GB", only=False)
    parser.add_argument(
        "--documents", type=int, default=10_000_000, help="documents of the corpus (default: 10 million)"
    )
    args = parser.parse_args(argv)
    failed = [row for row in run(args) if not row.is_met]
    for row in failed:
        print(f"NOT KEPT: {row.title}: {row.ours}, {row.bar}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
