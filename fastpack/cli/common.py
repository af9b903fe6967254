"""What the commands share: common options, results on stdout, progress on stderr."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

Commands = Any  # argparse's subparsers action, whose class is private


def new_command(
    commands: Commands, name: str, *, run: str, help: str, example: str, aliases: tuple[str, ...] = ()
) -> argparse.ArgumentParser:
    """A sub-command that calls `run` ("module:function"); every command has a help line and an example."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        aliases=aliases,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """The options every command takes."""
    group = parser.add_argument_group("common options")
    group.add_argument("--json", action="store_true", help="print the result as one JSON object")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress and no messages")
    group.add_argument("--no-progress", action="store_true", help="no progress bar")
    group.add_argument("--kernels", choices=("numba", "cython", "numpy"), help="backend of the kernels")
    group.add_argument("--debug", action="store_true", help="show the traceback of a failure")


def add_policy_option(parser: argparse.ArgumentParser, default: str = "error") -> None:
    """`--file-existence-policy`, in both spellings, and `--force`."""
    parser.add_argument(
        "--file-existence-policy",
        "--file_existence_policy",
        choices=("skip", "error", "override"),
        default=default,
        help=f"what to do when the output exists (default: {default})",
    )
    parser.add_argument(
        "--force", dest="file_existence_policy", action="store_const", const="override", help="replace the output"
    )


def add_dry_run_option(parser: argparse.ArgumentParser) -> None:
    """`--dry-run`: say what would be written, and write nothing."""
    parser.add_argument("--dry-run", "--dry_run", action="store_true", help="say what would be written, write nothing")


def add_checksum_option(parser: argparse.ArgumentParser) -> None:
    """`--write-checksums`: see `write_checksums`."""
    parser.add_argument(
        "--write-checksums",
        "--write_checksums",
        action="store_true",
        help="write checksums beside what is written (FILE.fpsum), which `fastpack verify` compares; extra checksum",
    )


def check_checksum_option(args: argparse.Namespace) -> None:
    """MissingExtra at the start, and not when all is done, where checksums are wanted and cannot be written."""
    if args.write_checksums:
        from fastpack.formats.checksums import load_hash

        load_hash()


def write_checksums(args: argparse.Namespace, *paths: str | os.PathLike[str]) -> None:
    """Write the checksums of files that the command has written, or found as they are to be, if they are wanted."""
    if args.write_checksums:
        from fastpack.formats.checksums import are_current, write_checksums

        for path in paths:
            if not are_current(path):
                write_checksums(path, progress=progress(args, "checksums"))


def emit(args: argparse.Namespace, result: Mapping[str, Any], text: str) -> None:
    """Print a command's result on stdout: `result` with --json, else `text` (nothing with --quiet)."""
    if args.json:
        print(json.dumps(result, ensure_ascii=False))
    elif not args.quiet:
        print(text)


def say(args: argparse.Namespace, text: str) -> None:
    """A message on stderr, unless --quiet."""
    if not args.quiet:
        print(text, file=sys.stderr)


def progress(args: argparse.Namespace, label: str) -> Callable[[int, int], None] | None:
    """A callback (done, total) in bytes: a bar on a terminal, else a line per 10 s; None where none is wanted."""
    if args.quiet or args.no_progress:
        return None
    return _bar(label) if sys.stderr.isatty() else _log_lines(label)


def _bar(label: str) -> Callable[[int, int], None]:
    from tqdm import tqdm

    bar = tqdm(desc=label, unit="B", unit_scale=True, unit_divisor=1024, leave=False)

    def update(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)
        if done >= total:
            bar.close()

    return update


def _log_lines(label: str) -> Callable[[int, int], None]:
    started = last = time.monotonic()

    def update(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 10:
            last = now
            rate = done / (now - started)
            left = (total - done) / rate if rate else 0.0
            print(f"{label}: {done / max(total, 1):.0%}, {rate / 2**20:.1f} MiB/s, {left:.0f} s left", file=sys.stderr)

    return update
