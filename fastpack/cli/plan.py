"""`fastpack plan`: plan which documents make up each row of training tokens."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fastpack.cli.options import FORMATS, Commands, add_if_exists_option, at_least, new_command, output_group
from fastpack.cli.output import emit, fields_of
from fastpack.cli.progress import progress
from fastpack.errors import counted, vocabulary

if TYPE_CHECKING:
    from fastpack.plans.plan_result import PlanResult

_NAMES = ("algorithm", "balance", "cost", "data_parallel", "dtype", "eos_token_id", "long", "max_documents")
FLAGS = {
    **{name: f"--{name.replace('_', '-')}" for name in _NAMES},
    "micro_batches": "--micro-batches",
    "num_threads": "--threads",
    "pad_to_multiple": "--pad-to-multiple",
    "repeats": "--repeat",
    "seed": "--seed",
    "seq_length": "--seq-len",
    "shard_documents": "--shard-documents",
}


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `plan`."""
    parser = new_command(
        commands,
        "plan",
        run=run_plan,
        help="plan which documents make up each training row",
        about="Plan which documents make up each row of tokens: best fit, first fit or concatenation.",
        example="fastpack plan corpus.pbin --seq-len 4096 -o corpus.plan --seed 1",
    )
    parser.add_argument(
        "sources", metavar="SRC", nargs="+", help="token files of any format, patterns, or folders of token files"
    )
    output_group(parser).add_argument("-o", "--output", metavar="DST", required=True, help="the plan")
    parser.add_argument("--seq-len", type=at_least(1), required=True, metavar="N", help="tokens of a row")
    parser.add_argument(
        "--algorithm",
        choices=("best_fit", "first_fit", "none"),
        default="best_fit",
        help="best fit decreasing (as bfd of TRL and OLMo-core), first fit in the order of documents, or none: "
        "concatenate and cut (default: best_fit)",
    )
    parser.add_argument(
        "--long",
        choices=("split", "truncate", "drop"),
        default="split",
        help="documents longer than a row are split, keep their first N tokens, or are left out (default: split)",
    )
    parser.add_argument("--max-documents", type=at_least(1), metavar="N", help="documents in a row at most")
    parser.add_argument(
        "--pad-to-multiple",
        type=at_least(1),
        default=1,
        metavar="N",
        help="pad each document to a multiple of N tokens, for FP8 and context parallelism (default: 1)",
    )
    parser.add_argument("--seed", type=at_least(0), help="seed of the order of rows (default: the order of packing)")
    parser.add_argument(
        "--repeat",
        type=float,
        nargs="+",
        metavar="N",
        help="passes over each source, one number for each; 0.5 is a random half of the documents (default: 1)",
    )
    _add_balance_options(parser)
    _add_source_options(parser)
    _add_shard_options(parser)
    add_if_exists_option(parser)
    return [parser]


def _add_balance_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("balanced ranks")
    group.add_argument(
        "--balance", choices=("attention",), help="order the rows so that the ranks of a step have nearly the same cost"
    )
    group.add_argument("--data-parallel", type=at_least(1), metavar="N", help="number of ranks")
    group.add_argument(
        "--micro-batches", type=at_least(1), default=1, metavar="N", help="rows of a rank in a step (default: 1)"
    )
    group.add_argument(
        "--cost",
        type=float,
        nargs=2,
        default=(0.0, 1.0),
        metavar="N",
        help="cost of a document: this number per token, and this number per squared token (default: 0 1)",
    )


def _add_shard_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shard-documents",
        type=at_least(1),
        default=1 << 24,
        metavar="N",
        help="documents that are packed together, in 30 bytes each; a shard adds a few rows that are not full "
        "(default: 16,777,216)",
    )
    parser.add_argument(
        "--threads",
        type=at_least(1),
        default=1,
        metavar="N",
        help="shards that are packed at the same time (default: 1)",
    )


def _add_source_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sources")
    group.add_argument(
        "--from",
        dest="source_format",
        metavar="FORMAT",
        choices=(*FORMATS, "manifest"),
        help="format of the sources (default: detected; nanogpt is not)",
    )
    group.add_argument("--dtype", help="dtype of the tokens in sources that do not state it, such as uint16")
    group.add_argument(
        "--eos-token-id",
        type=int,
        metavar="ID",
        help="token that ends documents in sources without document boundaries",
    )


def run_plan(args: argparse.Namespace) -> int:
    """Make a plan and print its numbers; return the exit code."""
    from fastpack.plans.make_plan import plan

    with vocabulary(FLAGS):
        result = plan(
            args.sources,
            args.output,
            seq_length=args.seq_len,
            algorithm=args.algorithm,
            long=args.long,
            seed=args.seed,
            max_documents=args.max_documents,
            pad_to_multiple=args.pad_to_multiple,
            balance=args.balance,
            data_parallel=args.data_parallel,
            micro_batches=args.micro_batches,
            cost=tuple(args.cost),
            repeats=args.repeat,
            format=args.source_format,
            dtype=args.dtype,
            eos_token_id=args.eos_token_id,
            shard_documents=args.shard_documents,
            num_threads=args.threads,
            if_exists=args.if_exists,
            progress=progress(args, "lengths", unit="documents"),
        )
    shares = {"padding_share": result.padding_share, "time_saved": result.time_saved}
    emit(args, {**fields_of(result), **shares}, _lines(result))
    return 0


def _lines(result: PlanResult) -> list[str]:
    if not result.written:
        return [f"{result.output}: exists, kept"]
    left_out = [
        f"left out: {counted(number, 'token')} {where}"
        for number, where in (
            (result.n_truncated, "at the end of long documents"),
            (result.n_dropped, "in long documents"),
        )
        if number
    ]
    return [
        f"{result.output}: {counted(result.n_rows, 'row')} of {result.seq_length:,} tokens: "
        f"{counted(result.n_documents, 'document')}, {counted(result.n_tokens, 'token')}",
        f"padding: {counted(result.n_padding, 'token')} ({result.padding_share:.3%}); "
        f"documents are cut at {counted(result.n_cuts, 'place')}",
        *left_out,
        *_balance_lines(result),
    ]


def _balance_lines(result: PlanResult) -> list[str]:
    if result.straggling is None or result.straggling_before is None or result.time_saved is None:
        return []
    lines = [
        f"cost of the slowest rank: {result.straggling:.3f} times the mean, {result.straggling_before:.3f} in random "
        f"order: the run takes {result.time_saved:.1%} less time"
    ]
    if result.uneven_steps:
        lines.append(f"in {counted(result.uneven_steps, 'step')} it is above 1.02 times the mean")
    return lines
