"""`fastpack index`: the byte-offset index of a JSONL file."""

from __future__ import annotations

import argparse

from fastpack.cli.common import Commands, add_policy_option, emit, new_command, progress, say


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """The command `index`."""
    parser = new_command(
        commands,
        "index",
        run="fastpack.cli.index:run_index",
        aliases=("create_raw_index", "create_memmap_index"),
        help="write the byte-offset index of a JSONL file",
        example="fastpack index corpus.jsonl",
    )
    parser.add_argument("src", metavar="SRC", help="the JSONL file")
    parser.add_argument(
        "--index-path", "--index_path", metavar="PATH", help="where the index goes (default: SRC's stem with .idx)"
    )
    add_policy_option(parser)
    parser.add_argument(
        "--no-validate", "--no_validate", action="store_true", help="do not check that each line is JSON"
    )
    parser.add_argument(
        "--drop-faulty",
        "--drop_faulty",
        action="store_true",
        help="leave out lines that are no JSON instead of stopping at the first",
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads that check lines (default: 1)")
    parser.add_argument(
        "--repair-legacy",
        "--repair_legacy",
        action="store_true",
        help="turn the line lengths of an index that Modalities wrote before v0.4.0 into bytes, in place",
    )
    return [parser]


def run_index(args: argparse.Namespace) -> int:
    """Index a JSONL file, or repair its index; return the exit code."""
    return _repair(args) if args.repair_legacy else _index(args)


def _index(args: argparse.Namespace) -> int:
    import warnings

    from fastpack.build.index import FaultyLine, create_raw_index
    from fastpack.errors import JobError

    with warnings.catch_warnings(record=True) as faulty:
        warnings.simplefilter("always")
        try:
            result = create_raw_index(
                args.src,
                args.index_path,
                validate=not args.no_validate,
                drop_faulty_entries=args.drop_faulty,
                file_existence_policy=args.file_existence_policy,
                num_threads=args.threads,
                progress=progress(args, "index"),
            )
        except FaultyLine as error:
            raise JobError(_locate(error)) from error
    for warning in faulty:
        say(args, _shorten(str(warning.message)))
    report = {
        "path": str(result.path),
        "entries": result.entries,
        "dropped": result.dropped,
        "bytes": result.bytes,
        "written": result.written,
    }
    if not result.written:
        emit(args, report, f"{result.path}: exists, kept")
        return 0
    dropped = f", {result.dropped} faulty ones left out" if result.dropped else ""
    emit(args, report, f"{result.path}: {result.entries} lines{dropped}, {result.bytes} bytes indexed")
    return 0


def _repair(args: argparse.Namespace) -> int:
    from fastpack.formats.jsonl import default_index_path, repair_raw_index

    path = args.index_path or str(default_index_path(args.src))
    changed = repair_raw_index(args.src, path)
    emit(args, {"path": path, "changed": changed}, f"{path}: {changed} line lengths corrected")
    return 0


def _locate(error: Exception) -> str:
    """Where and why, before the line itself: a line may be long."""
    return f"{error.__notes__[0]}: {_shorten(str(error))} (--drop-faulty leaves such lines out)"


def _shorten(text: str, width: int = 300) -> str:
    return text if len(text) <= width else f"{text[:width]}..."
