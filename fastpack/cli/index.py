"""`fastpack index`: the byte-offset index of a JSONL file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fastpack.cli.distributed_options import (
    add_distributed_options,
    check_distributed_options,
    is_distributed,
    run_distributed,
    task_options,
)
from fastpack.cli.failures import UsageError
from fastpack.cli.options import Commands, add_output_options, new_command, write_checksums
from fastpack.cli.output import emit, shortened, warnings_as_messages
from fastpack.cli.progress import progress
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.documents.create_index import IndexResult

_MAX_QUOTED = 300  # characters of a message that quotes a line


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `index`."""
    parser = new_command(
        commands,
        "index",
        run=run_index,
        aliases=("create_raw_index", "create_memmap_index"),
        help="index the lines of JSONL files",
        about="Write the byte-offset index of a JSONL file, or of several.",
        example="fastpack index corpus.jsonl        (or: fastpack index shards/ 'more/*.jsonl' --threads 8)",
    )
    parser.add_argument(
        "src", nargs="+", metavar="SRC", help="a JSONL file, a directory of them, or a pattern in quotes"
    )
    parser.add_argument(
        "--index-path", metavar="PATH", help="path of the index, for a single file (default: SRC's stem with .idx)"
    )
    add_output_options(parser)
    parser.add_argument("--no-validate", action="store_true", help="do not check that each line is JSON")
    parser.add_argument(
        "--drop-faulty", action="store_true", help="skip lines that are not JSON instead of stopping at the first"
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads that check lines (default: 1)")
    parser.add_argument(
        "--repair-legacy",
        action="store_true",
        help="turn the line lengths of an index that Modalities wrote before v0.4.0 into bytes, in place",
    )
    add_distributed_options(parser)
    return [parser]


def run_index(args: argparse.Namespace) -> int:
    """Index a JSONL file, or repair its index; return the exit code."""
    from fastpack.documents.source_paths import is_one_file

    check_distributed_options(args, "--dry-run", "--repair-legacy")
    args.src = args.src[0] if len(args.src) == 1 else args.src
    one = is_one_file(args.src)
    if not one and (args.index_path is not None or args.repair_legacy):
        raise UsageError(f"{'--repair-legacy' if args.repair_legacy else '--index-path'} takes one source file")
    if args.dry_run:
        return _dry_run(args)
    return _repair(args) if args.repair_legacy else _index(args, one)


def _index(args: argparse.Namespace, one: bool) -> int:
    from fastpack.documents.create_index import FaultyLine
    from fastpack.errors import JobError

    with warnings_as_messages(args, width=_MAX_QUOTED):
        try:
            results = _index_as_tasks(args) if is_distributed(args) else _index_here(args, one)
        except FaultyLine as error:
            # Position and reason, before the line itself, which may be long.
            text = f"{error.__notes__[0]}: {shortened(str(error), _MAX_QUOTED)} (--drop-faulty skips such lines)"
            raise JobError(text) from error
    if results is None:  # a rank: the last step has the results
        return 0
    for result in results:
        if result.written:
            write_checksums(args, result.path)
    reports = [_fields(result) for result in results]
    whole = reports[0] if one else {"files": reports}
    emit(args, {**whole, "dry_run": False}, map(_describe, results))
    return 0


def _index_here(args: argparse.Namespace, one: bool) -> list[IndexResult]:
    from fastpack.documents.create_index import create_raw_index
    from fastpack.documents.create_indices import create_raw_indices

    options: dict[str, Any] = {
        "validate": not args.no_validate,
        "drop_faulty_entries": args.drop_faulty,
        "if_exists": args.if_exists,
        "num_threads": args.threads,
        "progress": progress(args, "index"),
    }
    return [create_raw_index(args.src, args.index_path, **options)] if one else create_raw_indices(args.src, **options)


def _index_as_tasks(args: argparse.Namespace) -> list[IndexResult] | None:
    from fastpack.distributed.index_tasks import collect_index, plan_index

    options = {**task_options(args), "if_exists": args.if_exists}
    plan = plan_index(args.src, args.index_path, validate=not args.no_validate, **options)

    def collect() -> list[IndexResult]:
        bar = progress(args, "join")
        return collect_index(plan, drop_faulty_entries=args.drop_faulty, if_exists=args.if_exists, progress=bar)

    return run_distributed(args, "index", plan, collect)


def _dry_run(args: argparse.Namespace) -> int:
    """Print what would be written: an index has one entry per line, unless lines are faulty."""
    from fastpack.documents.raw_index_check import default_index_path
    from fastpack.documents.source_paths import find_json_lines
    from fastpack.io import may_write, size_of

    files: list[dict[str, Any]] = []
    for source in find_json_lines(args.src):
        target = args.index_path or str(default_index_path(source))
        keeps = not may_write(target, args.if_exists)
        files.append({"source": source, "path": target, "source_bytes": size_of(source), "kept_existing": keeps})
    emit(args, {"dry_run": True, "files": files}, map(_describe_plan, files))
    return 0


def _describe_plan(file: dict[str, Any]) -> str:
    if file["kept_existing"]:
        return f"{file['path']}: exists, kept"
    return f"{file['path']}: would index {counted(file['source_bytes'], 'byte')} of {file['source']}"


def _fields(result: IndexResult) -> dict[str, Any]:
    return {
        "path": str(result.path),
        "entries": result.entries,
        "dropped": result.dropped,
        "source_bytes": result.bytes,
        "written": result.written,
        "kept_existing": not result.written,
    }


def _describe(result: IndexResult) -> str:
    if not result.written:
        return f"{result.path}: exists, kept"
    skipped = f", {counted(result.dropped, 'faulty line')} skipped" if result.dropped else ""
    return f"{result.path}: {counted(result.entries, 'line')}{skipped}, {counted(result.bytes, 'byte')} indexed"


def _repair(args: argparse.Namespace) -> int:
    from fastpack.documents.raw_index import repair_raw_index
    from fastpack.documents.raw_index_check import default_index_path

    path = args.index_path or str(default_index_path(args.src))
    changed = repair_raw_index(args.src, path)
    emit(args, {"path": path, "changed": changed}, [f"{path}: {counted(changed, 'line length')} corrected"])
    return 0
