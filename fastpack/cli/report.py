"""`fastpack report`: one HTML page about datasets."""

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


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `report`."""
    parser = new_command(
        commands,
        "report",
        run=run_report,
        help="write an HTML page about a corpus",
        about="Write an HTML page: sample documents, duplicates, lengths, packing, tokens, files, mixture, warnings.",
        example="fastpack report corpus.pbin -o report.html",
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        help="what `info` reads, a folder of .pbin files, or a KempnerForge configuration (.toml), whose [data] "
        "table names datasets and weights",
    )
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="FILE", help="the page (default: ./report.html)"
    )
    add_eos_option(parser)
    parser.add_argument(
        "--vocab-size",
        type=int,
        metavar="N",
        help="vocabulary size, for the share that occurs (default: from tatm's metadata)",
    )
    add_dtype_option(parser)
    add_text_options(parser)
    parser.add_argument(
        "--tokenizer",
        metavar="T",
        help="the tokenizer that decodes tokens, as for `pack`; `none`: ids (default: the recorded one)",
    )
    page = parser.add_argument_group("the page")
    page.add_argument("--by", metavar="NAME", help="field or column of texts: show the share of each of its values")
    page.add_argument(
        "--samples",
        type=at_least(0),
        default=5,
        metavar="N",
        help="random documents to show; 0: show none (default: 5)",
    )
    page.add_argument("--seed", type=at_least(0), default=0, metavar="N", help="seed of their choice (default: 0)")
    page.add_argument(
        "--quick", action="store_true", help="read no tokens and texts, only headers and indexes: for very large data"
    )
    page.add_argument("--title", help="title of the page (default: the name of the data)")
    parser.add_argument(
        "--no-verify", action="store_true", help="omit the findings of `verify`, for which the data are read once more"
    )
    add_if_exists_option(parser)
    return [parser]


def run_report(args: argparse.Namespace) -> int:
    """Write the page; print its path and a summary, or all its numbers with --json."""
    from fastpack.inspection.report import report

    result = report(
        args.paths,
        args.output,
        eos_token_id=args.eos_token_id,
        vocab_size=args.vocab_size,
        dtype=args.dtype,
        text_field=args.text_field,
        split_on=args.split_on,
        tokenizer=args.tokenizer,
        by=args.by,
        samples=args.samples,
        seed=args.seed,
        quick=args.quick,
        check=not args.no_verify,
        title=args.title,
        if_exists=args.if_exists,
        progress=progress(args, "report", at_once=True),
    )
    if result.numbers is None:
        emit(
            args, {"path": result.path, "written": False, "kept_existing": True}, [f"{result.path} exists and is kept"]
        )
        return 0
    found = {"path": result.path, "written": True, "kept_existing": False, **result.numbers}
    emit(args, found, _lines(result.path, result.numbers))
    return 0


def _lines(path: str, numbers: dict[str, Any]) -> Iterator[str]:
    facts = [f"{numbers[name]:,} {name}" for name in ("documents", "tokens", "bytes") if numbers[name] is not None]
    n_warnings = len(numbers["warnings"]) + numbers["warnings_left_out"]
    yield f"{path}: {', '.join(facts)}, {counted(n_warnings, 'warning')}"
