"""`fastpack merge`: concatenate packed files."""

from __future__ import annotations

import argparse

from fastpack.cli.distributed_options import add_distributed_options, check_distributed_options, is_distributed
from fastpack.cli.edits import (
    add_compat_option,
    add_eos_option,
    add_format_option,
    eos_option,
    run_distributed_edit,
    run_edit,
)
from fastpack.cli.options import Commands, add_output_options, new_command


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `merge`."""
    parser = new_command(
        commands,
        "merge",
        run=run_merge,
        aliases=("merge_packed_data",),
        help="concatenate token files",
        about="Merge packed files of any generations into one.",
        example="fastpack merge part0.pbin more_parts/ all.pbin",
    )
    parser.add_argument(
        "sources",
        metavar="SRC",
        nargs="+",
        help="a token file, or a directory: its files of the target's format, by path",
    )
    parser.add_argument("target", metavar="TARGET", help="the merged file")
    parser.add_argument(
        "--token-size",
        type=int,
        choices=(1, 2, 4),
        help="bytes a token of the result takes: sources with narrower tokens are widened (default: as the sources, "
        "which must then agree)",
    )
    add_compat_option(parser, "write the index as Modalities 0.5 does, 12 bytes too low for each file before")
    add_eos_option(parser)
    add_format_option(parser)
    add_output_options(parser, combines=True)
    add_distributed_options(parser, of="output")
    return [parser]


def run_merge(args: argparse.Namespace) -> int:
    """Merge; return the exit code."""
    check_distributed_options(args, "--dry-run")
    options = {"compat": args.compat, "token_size_in_bytes": args.token_size, "mix_tokenizers": args.force}
    options |= eos_option(args)
    if is_distributed(args):
        from fastpack.distributed.edit_tasks import plan_merge

        return run_distributed_edit(args, "merge", plan_merge, args.sources, args.target, **options)
    from fastpack.tokens.edit.merge import merge_packed_data

    return run_edit(args, "merge", merge_packed_data, args.sources, args.target, **options)
