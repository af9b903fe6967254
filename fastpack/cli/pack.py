"""`fastpack pack`: tokenise and pack."""

from __future__ import annotations

import argparse

from fastpack.cli.common import Commands, new_command


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    parser = new_command(
        commands,
        "pack",
        run="fastpack.cli.pack:run_pack",
        aliases=("pack_encoded_data", "create_packed_data"),
        help="tokenise a JSONL file and pack it",
        example="fastpack pack corpus.jsonl",
    )
    return [parser]
