"""`fastpack info`: what a file or folder holds."""

from __future__ import annotations

import argparse
from typing import Any

from fastpack.cli.common import Commands, emit, new_command


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """The command `info`."""
    parser = new_command(
        commands,
        "info",
        run="fastpack.cli.info:run_info",
        help="say what a JSONL file, an index, a packed file, a folder of shards or a prepared WebDataset holds",
        example="fastpack info corpus.pbin",
    )
    parser.add_argument("path", metavar="PATH", help="a .jsonl, .idx, .pbin, .npy or .bin file, or a folder")
    return [parser]


def run_info(args: argparse.Namespace) -> int:
    """Print what `inspect` found, a line a fact."""
    from fastpack.views.inspect import inspect

    found = inspect(args.path)
    emit(args, found, "\n".join(f"{name.replace('_', ' '):<20} {_shown(value)}" for name, value in _facts(found)))
    return 0


def _facts(found: dict[str, Any]) -> list[tuple[str, Any]]:
    facts = [(name, value) for name, value in found.items() if name != "warnings"]
    return facts + [("warning", text) for text in found["warnings"]]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {_within(number)}" for name, number in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _within(value: Any) -> str:
    return f"({_shown(value)})" if isinstance(value, dict) else _shown(value)
