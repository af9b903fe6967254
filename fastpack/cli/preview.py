"""`fastpack preview`: the first samples of a dataset."""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any, Literal

from fastpack.cli.common import Commands, emit, new_command

SHOWN = 3  # samples, where nobody can be asked for more
_MARGIN = 4


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """The command `preview`."""
    parser = new_command(
        commands,
        "preview",
        run="fastpack.cli.preview:run_preview",
        help="show the first samples of a prepared WebDataset: keys, parts, texts, small pictures",
        example="fastpack preview --split-part val -n 5 webdataset/",
    )
    parser.add_argument("path", metavar="PATH", help="the folder of the dataset, or a .jsonl file with a .jsonl.idx")
    parser.add_argument(
        "-n", "--samples", type=int, metavar="N", help=f"how many (default: asks, {SHOWN} where it is no terminal)"
    )
    parser.add_argument("--split-part", "--split_part", metavar="NAME", help="a part of split.yaml (default: all)")
    parser.add_argument("--rows", type=int, default=16, metavar="N", help="lines of a picture (default: 16)")
    return [parser]


def run_preview(args: argparse.Namespace) -> int:
    """Print the samples; on a terminal, and without a number of them, one after the other until told to stop."""
    from fastpack.views.webdataset.preview import preview

    samples = preview(args.path, args.split_part)
    if args.json:
        shown = [_as_json(sample) for sample in itertools.islice(samples, _count(args))]
        emit(args, {"path": args.path, "samples": shown}, "")
        return 0
    asks = args.samples is None and sys.stdin.isatty() and sys.stdout.isatty()
    for number, sample in enumerate(itertools.islice(samples, None if asks else _count(args))):
        if asks and number and not _wants_more():
            break
        if not args.quiet:
            print("\n".join(_lines(sample, args.rows)))
    return 0


def _count(args: argparse.Namespace) -> int:
    return SHOWN if args.samples is None else max(0, args.samples)


def _wants_more() -> bool:
    try:
        return input("Continue? [Y/n] ").strip().lower() in ("", "y", "yes")
    except EOFError:
        return False


def _as_json(sample: dict[str, Any]) -> dict[str, Any]:
    parts = [{name: value for name, value in part.items() if name != "data"} for part in sample["parts"]]
    return {**sample, "parts": parts}


def _lines(sample: dict[str, Any], rows: int) -> Iterator[str]:
    from fastpack.views.webdataset.preview import shown_text

    yield f"{sample['index']}: {shown_text(sample['key'])}"
    for part in sample["parts"]:
        facts = [f"{part['bytes']:,} bytes"]
        if "width" in part:
            facts.append(f"{part['width']} x {part['height']} {part['mode']} {part['format']}")
        if "error" in part:
            facts.append(f"not shown: {shown_text(part['error'])}")
        yield f"  {shown_text(part['name'])}: {', '.join(facts)}"
        yield from (f"{' ' * _MARGIN}{line}" for line in _content(part, rows))


def _content(part: dict[str, Any], rows: int) -> list[str]:
    from fastpack.views.webdataset.preview import draw, shown_text

    if part["kind"] == "text":
        text: str = part["text"]
        return text.split("\n")
    if "width" not in part or rows < 1:
        return []
    columns = max(8, shutil.get_terminal_size().columns - _MARGIN - 1)
    try:
        return draw(part["data"], columns, rows, _colours())
    except Exception as error:  # whatever a broken image makes of its decoder
        return [f"not shown: {shown_text(f'{type(error).__name__}: {error}')}"]


def _colours() -> Literal["blocks", "letters"]:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return "letters" if plain or not (sys.stdout.encoding or "").lower().startswith("utf") else "blocks"
