"""What `fastpack pack` says of its results."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fastpack.cli.output import emit, say
from fastpack.errors import counted, ending

if TYPE_CHECKING:
    from fastpack.packing.pack import PackResult

REASONS_SHOWN = 5


def report(args: argparse.Namespace, results: list[PackResult], seconds: float) -> None:
    """Print the results."""
    from fastpack.errors import counted
    from fastpack.tokenizers.tokenizer_spec import OWN_ENGINES

    for note in {result.engine_note for result in results if result.engine_note}:
        say(args, note)
    for result in results:
        if result.audited_documents:
            own, compared = OWN_ENGINES["pretrained_hf_tokenizer"], counted(result.audited_documents, "document")
            say(args, f"{result.path}: {compared} compared with {own} during the run: the same ids")
        _say_skipped(args, result, len(results) > 1)
    reports = [_fields(result) for result in results]
    whole = reports[0] if not args.per_source else {"files": reports}
    tokens = sum(result.tokens for result in results)
    rate = f"in {seconds:.1f} s ({tokens / seconds if seconds else 0:,.0f} tokens/s)"
    lines = [_describe(result, rate if len(results) == 1 else "") for result in results]
    if len(results) > 1:
        lines.append(f"{len(results)} file{ending(len(results))}, {counted(tokens, 'token')}, {rate}")
    emit(args, {**whole, "seconds": round(seconds, 3), "dry_run": False}, lines)


def _fields(result: PackResult) -> dict[str, Any]:
    return {
        "path": result.path,
        "documents": result.documents,
        "tokens": result.tokens,
        "skipped": result.skipped,
        "written": not result.kept_existing,
        "kept_existing": result.kept_existing,
        "resumed_documents": result.resumed_documents,
        "engine": result.engine,
        "eos_inside": result.eos_inside,
        "documents_with_eos_inside": result.documents_with_eos_inside,
        "audited_documents": result.audited_documents,
    }


def _say_skipped(args: argparse.Namespace, result: PackResult, several: bool) -> None:
    for skipped in result.skipped[:REASONS_SHOWN]:
        source = f"{skipped['source']}: " if "source" in skipped else f"{result.path}: " if several else ""
        say(args, f"{source}left out line {skipped['line']}: {skipped['reason']}")
    if len(result.skipped) > REASONS_SHOWN:
        say(args, f"left out {len(result.skipped) - REASONS_SHOWN} more (--json lists all)")


def _describe(result: PackResult, rate: str) -> str:
    if result.kept_existing:
        return f"{result.path}: exists, kept"
    left_out = f", {len(result.skipped):,} left out" if result.skipped else ""
    resumed = f", {result.resumed_documents:,} of them packed before" if result.resumed_documents else ""
    return (
        f"{result.path}: {counted(result.documents, 'document')}{resumed}, {counted(result.tokens, 'token')}{left_out}"
        + (f", {rate}" if rate else "")
    )
