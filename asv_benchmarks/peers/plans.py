"""Pack the same documents into rows with TRL, OLMo-core and fastpack; print CPU times and whether the rows are equal.

    python asv_benchmarks/peers/plans.py                       create an environment on the first run
    python asv_benchmarks/peers/plans.py --peer-python PATH    use a Python that has trl and ai2-olmo-core
    python asv_benchmarks/peers/plans.py --write               write the table to the page with its markers

Each system runs in a process of its own, after imports, and reads the documents in its own form: TRL an Arrow table,
OLMo-core an array in which it looks for EOS tokens, fastpack a packed file. Only TRL copies the tokens. Rows are equal
if they have documents of the same lengths in the same order. The exit code is 1 if they are not, or if a target is
missed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_HERE = Path(__file__).resolve()
_REQUIREMENTS = ("trl==1.16.0", "ai2-olmo-core==3.0.0")
_TITLES = {"trl": "TRL 1.16.0, `pack_dataset`", "olmo": "OLMo-core 3.0.0, `pack_documents_into_instances`"}
_TARGETS = {"trl": 100, "olmo": 10}  # CPU time of the system divided by that of fastpack
_STRATEGIES = {"trl": {"truncate": "bfd", "split": "bfd_split"}, "olmo": {"truncate": "truncate", "split": "fragment"}}


def write_documents(folder: Path, n_documents: int) -> np.ndarray:
    """Write documents that end with 0 in the form that OLMo-core reads, and their lengths; mean about 800 tokens."""
    lengths = np.random.default_rng(0).lognormal(6.18, 1.0, n_documents).astype(np.int64) + 1
    tokens = np.ones(lengths.sum(), np.uint16)
    tokens[np.cumsum(lengths) - 1] = 0
    tokens.tofile(folder / "a.npy")
    np.save(folder / "lengths.npy", lengths)
    return lengths


def _trl(folder: Path, seq_length: int, strategy: str) -> Callable[[], list[list[int]]]:
    from datasets import Dataset, disable_progress_bars
    from trl import pack_dataset

    disable_progress_bars()
    ends = np.cumsum(np.load(folder / "lengths.npy"))
    tokens = np.fromfile(folder / "a.npy", np.uint16).astype(np.int32)
    dataset = Dataset.from_dict({"input_ids": np.split(tokens, ends[:-1])})
    options = {"batch_size": None, "load_from_cache_file": False}
    return lambda: pack_dataset(dataset, seq_length, strategy, map_kwargs=options)["seq_lengths"][:]


def _olmo(folder: Path, seq_length: int, strategy: str) -> Callable[[], list[list[int]]]:
    from olmo_core.data.types import LongDocStrategy
    from olmo_core.data.utils import pack_documents_into_instances

    def run() -> list[list[int]]:
        rows, indices, _ = pack_documents_into_instances(
            folder / "a.npy",
            max_sequence_length=seq_length,
            eos_token_id=0,
            dtype=np.uint16,
            long_doc_strategy=LongDocStrategy(strategy),
        )
        lengths = (indices[:, 1] - indices[:, 0]).tolist()
        return [[lengths[i] for i in row] for row in rows]

    return run


def _fastpack(folder: Path, seq_length: int, strategy: str) -> Callable[[], Any]:
    import fastpack

    if not (folder / "a.pbin").exists():
        with fastpack.PackedWriter(folder / "a.pbin", 2) as writer:
            writer.append_many(np.fromfile(folder / "a.npy", np.uint16), np.load(folder / "lengths.npy"))
    long: Any = strategy
    return lambda: fastpack.plan(
        folder / "a.pbin", folder / "a.plan", seq_length=seq_length, long=long, if_exists="overwrite"
    )


def _rows_of_plan(path: Path) -> list[list[int]]:
    from fastpack.plans.plan_file import PlanFile

    plan = PlanFile(path)
    segments = plan.segments(range(plan.n_rows))
    ends = np.cumsum(np.bincount(segments.row, minlength=plan.n_rows))
    return [row.tolist() for row in np.split(segments.end - segments.start, ends[:-1])]


def run_side(name: str, folder: Path, seq_length: int, long: str) -> None:
    """Run one system in this process; print its CPU time and the sum of its rows' hashes, which has no order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sides = {"trl": _trl, "olmo": _olmo, "fastpack": _fastpack}
        run = sides[name](folder, seq_length, _STRATEGIES.get(name, {}).get(long, long))
        seconds = []
        for _ in range(5 if name == "fastpack" else 1):
            started = time.process_time()
            rows = run()
            seconds.append(time.process_time() - started)
        rows = _rows_of_plan(folder / "a.plan") if name == "fastpack" else rows
    digest = sum(hash(tuple(row)) for row in rows) % (1 << 64)  # hashes of integers do not depend on the process
    print(json.dumps({"cpu": sorted(seconds)[len(seconds) // 2], "rows": len(rows), "digest": digest}))


def compare(folder: Path, python: str, seq_length: int, long: str) -> dict[str, dict[str, Any]]:
    """Run the three systems, each in a process of its own."""
    found = {}
    for name, interpreter in (("fastpack", sys.executable), ("trl", python), ("olmo", python)):
        command = [interpreter, str(_HERE), "--side", name, str(folder), str(seq_length), long]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "huggingface")}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder)
        found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    if "--side" in sys.argv:  # in the Python of a system, which may have no fastpack
        name, folder, seq_length, long = sys.argv[2:]
        run_side(name, Path(folder), int(seq_length), long)
        return 0
    sys.path.insert(0, str(_HERE.parents[1]))
    from peers.command import find_python, machine, make_parser, publish, run_folder

    parser = make_parser(__doc__, "packing-peers", "about 500 MB", rounds=1, only=False)
    parser.add_argument("--documents", type=int, default=100_000)
    args = parser.parse_args()
    python = find_python(args, _REQUIREMENTS)
    header = ["compared with", "rows of", "long documents", "its CPU", "fastpack's CPU", "CPU ratio", "rows equal"]
    rows, is_missed = [], False
    with run_folder(args) as folder:
        n_tokens = int(write_documents(folder, args.documents).sum())
        for seq_length in (2048, 8192):
            for long in ("truncate", "split"):
                runs = [compare(folder, python, seq_length, long) for _ in range(args.rounds)]
                found = {name: min((run[name] for run in runs), key=lambda one: one["cpu"]) for name in runs[0]}
                ours = found.pop("fastpack")
                for name, theirs in found.items():
                    ratio, is_equal = theirs["cpu"] / ours["cpu"], theirs["digest"] == ours["digest"]
                    is_missed |= ratio < _TARGETS[name] or not is_equal
                    seconds = [f"{theirs['cpu']:.2f} s", f"{ours['cpu']:.3f} s", f"**{ratio:.0f}x**"]
                    rows.append([_TITLES[name], f"{seq_length:,}", long, *seconds, "yes" if is_equal else "no"])
    footer = (
        f"{machine()}; {args.documents:,} documents, {n_tokens:,} tokens; CPU time without imports, each in its own "
        "process."
    )
    publish(args, "plans", header, rows, footer)
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
