"""Print the result of `fastpack prepare` for a folder of shards."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fastpack.cli.output import emit, say
from fastpack.errors import counted, ending

if TYPE_CHECKING:
    from fastpack.webdataset.preparation.prepare_webdataset import PrepareResult


def report(args: argparse.Namespace, result: PrepareResult) -> None:
    """Print a result."""
    for shard, reason in result.skipped.items():
        say(args, f"left out: {shard}: {reason}")
    for warning in result.warnings:
        say(args, f"warning: {warning}")
    emit(args, _fields(result), _lines(result))


def _fields(result: PrepareResult) -> dict[str, Any]:
    return {
        "path": str(result.path),
        "written": result.written,
        "samples": result.samples,
        "shards": result.shards,
        "splits": result.splits,
        "part_types": result.part_types,
        "reused": result.reused,
        "skipped": result.skipped,
        "warnings": result.warnings,
        "files": result.files,
        "media": result.media,
        "dry_run": not result.written,
    }


def _lines(result: PrepareResult) -> list[str]:
    n_walked = len(result.shards) - result.reused
    if not result.written:
        first = f"{result.path}: would walk {n_walked} of {len(result.shards)} shard{ending(len(result.shards))}"
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
