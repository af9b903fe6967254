"""Execution and reporting of the commands merge, shuffle, chunk and filter."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastpack.cli.distributed_options import clear, is_distributed, run_distributed
from fastpack.cli.options import (
    add_checksum_option,
    add_dry_run_option,
    add_policy_option,
    check_checksum_option,
    write_checksums,
)
from fastpack.cli.output import emit, say
from fastpack.cli.progress import progress
from fastpack.errors import ending

if TYPE_CHECKING:
    from fastpack.distributed.plan import Plan
    from fastpack.tokens.edit.edit_result import EditResult

COMPAT = "modalities-0.5"


def add_edit_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all of them have."""
    add_policy_option(parser)
    add_dry_run_option(parser)
    add_checksum_option(parser)


def add_compat_option(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument("--compat", choices=(COMPAT,), help=meaning)


def seedless(args: argparse.Namespace, seed: int | None, option: str) -> str | None:
    """Return an error message if several processes share a shuffle without a seed."""
    if seed is not None or not is_distributed(args):
        return None
    return f"--rank, --collect and --executor ray need {option}: without it each process would use a different order"


def usage_error(message: str) -> int:
    print(f"fastpack: error: {message}", file=sys.stderr)
    return 2


def run_edit(args: argparse.Namespace, label: str, edit: Callable[..., EditResult], *given: Any, **options: Any) -> int:
    """Call `edit` and print its result; return the exit code."""

    def work() -> EditResult:
        return edit(
            *given,
            if_exists=args.file_existence_policy,
            progress=progress(args, label),
            dry_run=args.dry_run,
            **options,
        )

    return _run(args, work)


def run_distributed_edit(
    args: argparse.Namespace, label: str, plan_work: Callable[..., Plan], *given: Any, **options: Any
) -> int:
    """Run the plan of `plan_work`, or the tasks of one rank, and print the result; return the exit code."""

    def work() -> EditResult | None:
        from fastpack.distributed.edit_tasks import collect_edit

        policy = args.file_existence_policy
        where = {"bytes_per_task": args.part_bytes, "folder": args.parts_folder, "if_exists": policy}
        plan = plan_work(*given, **options, **where)

        def collect() -> EditResult:
            return collect_edit(plan, if_exists=policy, progress=progress(args, "join"))

        result = run_distributed(args, label, plan, collect)
        if result is not None:
            clear(args, plan)
        return result

    return _run(args, work)


def _run(args: argparse.Namespace, work: Callable[[], EditResult | None]) -> int:
    import warnings

    check_checksum_option(args)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        result = work()
    for warning in warned:
        say(args, str(warning.message))
    if result is None:
        return 0
    if result.written:
        write_checksums(args, str(result.path))
    _report(args, result)
    return 0


def _report(args: argparse.Namespace, result: EditResult) -> None:
    fields = {name: getattr(result, name) for name in result.__slots__}
    fields |= {"path": str(result.path), "dry_run": args.dry_run}
    if result.kept_existing:
        emit(args, fields, [f"{result.path}: exists, kept"])
        return
    contents = (
        f"{result.documents} line{ending(result.documents)}"
        if result.tokens is None
        else f"{result.documents} document{ending(result.documents)}"
    )
    contents += "" if result.tokens is None else f", {result.tokens} token{ending(result.tokens)}"
    sources = f" from {result.sources} file{ending(result.sources)}" if result.sources > 1 else ""
    left_out = f", {result.left_out} document{ending(result.left_out)} left out" if result.left_out else ""
    would = "would write " if args.dry_run else ""
    size = f"{result.bytes} byte{ending(result.bytes)}"
    emit(args, fields, [f"{would}{result.path}: {contents}, {size}{sources}{left_out}"])


def kind_of(path: str) -> str:
    """Return "pbin" or "jsonl": by the suffix, else by the first byte; no packed file starts like JSON."""
    suffix = path.rpartition(".")[2].lower()
    if suffix in ("pbin", "jsonl"):
        return suffix
    if suffix in ("ndjson", "json"):
        return "jsonl"
    with open(path, "rb") as file:
        return "jsonl" if file.read(1) in (b"{", b"[", b'"') else "pbin"
