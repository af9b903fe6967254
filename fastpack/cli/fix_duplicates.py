"""`fastpack fix-duplicates`: copy shards so that every key is unique."""

from __future__ import annotations

import argparse
import os

from fastpack.cli.options import Commands, add_dry_run_option, new_command, output_group, write_checksums
from fastpack.cli.output import emit
from fastpack.cli.progress import progress
from fastpack.errors import counted


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `fix-duplicates`."""
    parser = new_command(
        commands,
        "fix-duplicates",
        run=run_fix_duplicates,
        aliases=("fix_duplicates",),
        help="make file names of tar shards unique",
        about="Copy the tar shards of a WebDataset with each file in a folder called as its shard.",
        example="fastpack fix-duplicates DIR NEWDIR && fastpack prepare NEWDIR",
    )
    parser.add_argument("source", metavar="DIR", help="a folder with .tar shards; nothing in it is changed")
    parser.add_argument("target", metavar="NEWDIR", help="where the copies go, under the same names")
    parser.add_argument("--exclude", metavar="RE", help="exclude shards in whose path this regular expression is found")
    output_group(parser).add_argument("--force-overwrite", action="store_true", help="replace existing copies")
    add_dry_run_option(parser)
    return [parser]


def run_fix_duplicates(args: argparse.Namespace) -> int:
    """Copy; return the exit code."""
    from fastpack.webdataset.preparation.duplicates import fix_duplicates

    result = fix_duplicates(
        args.source,
        args.target,
        exclude=args.exclude,
        force_overwrite=args.force_overwrite,
        dry_run=args.dry_run,
        progress=progress(args, "copy"),
    )
    if not args.dry_run:
        write_checksums(args, *(os.path.join(args.target, shard) for shard in result.shards))
    fields = {"source": args.source, "target": args.target, "samples": result.samples, "shards": result.shards}
    text = f"{args.target}: {counted(result.samples, 'sample')} in {counted(len(result.shards), 'shard')}"
    if args.dry_run:
        text = f"would write {text}, {counted(result.bytes, 'byte')}"
    emit(args, fields | {"bytes": result.bytes, "dry_run": args.dry_run}, [text])
    return 0
