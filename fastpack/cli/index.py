"""`fastpack index`: the byte-offset index of a JSONL file."""

from __future__ import annotations

import argparse

from fastpack.cli.common import Commands, new_command


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    parser = new_command(
        commands,
        "index",
        run="fastpack.cli.index:run_index",
        aliases=("create_raw_index", "create_memmap_index"),
        help="write the byte-offset index of a JSONL file",
        example="fastpack index corpus.jsonl",
    )
    return [parser]
