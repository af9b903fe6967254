"""`fastpack chat`: conversations through a chat template, split, indexed and packed."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from fastpack.cli.options import (
    Commands,
    add_checksum_option,
    add_policy_option,
    check_checksum_option,
    new_command,
    write_checksums,
)
from fastpack.cli.output import emit, say
from fastpack.cli.pack import add_on_error_option
from fastpack.cli.progress import progress
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.packing.chat.instruction_tuning import PreparedChat, PreparedPartition

REASONS_SHOWN = 5
ENGINES = ("auto", "tokenizers", "gigatoken", "tiktoken", "sentencepiece")


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `chat`."""
    parser = new_command(
        commands,
        "chat",
        run=run_chat,
        aliases=("prepare_instruction_tuning_data",),
        help="turn conversations into text by a chat template; split, index and pack them (needs the extra chat)",
        example="fastpack chat instruction_tuning.yaml --dry-run",
    )
    parser.add_argument("config", nargs="?", metavar="CONFIG.yaml", help="a Modalities configuration")
    parser.add_argument("--config-file-path", metavar="CONFIG.yaml", help="alias of CONFIG.yaml, as in Modalities")
    parser.add_argument("--dry-run", action="store_true", help="do all steps, but write no files")
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="tokenizer library (default: auto, the fastest exact one)",
    )
    add_on_error_option(parser, "a chat that cannot be packed, such as an empty one,")
    add_policy_option(parser, default="override")
    add_checksum_option(parser)
    return [parser]


def run_chat(args: argparse.Namespace) -> int:
    """Run `fastpack chat`; return the exit code."""
    import warnings

    from fastpack.packing.chat.instruction_tuning import prepare_instruction_tuning_data

    if (args.config is None) == (args.config_file_path is None):
        print("fastpack: error: name one configuration: fastpack chat CONFIG.yaml", file=sys.stderr)
        return 2
    check_checksum_option(args)
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        result = prepare_instruction_tuning_data(
            args.config or args.config_file_path,
            if_exists=args.file_existence_policy,
            on_error=args.on_error,
            engine=args.engine,
            dry_run=args.dry_run,
            progress=progress(args, "chat"),
        )
    for text in dict.fromkeys(str(warning.message) for warning in warned):  # each partition repeats the warnings
        say(args, text)
    if not (result.dry_run or result.kept_existing):
        write_checksums(args, *_files(result))
    _report(args, result, time.perf_counter() - started)
    return 0


def _files(result: PreparedChat) -> list[str]:
    """Return the paths of the written files."""
    names = ("jsonl_path", "index_path", "pbin_path", "pbin_config_path")
    paths = [getattr(partition, name) for partition in result.partitions for name in names]
    return [path for path in (*paths, result.config_path) if path is not None]


def _report(args: argparse.Namespace, result: PreparedChat, seconds: float) -> None:
    fields: dict[str, Any] = {
        "folder": result.folder,
        "config_path": result.config_path,
        "partitions": [vars(partition) for partition in result.partitions],
        "seconds": round(seconds, 3),
        "dry_run": result.dry_run,
        "kept_existing": result.kept_existing,
    }
    if result.kept_existing:
        emit(args, fields, [f"{result.folder}: exists, kept"])
        return
    skipped = [(partition.jsonl_path, entry) for partition in result.partitions for entry in partition.skipped]
    for path, entry in skipped[:REASONS_SHOWN]:
        say(args, f"skipped {path} line {entry['line']}: {entry['reason']}")
    if len(skipped) > REASONS_SHOWN:
        say(args, f"skipped {len(skipped) - REASONS_SHOWN} more (--json lists all)")
    lines = [_line(partition, result.dry_run) for partition in result.partitions]
    done = "nothing written (dry run)" if result.dry_run else f"in {seconds:.1f} s"
    emit(args, fields, [*lines, f"{result.folder}: {done}"])


def _line(partition: PreparedPartition, dry_run: bool) -> str:
    if not partition.rows:
        return f"{partition.name}: no rows; {partition.jsonl_path} is empty"
    if dry_run:
        files = (partition.jsonl_path, partition.index_path, partition.pbin_path, partition.pbin_config_path)
        return f"{partition.name}: {counted(partition.rows, 'row')} -> {', '.join(map(str, files))}"
    skipped = f", {len(partition.skipped):,} skipped" if partition.skipped else ""
    amount = f"{counted(partition.rows, 'row')}, {counted(partition.tokens, 'token')}"
    return f"{partition.name}: {amount}{skipped} -> {partition.pbin_path}"
