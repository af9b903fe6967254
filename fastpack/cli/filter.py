"""`fastpack filter`: keep the documents of a packed file that match rules."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from fastpack.cli.edits import add_eos_option, add_format_option, eos_option, run_edit
from fastpack.cli.failures import UsageError
from fastpack.cli.options import Commands, add_output_options, new_command


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `filter`."""
    parser = new_command(
        commands,
        "filter",
        run=run_filter,
        aliases=("filter_packed_data",),
        help="copy the documents that match all rules",
        about="Write the documents of a token file that match all rules to a new file.",
        example="fastpack filter corpus.pbin long.pbin --min-length 100 --lacks-token 7",
    )
    parser.add_argument("source", metavar="SRC", help="the token file to filter")
    parser.add_argument("target", metavar="DST", help="the new file (empty if no document matches)")
    rules = parser.add_argument_group("rules")
    tokens = "tokens, including the end-of-document token"
    rules.add_argument("--min-length", type=int, metavar="N", help=f"keep documents of at least N {tokens}")
    rules.add_argument("--max-length", type=int, metavar="N", help=f"keep documents of at most N {tokens}")
    repeat: dict[str, Any] = {"type": int, "action": "append", "default": [], "metavar": "ID"}
    rules.add_argument(
        "--contains-token", help="keep documents with this token (repeatable: with all of them)", **repeat
    )
    rules.add_argument(
        "--lacks-token", help="keep documents without this token (repeatable: without any of them)", **repeat
    )
    rules.add_argument(
        "--expression",
        metavar="PYTHON",
        help="keep documents for which this expression is true, such as 'len(tokens) > 5'. `tokens` is an array of "
        "integers, `i` the number of the document from 0, `np` NumPy. Runs arbitrary code: requires --trust-code",
    )
    rules.add_argument(
        "--trust-code", action="store_true", help="allow --expression to run; use it only with code that you trust"
    )
    add_eos_option(parser)
    add_format_option(parser)
    add_output_options(parser)
    return [parser]


def run_filter(args: argparse.Namespace) -> int:
    """Filter; return the exit code."""
    limits = (args.min_length, args.max_length, args.expression)
    if not any(rule is not None for rule in limits) and not args.contains_token and not args.lacks_token:
        raise UsageError("no rule: pass at least one, such as --min-length 100")
    if args.expression is not None and not args.trust_code:
        raise UsageError("--expression runs code with your permissions: add --trust-code if you trust it")
    from fastpack.tokens.edit.filter import KeepRules, filter_packed_data

    keep: Callable[[int, Any], Any] = KeepRules(
        args.min_length, args.max_length, tuple(args.contains_token), tuple(args.lacks_token)
    )
    if args.expression is not None:
        try:
            code = compile(args.expression.strip(), "--expression", "eval")
        except (SyntaxError, ValueError) as error:
            raise UsageError(f"--expression is not a Python expression: {error}") from None
        keep = _and_expression(keep, code)
    return run_edit(args, "filter", filter_packed_data, args.source, args.target, keep, **eos_option(args))


def _and_expression(rules: Callable[[int, Any], Any], code: Any) -> Callable[[int, Any], bool]:
    """Return a rule that keeps documents that match the options and the compiled expression."""
    import numpy as np

    from fastpack.errors import JobError

    def keep(i: int, tokens: Any) -> bool:
        try:
            return bool(rules(i, tokens) and eval(code, {"np": np, "tokens": tokens, "i": i}))
        except Exception as error:
            raise JobError(f"--expression, document {i}: {type(error).__name__}: {error}") from error

    return keep
