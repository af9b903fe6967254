"""Feed a training loop from the same tokens with fastpack and with what people use; compare rates, memory and rows.

    python asv_benchmarks/peers/feed.py                       create an environment for the peers on the first run
    python asv_benchmarks/peers/feed.py --peer-python PATH    use a Python that has them
    python asv_benchmarks/peers/feed.py --write               write the table to the page with its markers
    python asv_benchmarks/peers/feed.py --samples 2048        a quick check

Each run is a new process that iterates one epoch of shuffled batches; token_loops.py contains the loops. Systems take
turns, and the best round counts. A further run of each compares all rows of the epoch, in any order. fastpack runs in
this Python, which needs torch. Linux only. The exit code is 1 if rows differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fastpack

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from peers.command import find_python, machine, make_parser, publish, run_folder  # noqa: E402
from peers.loop_process import hashes  # noqa: E402
from peers.loop_runs import OURS, Loops, best, seconds  # noqa: E402
from peers.table import shown  # noqa: E402
from peers.token_loops import EOS, SEED  # noqa: E402

ENVIRONMENT = "loops"
REQUIREMENTS = (
    *("litdata==0.2.76", "mosaicml-streaming==0.13.0", "megatron-core==0.16.1", "pybind11", "grain==0.2.18"),
    *("datasets==5.0.1", "torchdata==0.11.0", "accelerate", "webdataset==1.0.2", "pillow"),
)
LENGTH, BATCH = 2048, 32
HEADER = (
    *("loop", "worker processes", "samples per CPU second", "CPU ratio", "samples per second", "memory"),
    *("first batch, CPU / wall", "of which imports", "rows of the epoch", "note"),
)


@dataclass(frozen=True)
class Case:
    """A loop of token_loops.py; why: the reason if it is faster than fastpack."""

    loop: str
    title: str
    workers: int = 0
    packed: bool = False
    why: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        return {"workers": self.workers, "packed": self.packed}


VIEWS = "labels are a view of the same tensor; fastpack writes two arrays, in a thread that runs ahead"
ALL_CASES = (
    *(Case("Torch", "torch DataLoader over a memmap, whole batches", workers, why=VIEWS) for workers in (0, 2)),
    *(Case("Datasets", "HF datasets, format torch", workers) for workers in (0, 2)),
    *(Case("Litdata", "litData, TokensLoader", workers) for workers in (0, 2)),
    *(Case("Mosaicml", "mosaicml-streaming", workers) for workers in (0, 2)),
    *(Case("Megatron", "megatron-core, GPTDataset", workers) for workers in (0, 2)),
    Case("Grain", "Grain, MapDataset, arrays of NumPy"),
    Case(OURS, "fastpack"),
    *(Case("Torch", "packed: torch DataLoader, vectorised by the user", workers, True) for workers in (0, 2)),
    *(Case("Megatron", "packed: megatron-core, reset_position_ids", workers, True) for workers in (0, 2)),
    Case("GrainPacked", "packed: Grain, ConcatThenSplit", packed=True),
    Case(OURS, "packed: fastpack", packed=True),
)


def write_tokens(folder: Path, n_samples: int, length: int) -> None:
    """Write tokens.bin, and the same tokens as corpus.bin and corpus.idx of Megatron; documents have 800 tokens."""
    rng, n_tokens = np.random.default_rng(1), n_samples * (length + 1)
    tokens = rng.integers(1, 50_000, n_tokens, dtype=np.uint16)
    ends = np.cumsum(np.maximum(2, rng.lognormal(6.18, 1.0, n_tokens // 400 + 16)).astype(np.int64))
    tokens[ends[ends < n_tokens] - 1] = tokens[-1] = EOS
    tokens.tofile(folder / "tokens.bin")
    options: dict[str, Any] = {"source_format": "nanogpt", "format": "megatron", "eos_token_id": EOS}
    fastpack.convert(folder / "tokens.bin", folder / "corpus", **options)


def expected_digest(folder: Path, loop: str, packed: bool) -> int | None:
    """Return the digest of the rows of an epoch in any order; None for documents that are packed in another way."""
    if loop == "GrainPacked":
        return None
    batches = megatron_rows(str(folder / "corpus"), packed) if loop == "Megatron" else rows_of(folder, packed)
    return sum(number for batch in batches for number in hashes(batch)) % (1 << 64)


def rows_of(folder: Path, packed: bool) -> Iterator[tuple[Any, ...]]:
    """Yield the rows in the order of the tokens, one by one."""
    tokens = np.fromfile(folder / "tokens.bin", np.uint16).astype(np.int64)
    ends = np.concatenate([[-1], np.flatnonzero(tokens == EOS)])
    for first in range(0, tokens.size - LENGTH, LENGTH + 1):
        x, y = tokens[None, first : first + LENGTH], tokens[None, first + 1 : first + LENGTH + 1]
        places = np.arange(first, first + LENGTH)[None]
        starts = np.maximum(ends[np.searchsorted(ends, places) - 1] + 1, first)
        yield (x, np.where(x == EOS, -100, y), places - starts) if packed else (x, y)


def megatron_rows(prefix: str, packed: bool) -> Iterator[tuple[Any, ...]]:
    """Yield the batches of fastpack's GPTDataset, which shuffles documents as Megatron does."""
    reset = {"reset_position_ids": packed, "eod_mask_loss": packed}
    dataset, _, _ = fastpack.GPTDataset.build(prefix, LENGTH, SEED, (None, 0, 0), "1,0,0", eod_token_id=EOS, **reset)
    names = ("tokens", "labels", "position_ids", "loss_mask") if packed else ("tokens", "labels")
    for first in range(0, len(dataset) - BATCH + 1, BATCH):
        batch: Any = dataset.batch(range(first, first + BATCH), outputs=names)
        yield tuple(batch[name] for name in names)


def compare(loops: Loops, cases: Sequence[Case], rounds: int) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Yield the best figures of each case, and whether its rows are those of the tokens."""
    for case in {case.loop: case for case in cases}.values():
        loops.ask(case.loop, "prepare", **case.settings)
    found = loops.measure([(case.loop, case.settings) for case in cases], "measure", rounds)
    for case, answers in zip(cases, found, strict=True):
        checked = loops.ask(case.loop, "check", **case.settings)
        expected = expected_digest(loops.folder, case.loop, case.packed)
        yield (
            case,
            {
                **best(answers),
                "memory": checked["memory"],
                "rows": {None: "another packing", checked["digest"]: "equal"}.get(expected, "differ"),
                "versions": checked["versions"],
            },
        )


def cells(case: Case, found: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    ratio = ours["samples_per_cpu_second"] / found["samples_per_cpu_second"]
    return [
        case.title,
        str(case.workers),
        f"{found['samples_per_cpu_second']:,.0f}",
        "" if case.loop == OURS else f"**{shown(ratio)}x**",
        f"{found['samples_per_second']:,.0f}",
        f"{found['memory'] / 1e6:.0f} MB",
        *(seconds(found[name]) for name in ("first", "imports")),
        found["rows"],
        case.why if ratio < 1 else "",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, ENVIRONMENT, "about 1 GB")
    parser.add_argument("--samples", type=int, default=32_768, help="rows of the epoch (default: 32,768)")
    args = parser.parse_args(argv)
    python = find_python(args, REQUIREMENTS)
    cases = [case for case in ALL_CASES if case.loop == OURS or args.only in case.title]
    with run_folder(args) as folder:
        write_tokens(folder, args.samples, LENGTH)
        found = dict(compare(Loops("token_loops", python, folder, length=LENGTH, batch=BATCH), cases, args.rounds))
    ours = {case.packed: one for case, one in found.items() if case.loop == OURS}
    rows = [cells(case, one, ours[case.packed]) for case, one in found.items()]
    versions = sorted({f"{name} {version}" for one in found.values() for name, version in one["versions"].items()})
    footer = (
        f"{machine()}; {', '.join(versions)}. One epoch of {args.samples:,} shuffled rows of {LENGTH:,} tokens, in "
        f"batches of {BATCH}, as int64 tensors; files of uint16 in the page cache, documents of 800 tokens on average. "
        "Samples per second: from opening to the end of the epoch, without imports; CPU is that of all processes and "
        "threads. Memory: of all processes, without mapped files. First batch: of a new process. Packed: also "
        "position_ids that restart in each document, and no loss across documents. The best of "
        f"{args.rounds} rounds, the systems taking turns. Rows are compared with those of the tokens, in any order; "
        "those of megatron-core, which shuffles documents, with those of fastpack's GPTDataset."
    )
    publish(args, "feed", HEADER, rows, footer, {"rows": {f"{c.title}, {c.workers}": one for c, one in found.items()}})
    return int(any(one["rows"] == "differ" for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
