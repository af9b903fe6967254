"""`fastpack convert`: convert token files to another format."""

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
from fastpack.cli.options import FORMATS, Commands, add_if_exists_option, new_command, output_group
from fastpack.cli.output import emit, warnings_as_messages
from fastpack.cli.progress import progress
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.tokens.convert import ConvertResult


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `convert`."""
    parser = new_command(
        commands,
        "convert",
        run=run_convert,
        help="convert token files between formats",
        about="Convert token files between the formats of fastpack, Megatron, datatrove, OLMo, llm.c, litData and MDS.",
        example="fastpack convert corpus.pbin -o corpus --to megatron",
    )
    parser.add_argument(
        "sources",
        metavar="SRC",
        nargs="+",
        help="token files of any format, folders of shards or quoted patterns, in natural order of names; they are "
        "concatenated",
    )
    output_group(parser).add_argument(
        "-o", "--output", metavar="DST", required=True, help="the output; formats of several files add their suffixes"
    )
    output_group(parser).add_argument(
        "--shard-tokens",
        metavar="N",
        help="write numbered shards DST_00000... of at most N tokens, such as 1B or 500M, of whole documents where the "
        "format has documents; of litdata and mds, the chunks",
    )
    parser.add_argument(
        "--from",
        dest="source_format",
        metavar="FORMAT",
        choices=(*FORMATS, "manifest"),
        help="format of the sources (default: detected; nanogpt is not)",
    )
    parser.add_argument(
        "--to",
        dest="format",
        metavar="FORMAT",
        choices=FORMATS,
        help=f"format of the output: {', '.join(FORMATS)} (default: by its suffix)",
    )
    parser.add_argument(
        "--dtype",
        help="dtype of the tokens in sources that do not state it, such as uint16; if all state it, of the output",
    )
    parser.add_argument(
        "--eos-token-id",
        type=int,
        metavar="ID",
        help="token that ends documents in sources without document boundaries",
    )
    parser.add_argument(
        "--digest",
        action="store_true",
        help="read the output again and print its digest, which is equal for the same documents in any format (extra: "
        "checksum)",
    )
    add_if_exists_option(parser, combines=True)
    add_distributed_options(parser, of="output")
    return [parser]


def run_convert(args: argparse.Namespace) -> int:
    """Convert and print the result; return the exit code."""
    check_distributed_options(args)
    options = {
        "format": args.format,
        "source_format": args.source_format,
        "dtype": args.dtype,
        "eos_token_id": args.eos_token_id,
        "shard_tokens": args.shard_tokens,
        "if_exists": args.if_exists,
        "mix_tokenizers": args.force,
    }
    with warnings_as_messages(args):
        if is_distributed(args):
            result = _run_tasks(args, options)
        else:
            from fastpack.tokens.convert import convert

            result = convert(args.sources, args.output, **options, progress=progress(args, "convert", at_once=True))
    if result is not None:
        _report(args, result)
    return 0


def _run_tasks(args: argparse.Namespace, options: dict[str, Any]) -> ConvertResult | None:
    """Run the tasks of a rank and return None, or the last step and return its result."""
    from fastpack.distributed.convert_tasks import collect_conversion, plan_conversion

    def collect() -> ConvertResult:
        return collect_conversion(plan, if_exists=args.if_exists, progress=progress(args, "join"))

    plan = plan_conversion(args.sources, args.output, **options, **task_options(args))
    return run_distributed(args, "convert", plan, collect)


def _report(args: argparse.Namespace, result: ConvertResult) -> None:
    fields = {name: getattr(result, name) for name in result.__slots__ if name != "eos_token_id"}
    fields["digest"] = result.digest if args.digest and result.written else None
    if not result.written:
        emit(args, fields, [f"{result.output}: exists, kept"])
        return
    documents = "" if result.n_documents is None else f"{counted(result.n_documents, 'document')}, "
    shards = f"{counted(len(result.outputs), 'shard')}, " if result.outputs != [result.output] else ""
    lines = [
        f"{result.output}: {result.format}: {shards}{documents}{counted(result.n_tokens, 'token')} of {result.dtype}"
    ]
    if result.n_documents is not None and result.n_documents > 1 and not _stores_documents(result.format):
        lines.append(f"{result.format} stores no document boundaries: only EOS tokens mark them")
    if result.n_empty_dropped:
        lines.append(f"left out: {counted(result.n_empty_dropped, 'document')} without tokens")
    if result.n_tokens_dropped:
        lines.append(f"left out: {counted(result.n_tokens_dropped, 'token')} that are in no document")
    if fields["digest"]:
        lines.append(f"digest: {fields['digest']}")
    emit(args, fields, lines)


def _stores_documents(name: str) -> bool:
    from fastpack.tokens.formats import format_named

    return format_named(name).stores_documents
