"""Execution and reporting of the commands merge, shuffle, chunk and filter."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastpack.cli.distributed_options import is_distributed, run_distributed, task_options
from fastpack.cli.failures import UsageError
from fastpack.cli.options import FORMATS, output_group, write_checksums
from fastpack.cli.output import emit, fields_of, warnings_as_messages
from fastpack.cli.progress import progress
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.distributed.plan import Plan
    from fastpack.tokens.edit.edit_result import EditResult

COMPAT = "modalities-0.5"


def add_compat_option(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument("--compat", choices=(COMPAT,), help=meaning)


def check_seed(args: argparse.Namespace, option: str, seed: int | None) -> None:
    """Raise UsageError if several processes share a shuffle without a seed."""
    if seed is None and is_distributed(args):
        raise UsageError(
            f"--rank, --collect and --executor ray need {option}: without it each process would use a different order"
        )


def run_edit(args: argparse.Namespace, label: str, edit: Callable[..., EditResult], *given: Any, **options: Any) -> int:
    """Call `edit` and print its result; return the exit code."""
    options |= {"if_exists": args.if_exists, "progress": progress(args, label, at_once=True), "dry_run": args.dry_run}
    options |= {} if args.format is None else {"format": args.format}
    with warnings_as_messages(args):
        result = edit(*given, **options)
    return _report(args, result)


def run_distributed_edit(
    args: argparse.Namespace, label: str, plan_work: Callable[..., Plan], *given: Any, **options: Any
) -> int:
    """Run the plan of `plan_work`, or the tasks of one rank, and print the result; return the exit code."""
    from fastpack.distributed.edit_tasks import collect_edit

    def collect() -> EditResult:
        return collect_edit(plan, if_exists=args.if_exists, progress=progress(args, "join"))

    with warnings_as_messages(args):
        plan = plan_work(*given, **options, **task_options(args), if_exists=args.if_exists, format=args.format)
        result = run_distributed(args, label, plan, collect)
    return 0 if result is None else _report(args, result)


def _report(args: argparse.Namespace, result: EditResult) -> int:
    """Write checksums and print the result; return the exit code."""
    from fastpack.tokens.edit.edit_result import output_format
    from fastpack.tokens.interop_formats import output_files

    if result.written and not args.dry_run:
        write_checksums(args, *output_files(output_format(result.path, args.format).name, result.path))
    emit(args, {**fields_of(result), "dry_run": args.dry_run}, [_describe(result, args.dry_run)])
    return 0


def _describe(result: EditResult, dry_run: bool) -> str:
    if result.kept_existing:
        return f"{result.path}: exists, kept"
    sources = f" from {counted(result.sources, 'file')}" if result.sources > 1 else ""
    excluded = f", {counted(result.left_out, 'document')} excluded" if result.left_out else ""
    empty = f", {counted(result.n_empty_dropped, 'document')} without tokens dropped" if result.n_empty_dropped else ""
    amount = f"{describe_contents(result.documents, result.tokens)}, {counted(result.bytes, 'byte')}"
    return f"{'would write ' if dry_run else ''}{result.path}: {amount}{sources}{excluded}{empty}"


def describe_contents(documents: int, tokens: int | None) -> str:
    """Return the numbers of documents and tokens, or the number of lines if `tokens` is None."""
    if tokens is None:
        return counted(documents, "line")
    return f"{counted(documents, 'document')}, {counted(tokens, 'token')}"


def add_format_option(parser: argparse.ArgumentParser) -> None:
    output_group(parser).add_argument(
        "--format",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"format of the output: {', '.join(FORMATS)} (default: by its suffix, else pbin)",
    )


def add_eos_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--eos-token-id",
        type=int,
        metavar="ID",
        help="token that ends documents in sources without document boundaries (npy, bin, llmc, nanogpt)",
    )


def eos_option(args: argparse.Namespace, kind: str = "pbin") -> dict[str, int]:
    """Return the argument `eos_token_id`, if it was given. Raises UsageError for it and --format with lines."""
    if kind == "jsonl" and args.format is not None:
        raise UsageError("--format is for token files: the output of JSON Lines is JSON Lines")
    if kind == "jsonl" and args.eos_token_id is not None:
        raise UsageError("--eos-token-id is for token files, and the source is JSON Lines")
    return {} if args.eos_token_id is None else {"eos_token_id": args.eos_token_id}


def kind_of(path: str) -> str:
    """Return "pbin" for token files or "jsonl": by the suffix, else by the first byte, which differs."""
    suffix = path.rpartition(".")[2].lower()
    if suffix in ("pbin", "npy", "bin", "idx", "ds", "fpm"):  # raw tokens may begin with any byte
        return "pbin"
    if suffix in ("jsonl", "ndjson", "json"):
        return "jsonl"
    if not os.path.isfile(path):
        return "pbin"  # a folder, or the prefix of several files
    with open(path, "rb") as file:
        return "jsonl" if file.read(1) in (b"{", b"[", b'"') else "pbin"
