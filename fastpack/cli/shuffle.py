"""`fastpack shuffle`: the documents of a packed file, or the lines of a JSONL file, in random order."""

from __future__ import annotations

import argparse

from fastpack.cli.distributed_options import add_distributed_options, check_distributed_options, is_distributed
from fastpack.cli.edits import (
    add_compat_option,
    add_eos_option,
    add_format_option,
    check_seed,
    eos_option,
    kind_of,
    run_distributed_edit,
    run_edit,
)
from fastpack.cli.failures import UsageError
from fastpack.cli.options import Commands, add_output_options, new_command

KINDS = {"shuffle_tokenized_data": "pbin", "shuffle_jsonl_data": "jsonl"}


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `shuffle`."""
    parser = new_command(
        commands,
        "shuffle",
        run=run_shuffle,
        aliases=tuple(KINDS),
        help="shuffle the documents of a file",
        about="Shuffle the documents of a token file, or the lines of a .jsonl.",
        example="fastpack shuffle corpus.pbin shuffled.pbin --seed 42",
    )
    parser.add_argument("source", metavar="SRC", nargs="?", help="a token file or a .jsonl")
    parser.add_argument("target", metavar="DST", nargs="?", help="the shuffled file")
    parser.add_argument("--input-data-path", metavar="SRC", help="the same as SRC")
    parser.add_argument("--output-data-path", metavar="DST", help="the same as DST")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="the same seed gives Modalities' order (default: another every time)"
    )
    parser.add_argument("--batch-size", type=int, default=100, metavar="N", help="taken, without effect on anything")
    add_compat_option(
        parser, "JSONL: a last line without newline is joined to the line that follows it now, as by Modalities 0.5"
    )
    add_eos_option(parser)
    add_format_option(parser)
    add_output_options(parser)
    add_distributed_options(parser, of="output", least="256 MiB")
    return [parser]


def run_shuffle(args: argparse.Namespace) -> int:
    """Shuffle; return the exit code."""
    given = [path for path in (args.source, args.target) if path is not None]
    source = args.input_data_path or (given.pop(0) if given else None)
    target = args.output_data_path or (given.pop(0) if given else None)
    if source is None or target is None or given:
        raise UsageError("name one source and one target: SRC DST, or --input-data-path and --output-data-path")
    if args.batch_size < 1:
        raise UsageError(f"--batch-size must be at least 1, not {args.batch_size}")
    check_distributed_options(args, "--dry-run")
    check_seed(args, "--seed", args.seed)
    kind = KINDS.get(args.command) or kind_of(source)
    options = {"seed": args.seed, **({"compat": args.compat} if kind == "jsonl" else {})}
    options |= eos_option(args, kind)
    if is_distributed(args):
        from fastpack.distributed.edit_tasks import plan_shuffling

        return run_distributed_edit(args, "shuffle", plan_shuffling, f"shuffle {kind}", [source], target, options)
    from fastpack.tokens.edit.shuffle import shuffle_jsonl_data, shuffle_tokenized_data

    if kind == "jsonl":
        return run_edit(args, "shuffle", shuffle_jsonl_data, source, target, **options)
    return run_edit(args, "shuffle", shuffle_tokenized_data, source, target, batch_size=args.batch_size, **options)
