"""`fastpack info`: the byte-offset index of a JSONL file."""

from __future__ import annotations

import argparse

from fastpack.cli.common import Commands, new_command


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    parser = new_command(
        commands,
        "info",
        run="fastpack.cli.info:run_info",
        help="say",
        example="fastpack info corpus.jsonl",
    )
    return [parser]
