"""`fastpack quickstart`: the byte-offset index of a JSONL file."""

from __future__ import annotations

import argparse

from fastpack.cli.common import Commands, new_command


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    parser = new_command(
        commands,
        "quickstart",
        run="fastpack.cli.quickstart:run_quickstart",
        help="say",
        example="fastpack quickstart corpus.jsonl",
    )
    return [parser]
