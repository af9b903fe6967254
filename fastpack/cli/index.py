"""`fastpack index`: the byte-offset index of a JSONL file."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from fastpack.cli.distributed_options import add_distributed_options, clear, is_distributed, misuse, run_distributed
from fastpack.cli.options import (
    Commands,
    add_checksum_option,
    add_dry_run_option,
    add_policy_option,
    check_checksum_option,
    new_command,
    write_checksums,
)
from fastpack.cli.output import emit, say
from fastpack.cli.progress import progress
from fastpack.errors import ending

if TYPE_CHECKING:
    from fastpack.documents.create_index import IndexResult


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `index`."""
    parser = new_command(
        commands,
        "index",
        run=run_index,
        aliases=("create_raw_index", "create_memmap_index"),
        help="write the byte-offset index of a JSONL file, or of several",
        example="fastpack index corpus.jsonl        (or: fastpack index shards/ 'more/*.jsonl' --threads 8)",
    )
    parser.add_argument(
        "src", nargs="+", metavar="SRC", help="a JSONL file, a directory of them, or a pattern in quotes"
    )
    parser.add_argument(
        "--index-path",
        metavar="PATH",
        help="path of the index, for a single file (default: SRC's stem with .idx)",
    )
    add_policy_option(parser)
    add_dry_run_option(parser)
    add_checksum_option(parser)
    parser.add_argument("--no-validate", action="store_true", help="do not check that each line is JSON")
    parser.add_argument(
        "--drop-faulty",
        action="store_true",
        help="skip lines that are not JSON instead of stopping at the first",
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

    if wrong := misuse(args, ("--dry-run", "--repair-legacy")):
        print(f"fastpack: error: {wrong}", file=sys.stderr)
        return 2
    args.src = args.src[0] if len(args.src) == 1 else args.src
    if not is_one_file(args.src) and (args.index_path is not None or args.repair_legacy):
        option = "--repair-legacy" if args.repair_legacy else "--index-path"
        print(f"fastpack: error: {option} takes one source file", file=sys.stderr)
        return 2
    if args.dry_run:
        return _dry_run(args)
    return _repair(args) if args.repair_legacy else _index(args)


def _index(args: argparse.Namespace) -> int:
    import warnings

    from fastpack.documents.create_index import FaultyLine
    from fastpack.documents.source_paths import is_one_file
    from fastpack.errors import JobError

    check_checksum_option(args)
    one = is_one_file(args.src)
    with warnings.catch_warnings(record=True) as faulty:
        warnings.simplefilter("always")
        try:
            results = _index_as_tasks(args) if is_distributed(args) else _index_here(args, one)
        except FaultyLine as error:
            raise JobError(_locate(error)) from error
    if args.rank is not None:
        return 0
    for warning in faulty:
        say(args, _shorten(str(warning.message)))
    for result in results:
        if result.written:
            write_checksums(args, str(result.path))
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
        "if_exists": args.file_existence_policy,
        "num_threads": args.threads,
        "progress": progress(args, "index"),
    }
    return [create_raw_index(args.src, args.index_path, **options)] if one else create_raw_indices(args.src, **options)


def _index_as_tasks(args: argparse.Namespace) -> list[IndexResult]:
    from fastpack.distributed.index_tasks import collect_index, plan_index

    policy = args.file_existence_policy
    plan = plan_index(
        args.src,
        args.index_path,
        validate=not args.no_validate,
        bytes_per_task=args.part_bytes,
        folder=args.parts_folder,
        if_exists=policy,
    )

    def collect() -> list[IndexResult]:
        bar = progress(args, "join")
        return collect_index(plan, drop_faulty_entries=args.drop_faulty, if_exists=policy, progress=bar)

    results = run_distributed(args, "index", plan, collect)
    if results is not None:
        clear(args, plan)
    return results or []


def _dry_run(args: argparse.Namespace) -> int:
    """Print what would be written: an index has one entry per line, unless lines are faulty."""
    from fastpack.documents.raw_index_check import default_index_path
    from fastpack.documents.source_paths import find_sources
    from fastpack.io import may_write, size_of

    files: list[dict[str, Any]] = []
    for source in find_sources(args.src, compressed=False):
        target = args.index_path or str(default_index_path(source))
        keeps = not may_write(target, args.file_existence_policy)
        files.append({"source": source, "path": target, "source_bytes": size_of(source), "kept_existing": keeps})
    lines = [
        f"{f['path']}: "
        + ("exists, kept" if f["kept_existing"] else f"would index {f['source_bytes']:,} bytes of {f['source']}")
        for f in files
    ]
    emit(args, {"dry_run": True, "files": files}, lines)
    return 0


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
    dropped = f", {result.dropped} faulty ones left out" if result.dropped else ""
    lines = f"{result.entries} line{ending(result.entries)}"
    return f"{result.path}: {lines}{dropped}, {result.bytes} byte{ending(result.bytes)} indexed"


def _repair(args: argparse.Namespace) -> int:
    from fastpack.documents.raw_index import repair_raw_index
    from fastpack.documents.raw_index_check import default_index_path

    path = args.index_path or str(default_index_path(args.src))
    changed = repair_raw_index(args.src, path)
    emit(args, {"path": path, "changed": changed}, [f"{path}: {changed} line length{ending(changed)} corrected"])
    return 0


def _locate(error: Exception) -> str:
    """Return position and reason, before the line itself, which may be long."""
    return f"{error.__notes__[0]}: {_shorten(str(error))} (--drop-faulty leaves such lines out)"


def _shorten(text: str, width: int = 300) -> str:
    return text if len(text) <= width else f"{text[:width]}..."
