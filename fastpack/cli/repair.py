"""`fastpack repair`: repair a damaged packed file or index."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fastpack.cli.edits import describe_contents
from fastpack.cli.failures import UsageError
from fastpack.cli.options import Commands, add_output_options, new_command, write_checksums
from fastpack.cli.output import emit, fields_of
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.tokens.edit.repair import RepairResult


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `repair`."""
    parser = new_command(
        commands,
        "repair",
        run=run_repair,
        help="repair a damaged token file or index",
        about="Repair a damaged packed file, or the index of a JSONL file.",
        example="fastpack repair corpus.pbin -o repaired.pbin --eos-token-id 50256",
    )
    parser.add_argument("path", metavar="PATH", help="a .pbin (also unfinished), a .jsonl or an .idx")
    parser.add_argument("-o", "--output", metavar="PATH", help="the repaired file (of a .jsonl: its index)")
    parser.add_argument(
        "--in-place", action="store_true", help="replace the damaged file once the repaired one is complete"
    )
    parser.add_argument(
        "--eos-token-id",
        type=int,
        metavar="ID",
        help="the token that ends every document, by which documents are found if the index is lost",
    )
    parser.add_argument("--token-size", type=int, choices=(1, 2, 4), help="bytes per token, if the header is damaged")
    add_output_options(parser)
    return [parser]


def run_repair(args: argparse.Namespace) -> int:
    """Repair; return the exit code."""
    from fastpack.tokens.edit.repair import repair

    if args.output is None and not (args.in_place or args.dry_run):
        raise UsageError("nothing is changed in place unless you say so: give -o OUTPUT, or --in-place")
    if args.output is not None and args.in_place:
        raise UsageError("--in-place and -o exclude each other")
    result = repair(
        args.path,
        args.output,
        in_place=args.in_place,
        eos_token_id=args.eos_token_id,
        token_size_in_bytes=args.token_size,
        if_exists=args.if_exists,
        dry_run=args.dry_run,
    )
    if result.written:
        write_checksums(args, result.path)
    emit(args, {**fields_of(result), "dry_run": args.dry_run}, _lines(args, result))
    return 0


def _lines(args: argparse.Namespace, result: RepairResult) -> list[str]:
    if not result.problem:
        return [f"{args.path}: nothing to repair"]
    if not result.written and not args.dry_run:
        return [f"{result.path}: exists, kept"]
    contents = describe_contents(result.documents, result.tokens)
    lost = f"; {counted(result.lost_bytes, 'byte')} lost" if result.lost_bytes else ""
    would = "would write " if args.dry_run else ""
    return [f"{args.path}: {result.problem}", f"{would}{result.path}: {contents}{lost}"]
