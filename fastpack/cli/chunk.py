"""`fastpack chunk`: write one of n shuffled chunks of a dataset of many files."""

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

KINDS = {"create_shuffled_dataset_chunk": "pbin", "create_shuffled_jsonl_chunk": "jsonl"}


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `chunk`."""
    parser = new_command(
        commands,
        "chunk",
        run=run_chunk,
        aliases=tuple(KINDS),
        help="write one of n shuffled chunks of many files",
        about="Write one of n shuffled chunks of many token files or .jsonl files.",
        example="fastpack chunk a.pbin b.pbin -o chunk0.pbin --chunk-id 0 --num-chunks 8 --seed 42",
    )
    parser.add_argument("sources", metavar="SRC", nargs="*", help="the source files; every chunk gets a share of each")
    parser.add_argument(
        "--input-file-list-path",
        metavar="LIST",
        help="instead of SRC: a text file with one path per line, relative to ROOT; the suffix is replaced by .pbin or "
        ".jsonl",
    )
    parser.add_argument("--input-data-root-path", metavar="ROOT", help="the folder of the files in LIST")
    parser.add_argument(
        "-o",
        "--output",
        "--output-chunk-file-path",
        dest="output",
        metavar="DST",
        required=True,
        help="the file of the chunk",
    )
    parser.add_argument("--chunk-id", type=int, metavar="I", required=True, help="number of the chunk, from 0")
    parser.add_argument("--num-chunks", type=int, metavar="N", required=True, help="number of chunks in total")
    parser.add_argument(
        "--seed",
        "--global-seed",
        dest="global_seed",
        type=int,
        metavar="N",
        help="seed of the order, which matches Modalities' and differs between chunks (default: a random seed)",
    )
    add_compat_option(
        parser,
        "JSONL: a last line without newline is joined with the line after it in the new order, as by Modalities 0.5",
    )
    add_eos_option(parser)
    add_format_option(parser)
    add_output_options(parser, combines=True)
    add_distributed_options(parser, of="output", least="256 MiB")
    return [parser]


def run_chunk(args: argparse.Namespace) -> int:
    """Write a chunk; return the exit code."""
    by_list = args.input_file_list_path is not None
    if by_list == bool(args.sources) or by_list != (args.input_data_root_path is not None):
        raise UsageError("pass either SRC... or both --input-file-list-path and --input-data-root-path")
    if not 0 <= args.chunk_id < args.num_chunks:
        raise UsageError(f"--chunk-id {args.chunk_id} of --num-chunks {args.num_chunks}: there is no such chunk")
    check_distributed_options(args, "--dry-run")
    check_seed(args, "--seed", args.global_seed)
    from fastpack.tokens.edit.chunk import create_shuffled_dataset_chunk, create_shuffled_jsonl_chunk, read_file_list

    kind = KINDS.get(args.command) or kind_of(args.output if by_list else args.sources[0])
    sources = args.sources
    if by_list:
        sources = read_file_list(args.input_file_list_path, args.input_data_root_path, f".{kind}")
    options = {"chunk_id": args.chunk_id, "num_chunks": args.num_chunks, "global_seed": args.global_seed}
    options |= {"compat": args.compat} if kind == "jsonl" else {"mix_tokenizers": args.force}
    options |= eos_option(args, kind)
    if is_distributed(args):
        from fastpack.distributed.edit_tasks import plan_shuffling

        return run_distributed_edit(args, "chunk", plan_shuffling, f"chunk {kind}", sources, args.output, options)
    create = create_shuffled_jsonl_chunk if kind == "jsonl" else create_shuffled_dataset_chunk
    return run_edit(args, "chunk", create, sources, args.output, **options)
