"""`build_parser()`: every command and option, from the standard library only (the man page is made from it too)."""

from __future__ import annotations

import argparse

from fastpack.cli import (
    bench,
    chat,
    chunk,
    filter,
    fix_duplicates,
    index,
    info,
    merge,
    mount,
    pack,
    prepare,
    preview,
    quickstart,
    shuffle,
    validate,
    verify,
)
from fastpack.cli.common import add_common_options
from fastpack.cli.version import VersionAction

DESCRIPTION = (
    "Turns raw text and media into LLM training data and feeds it to the training loop at the speed of memory. "
    "Every command also answers to the name it has in Modalities, and behind the word `data`."
)
EPILOG = "example: fastpack quickstart        (real text on this machine -> index -> pack -> training batches)"


def build_parser() -> argparse.ArgumentParser:
    """The whole command line as one argparse parser."""
    parser = argparse.ArgumentParser(
        prog="fastpack", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action=VersionAction, help="print versions and processor features, and exit")
    parser.set_defaults(run=None, debug=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for group in (
        quickstart,
        index,
        pack,
        merge,
        shuffle,
        chunk,
        filter,
        chat,
        prepare,
        fix_duplicates,
        info,
        validate,
        verify,
        preview,
        mount,
        bench,
    ):
        for command in group.add_commands(commands):
            add_common_options(command)
    return parser
