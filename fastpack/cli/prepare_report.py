"""Print the result of `fastpack prepare` for a folder of shards."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fastpack.cli.output import emit, fields_of, say
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.webdataset.preparation.prepare_webdataset import PrepareResult


def report(args: argparse.Namespace, result: PrepareResult) -> None:
    """Print a result."""
    for shard, reason in result.skipped.items():
        say(args, f"skipped {shard}: {reason}")
    for warning in result.warnings:
        say(args, f"warning: {warning}")
    fields = {**fields_of(result), "samples": result.samples, "dry_run": not result.written}
    emit(args, fields, _lines(result))


def _lines(result: PrepareResult) -> list[str]:
    n_walked = len(result.shards) - result.reused
    if not result.written:
        first = f"{result.path}: would walk {n_walked:,} of {counted(len(result.shards), 'shard')}"
        return [first, *_splits(result), f"would write {', '.join(result.files)}"]
    reused = f" ({result.reused} unchanged)" if result.reused else ""
    lines = [
        f"{result.path}: {counted(result.samples, 'sample')} in {counted(len(result.shards), 'shard')}{reused}",
        *_splits(result),
    ]
    lines.append(f"fields: {', '.join(result.part_types[:10])}" + (" and more" if len(result.part_types) > 10 else ""))
    return lines


def _splits(result: PrepareResult) -> list[str]:
    return [
        f"{split}: {counted(len(shards), 'shard')}"
        + (f", {sum(result.shards[shard] for shard in shards):,} samples" if result.written else "")
        for split, shards in result.splits.items()
    ]
