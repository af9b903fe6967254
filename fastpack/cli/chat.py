"""`fastpack chat`: conversations through a chat template, split, indexed and packed."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from fastpack.cli.failures import UsageError
from fastpack.cli.options import (
    Commands,
    add_engine_option,
    add_on_error_option,
    add_output_options,
    new_command,
    write_checksums,
)
from fastpack.cli.output import emit, say_skipped, warnings_as_messages
from fastpack.cli.progress import progress
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.packing.chat.instruction_tuning import PreparedChat, PreparedPartition

_FILES = ("jsonl_path", "index_path", "pbin_path", "pbin_config_path")


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
    add_engine_option(parser)
    add_on_error_option(parser, "a chat that cannot be packed, such as an empty one,")
    add_output_options(parser, if_exists="overwrite")
    return [parser]


def run_chat(args: argparse.Namespace) -> int:
    """Run `fastpack chat`; return the exit code."""
    from fastpack.packing.chat.instruction_tuning import prepare_instruction_tuning_data

    if (args.config is None) == (args.config_file_path is None):
        raise UsageError("name one configuration: fastpack chat CONFIG.yaml")
    started = time.perf_counter()
    with warnings_as_messages(args):
        result = prepare_instruction_tuning_data(
            args.config or args.config_file_path,
            if_exists=args.if_exists,
            on_error=args.on_error,
            engine=args.engine,
            dry_run=args.dry_run,
            progress=progress(args, "chat"),
        )
    if not (result.dry_run or result.kept_existing):
        files = (getattr(partition, name) for partition in result.partitions for name in _FILES)
        write_checksums(args, *filter(None, files), result.config_path)
    _report(args, result, time.perf_counter() - started)
    return 0


def _report(args: argparse.Namespace, result: PreparedChat, seconds: float) -> None:
    fields = {**asdict(result), "seconds": round(seconds, 3)}
    if result.kept_existing:
        emit(args, fields, [f"{result.folder}: exists, kept"])
        return
    say_skipped(args, [(f"{one.jsonl_path}: ", entry) for one in result.partitions for entry in one.skipped])
    lines = [_line(partition, result.dry_run) for partition in result.partitions]
    done = "nothing written (dry run)" if result.dry_run else f"in {seconds:.1f} s"
    emit(args, fields, [*lines, f"{result.folder}: {done}"])


def _line(partition: PreparedPartition, dry_run: bool) -> str:
    if not partition.rows:
        return f"{partition.name}: no rows; {partition.jsonl_path} is empty"
    if dry_run:
        files = ", ".join(str(getattr(partition, name)) for name in _FILES)
        return f"{partition.name}: {counted(partition.rows, 'row')} -> {files}"
    skipped = f", {len(partition.skipped):,} skipped" if partition.skipped else ""
    amount = f"{counted(partition.rows, 'row')}, {counted(partition.tokens, 'token')}"
    return f"{partition.name}: {amount}{skipped} -> {partition.pbin_path}"
