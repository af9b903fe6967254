"""Print a Markdown table of what packing a token file gives, for several sequence lengths and all algorithms.

    fastpack quickstart --keep corpus --seconds 1        # the source files of the Python standard library
    python examples/packing_table.py corpus/stdlib.pbin --seq-len 4096 16384 65536

The plans are written to a temporary folder.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from typing import Any

import fastpack

SETTINGS: tuple[dict[str, Any], ...] = (
    {"algorithm": "best_fit", "long": "split"},
    {"algorithm": "best_fit", "long": "split", "pad_to_multiple": 16},
    {"algorithm": "first_fit", "long": "split"},
    {"algorithm": "none", "long": "split"},
    {"algorithm": "best_fit", "long": "truncate"},
    {"algorithm": "best_fit", "long": "drop"},
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print what packing a token file gives.")
    parser.add_argument("corpus", help="a token file of any format")
    parser.add_argument("--seq-len", type=int, nargs="+", default=[4096, 16384, 65536], metavar="N")
    options = parser.parse_args(arguments)
    print("| tokens of a row | algorithm | long documents | rows | padding | cuts | tokens left out |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for seq_length in options.seq_len:
            for number, settings in enumerate(SETTINGS):
                output = f"{folder}/{seq_length}-{number}.plan"
                result = fastpack.plan(options.corpus, output, seq_length=seq_length, **settings)
                left_out = (result.n_truncated + result.n_dropped) / max(1, result.n_source_tokens)
                multiple = settings.get("pad_to_multiple")
                algorithm = f"{result.algorithm}, padded to {multiple}" if multiple else result.algorithm
                print(
                    f"| {seq_length:,} | {algorithm} | {result.long} | {result.n_rows:,} | "
                    f"{result.padding_share:.2%} | {result.n_cuts:,} | {left_out:.1%} |"
                )


if __name__ == "__main__":
    main()
