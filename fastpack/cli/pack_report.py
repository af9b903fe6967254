"""The messages and results of `fastpack pack`."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from fastpack.cli.output import emit, fields_of, say, say_skipped
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.packing.pack_estimate import PlannedPack
    from fastpack.packing.pack_result import PackResult
    from fastpack.packing.settings import PackSettings


def report(args: argparse.Namespace, results: list[PackResult], seconds: float) -> None:
    """Print the results."""
    from fastpack.tokenizers.tokenizer_spec import OWN_ENGINES

    for note in {result.engine_note for result in results if result.engine_note}:
        say(args, note)
    for result in results:
        if result.audited_documents:
            reference, compared = OWN_ENGINES["pretrained_hf_tokenizer"], counted(result.audited_documents, "document")
            say(args, f"{result.path}: {compared} compared with {reference} during the run: the same ids")
        file = f"{result.path}: " if len(results) > 1 else ""
        say_skipped(args, [(f"{one['source']}: " if "source" in one else file, one) for one in result.skipped])
    reports = [_fields(result) for result in results]
    whole = {"files": reports} if args.per_source else reports[0]
    tokens = sum(result.tokens for result in results)
    rate = f"in {seconds:.1f} s ({tokens / seconds if seconds else 0:,.0f} tokens/s)"
    lines = [_describe(result, rate if len(results) == 1 else "") for result in results]
    if len(results) > 1:
        lines.append(f"{counted(len(results), 'file')}, {counted(tokens, 'token')}, {rate}")
    emit(args, {**whole, "seconds": round(seconds, 3), "dry_run": False}, lines)


def _fields(result: PackResult) -> dict[str, Any]:
    fields = fields_of(result)
    del fields["engine_note"]
    return {**fields, "written": not result.kept_existing}


def _describe(result: PackResult, rate: str) -> str:
    if result.kept_existing:
        return f"{result.path}: exists, kept"
    skipped = f", {len(result.skipped):,} skipped" if result.skipped else ""
    resumed = f", {result.resumed_documents:,} of them packed before" if result.resumed_documents else ""
    return (
        f"{result.path}: {counted(result.documents, 'document')}{resumed}, {counted(result.tokens, 'token')}{skipped}"
        + (f", {rate}" if rate else "")
    )


def refuse_empty(settings: PackSettings, results: list[PackResult]) -> None:
    """Remove the files and raise JobError if no document was packed: most often the text has another key.

    The Python functions write such a file, as Modalities does; a command's exit code 0 would be taken for success.
    """
    if any(result.documents or result.kept_existing for result in results):
        return
    from fastpack.errors import JobError
    from fastpack.io import SIDES, as_path, remove
    from fastpack.tokens.interop_formats import output_files

    for result in results:
        for file in output_files(settings.format, as_path(result.path)):
            remove(file)
            for suffix in SIDES:
                remove(f"{file}{suffix}")
        if os.path.isdir(result.path):
            os.rmdir(result.path)
    n_skipped = sum(len(result.skipped) for result in results)
    if not n_skipped:
        paths = [source.path for source in settings.sources]
        what = f"{paths[0]} is empty" if len(paths) == 1 else f"the {len(paths)} sources are empty"
        raise JobError(f"{what}: there is no document to pack, so nothing was written")
    raise JobError(_nothing_packed(settings, results, n_skipped))


def _nothing_packed(settings: PackSettings, results: list[PackResult], n_skipped: int) -> str:
    from fastpack.packing.document_sample import first_keys

    keys = first_keys(settings.sources[0])
    first = next(result.skipped[0] for result in results if result.skipped)
    what = "the only document could not" if n_skipped == 1 else f"none of the {n_skipped:,} documents could"
    if settings.chat is not None:
        hint = (
            ". --messages-field names the key of the messages" if first["reason"].startswith("no conversation") else ""
        )
        return f"{what} be packed, so nothing was written. Line {first['line']}: {first['reason']}{hint}"
    return (
        f"{what} be packed, so nothing was written. Line {first['line']}: {first['reason']}; the jq pattern is "
        + settings.text_pattern
        + (f", and the first document has the keys {', '.join(keys)}" if keys else "")
    )


def print_estimate(args: argparse.Namespace, jobs: list[PackSettings]) -> None:
    """Print the result of a dry run."""
    from fastpack.packing.pack_estimate import estimate_pack

    plans = [plan for settings in jobs for plan in estimate_pack(settings)]
    emit(
        args,
        {"dry_run": True, "files": [vars(plan) for plan in plans]},
        [f"{plan.path}: {_describe_plan(plan)}" for plan in plans],
    )


def _describe_plan(plan: PlannedPack) -> str:
    if plan.kept_existing:
        return "exists, kept"
    lines = "" if plan.lines is None else f"{counted(plan.lines, 'line')}, "
    size = seconds = ""
    if (n_tokens := plan.estimated_tokens) is not None:
        amounts = f"{n_tokens:,} tokens"
        if (n_counted := plan.estimated_loss_tokens) is not None:
            documents = counted(plan.estimated_documents or 0, "conversation")
            amounts = f"{documents}, {amounts}, of which {n_counted:,} count in the loss"
        size = f"about {amounts}, {n_tokens * plan.token_size_in_bytes:,} bytes; "
        seconds = f", in about {plan.estimated_seconds:.1f} s"
    source = plan.sources[0] if len(plan.sources) == 1 else f"{len(plan.sources)} files"
    return (
        f"would hold {size}{plan.token_size_in_bytes} byte(s) a token, from {source} ({lines}{plan.source_bytes:,} "
        f"bytes){f', tokenised by {plan.engine}' if plan.engine else ''}{seconds}"
    )
