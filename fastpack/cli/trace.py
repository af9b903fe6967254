"""`fastpack trace`: what a step of a run contained, and which steps contained a document."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from fastpack.cli.options import Commands, at_least, new_command
from fastpack.cli.output import emit

TEXT = 600  # characters of a text that are shown


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `trace`."""
    parser = new_command(
        commands,
        "trace",
        run=run_trace,
        help="show which documents a training step contained",
        about="Show which documents a step of a training run contained, or which steps contained a document.",
        example="fastpack trace run.json --step 1200 --text --tokenizer gpt2/tokenizer.json",
    )
    parser.add_argument(
        "path", metavar="PATH", help="the description of the run: what loader.describe() returns, as JSON"
    )
    question = parser.add_mutually_exclusive_group(required=True)
    question.add_argument(
        "--step", type=at_least(0), metavar="N", help="the step, from 0; later ones than those of the run are predicted"
    )
    question.add_argument(
        "--document",
        metavar="FILE:NUMBER",
        help="a token file, and the number of a document in it, from 0: search all steps so far",
    )
    parser.add_argument("--rank", type=at_least(0), metavar="N", help="only this rank (default: all ranks)")
    parser.add_argument("--text", action="store_true", help="also show the text of each document in the step")
    parser.add_argument(
        "--tokenizer",
        metavar="T",
        help="the tokenizer of the data, as for `pack`: `bytes`, a tokenizer.json, the folder of a Hugging Face "
        "tokenizer, or a SentencePiece .model",
    )
    return [parser]


def run_trace(args: argparse.Namespace) -> int:
    """Print the rows of a step, or the steps of a document."""
    from fastpack.inspection.trace import TracedRun

    if args.text and (args.tokenizer is None or args.step is None):
        raise ValueError("--text requires --step and --tokenizer")
    run = TracedRun(args.path)
    if args.document is not None:
        rows = run.steps_of(args.document, args.rank)
        known = {"document": args.document, "first_step": run.order.first_step, "steps": run.order.n_steps}
        emit(args, {**known, "rows": rows}, _steps(rows, run.order.first_step))
        return 0
    rows = run.rows(args.step, args.rank)
    if args.text:
        _add_texts(run, rows, args.tokenizer)
    found = {"step": args.step, "steps": run.order.n_steps, "rows": rows}
    emit(args, found, _rows(args.step, run.order.n_steps, rows))
    return 0


def _add_texts(run: Any, rows: list[dict[str, Any]], tokenizer: str) -> None:
    from fastpack.tokenizers.decode import TokenDecoder
    from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

    decoder = TokenDecoder(TokenizerSpec.from_name(tokenizer).build())
    for row in rows:
        if "file" in row:
            row["text"] = decoder.text(run.tokens(row).tolist())


def _rows(step: int, n_steps: int, rows: list[dict[str, Any]]) -> Iterator[str]:
    if step >= n_steps:
        yield f"the run has had {n_steps} steps; step {step} is predicted, as if nothing changed:"
    elif rows and rows[0].get("skipped"):
        yield f"step {step} was skipped; it would have contained:"
    for row in rows:
        head = f"rank {row['rank']}  row {row['row']}  {row['source']}"
        corpus = f"  from {row['corpus']}:{row['line']}" if "corpus" in row else ""
        if "file" not in row:
            yield f"{head}  sample {row.get('key', row['sample'])}{corpus}"
            continue
        document = "document unknown" if row["document"] is None else f"document {row['document']:,}"
        yield f"{head}  {row['file']}  {document}  tokens {row['start']:,} to {row['end']:,}{corpus}"
        if "text" in row:
            text = row["text"]
            yield f"    {text[:TEXT]}{'...' if len(text) > TEXT else ''}"


def _steps(rows: list[dict[str, Any]], first_step: int) -> Iterator[str]:
    if first_step:
        yield f"steps before {first_step} are not in this description: search that of an earlier checkpoint as well"
    if not rows:
        yield "no step so far contained tokens of this document"
    for row in rows:
        skipped = "  (skipped)" if row.get("skipped") else ""
        yield f"step {row['step']}  rank {row['rank']}  row {row['row']}  {row['source']}{skipped}"
