"""`fastpack compare`: two versions of a corpus."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from fastpack.cli.options import (
    Commands,
    add_dtype_option,
    add_eos_option,
    add_if_exists_option,
    add_text_options,
    at_least,
    new_command,
)
from fastpack.cli.output import emit
from fastpack.cli.progress import progress
from fastpack.errors import counted

DIFFERENT = 3  # exit code with --exit-code

_EXAMPLES = {"changed": "~", "removed": "-", "added": "+"}


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `compare`."""
    parser = new_command(
        commands,
        "compare",
        run=run_compare,
        help="compare two versions of a corpus",
        about="Compare two versions of a corpus: documents added, removed and changed, lengths, tokens.",
        example="fastpack compare v1.jsonl v2.jsonl --id-field id",
    )
    what = "a token file, JSON Lines, Parquet, Arrow, CSV, TSV or text file, a folder or a pattern of such files"
    parser.add_argument("first", metavar="PATH", help=f"the first version: {what}")
    parser.add_argument("second", metavar="PATH", help="the second version, of the same kind, in any format")
    parser.add_argument(
        "--id-field",
        metavar="NAME",
        help="key or column with the id of a text: documents with the same id belong together (default: documents are "
        "matched by content)",
    )
    add_text_options(parser)
    add_eos_option(parser)
    add_dtype_option(parser)
    parser.add_argument(
        "--tokenizer",
        metavar="T",
        help="the tokenizer that decodes examples of tokens, as for `pack`; `none`: ids (default: the recorded one)",
    )
    parser.add_argument(
        "--examples", type=at_least(0), default=3, metavar="N", help="examples of each kind of change (default: 3)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="also write an HTML page")
    parser.add_argument("--exit-code", action="store_true", help=f"exit with {DIFFERENT} if the versions differ")
    add_if_exists_option(parser)
    return [parser]


def run_compare(args: argparse.Namespace) -> int:
    """Print what differs."""
    from fastpack.inspection.compare import compare

    result = compare(
        args.first,
        args.second,
        id_field=args.id_field,
        text_field=args.text_field,
        split_on=args.split_on,
        eos_token_id=args.eos_token_id,
        dtype=args.dtype,
        tokenizer=args.tokenizer,
        examples=args.examples,
        output=args.output,
        if_exists=args.if_exists,
        progress=progress(args, "compare", at_once=True),
    )
    emit(args, result.numbers, _lines(result.numbers))
    return DIFFERENT if args.exit_code and not result.same else 0


def _lines(found: dict[str, Any]) -> Iterator[str]:
    for warning in found["warnings"]:
        yield f"warning: {warning}"
    rows = [("", "first", "second"), ("documents", *_pair(found, "documents")), (found["unit"], *_pair(found, "total"))]
    rows += [("duplicates", *_pair(found, "duplicates"))]
    if found["first"]["lengths"] and found["second"]["lengths"]:
        rows += [(f"{name} length", *_pair(found, "lengths", name)) for name in ("median", "mean", "p99", "max")]
    for label, *cells in rows:
        yield f"{label:<15}{cells[0]:>20}{cells[1]:>20}"
    yield ""
    for name in ("unchanged", "changed", "added", "removed"):
        yield f"{name:<15}{found[name]:>20,}"
    if not found["same_order"]:
        yield "the documents of both versions are in another order"
    for one in found["examples"]:
        yield from _example(one)
    for row in found["ids"][:3] if not found["same"] else ():
        text = "" if row["text"] is None else f" {row['text']!r}"
        yield f"token {row['id']}{text}: {row['first_share']:.3%} of the tokens -> {row['second_share']:.3%}"
    if found["same"]:
        yield f"the same {counted(found['unchanged'], 'document')}"
    if found["page"] is not None:
        yield found["page"]


def _pair(found: dict[str, Any], *names: str) -> tuple[str, str]:
    values = []
    for version in ("first", "second"):
        value = found[version]
        for name in names:
            value = value[name]
        values.append(f"{value:,}")
    return values[0], values[1]


def _example(one: dict[str, Any]) -> Iterator[str]:
    numbers = [f"document {number:,}" for number in (one["first"], one["second"]) if number is not None]
    yield f"{_EXAMPLES[one['change']]} {one['change']}: {' -> '.join(numbers)}"
    for sign, text in (("-", one["first_text"]), ("+", one["second_text"])):
        if text is not None:
            yield f"    {sign} {text}"
