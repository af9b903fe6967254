"""Measure `fastpack.plan` on very many documents: time, memory, and the rows that sharding adds.

    python asv_benchmarks/plan_scale.py --documents 100000000 --shard-documents 67108864 10000000 --seq-len 2048 8192

The lengths are log-normal with a mean of 800 tokens, seeded. Token files are sparse: they take 8 bytes per document.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

PER_FILE = 20_000_000  # documents


def write_sources(folder: Path, n_documents: int) -> None:
    """Write datatrove files, of which only the indices have contents."""
    for number, first in enumerate(range(0, n_documents, PER_FILE)):
        count = min(PER_FILE, n_documents - first)
        lengths = np.random.default_rng(number).lognormal(6.18, 1.0, count).astype(np.int64) + 1
        ends = np.cumsum(lengths)
        source = folder / f"{number:04d}.ds"
        ends.astype("<u8").tofile(f"{source}.index")
        with source.open("wb") as file:
            file.truncate(2 * int(ends[-1]))


def measure(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Make a plan in this process; return its rows, and what it took."""
    import fastpack

    before = time.process_time(), time.perf_counter()
    result = fastpack.plan(str(folder / "*.ds"), folder / "a.plan", if_exists="overwrite", **options)
    return {
        "documents": result.n_source_documents,
        **options,
        "rows": result.n_rows,
        "padding": round(result.padding_share, 6),
        "cpu_s": round(time.process_time() - before[0], 1),
        "wall_s": round(time.perf_counter() - before[1], 1),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "bytes_per_document": round(os.stat(folder / "a.plan").st_size / result.n_source_documents, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000_000)
    parser.add_argument("--shard-documents", type=int, nargs="+", default=[1 << 26])
    parser.add_argument("--seq-len", type=int, nargs="+", default=[2048])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ranks", type=int, help="make balanced plans")
    parser.add_argument("--folder", type=Path, help="where to write and keep the files (default: a temporary folder)")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # the options of one plan, in a process of its own
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.folder, json.loads(args.one))))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        if not list(folder.glob("*.ds")):
            write_sources(folder, args.documents)
        for seq_length in args.seq_len:
            fewest = None
            for size in args.shard_documents:
                options = {"seq_length": seq_length, "shard_documents": size, "num_threads": args.threads}
                if args.ranks:
                    options |= {"balance": "attention", "data_parallel": args.ranks}
                command = [sys.executable, __file__, "--folder", str(folder), "--one", json.dumps(options)]
                found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                fewest = found["rows"] if fewest is None else fewest
                print(json.dumps({**found, "more_rows": f"{found['rows'] / fewest - 1:.5%}"}), flush=True)


if __name__ == "__main__":
    main()
