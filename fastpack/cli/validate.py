"""`fastpack validate`: whether KempnerForge can train on a folder of token shards."""

from __future__ import annotations

import argparse
from typing import Any

from fastpack.cli.options import Commands, new_command
from fastpack.cli.output import emit
from fastpack.cli.progress import progress
from fastpack.escape import escape_line


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `validate`."""
    parser = new_command(
        commands,
        "validate",
        run=run_validate,
        aliases=("prepare_data",),
        help="print what a folder of shards holds, and how to train on it",
        about="Print the contents of a folder of token shards and how to train on it; --deep reads every token.",
        example="fastpack validate --deep --eos-token-id 2 --seq-len 4097 tokenized/",
    )
    parser.add_argument("path", metavar="DIR", help="the folder of .bin or .npy shards")
    parser.add_argument("--deep", action="store_true", help="check every token; exit code 1 if there is a problem")
    parser.add_argument("--vocab-size", type=int, metavar="N", help="ids from N on are errors (--deep)")
    parser.add_argument("--eos-token-id", type=int, metavar="ID", help="a token that must occur (--deep)")
    parser.add_argument("--seq-len", type=int, metavar="N", help="count samples of N tokens (--deep)")
    return [parser]


def run_validate(args: argparse.Namespace) -> int:
    """Print the output of KempnerForge's prepare_data.py and, with --deep, problems that it does not detect."""
    import sys

    from fastpack.tokens.flat.validate_shards import facts, validate

    try:
        found = validate(args.path)
    except (AttributeError, TypeError) as error:  # the script fails like this on metadata that are not tatm's
        raise ValueError(f"{args.path}: metadata.yaml: {error}") from error
    sys.stderr.write(_with_safe_names(args.path, found.stderr))
    if found.code:
        return found.code
    report: dict[str, Any] = {"code": 0, **(facts(args.path) if args.json else {})}
    text, code = found.stdout, 0
    if args.deep:
        deep = _look(args)
        code = int(bool(deep["findings"]))
        report |= {"code": code, "deep": deep}
        text += _shown(deep)
    emit(args, report, _with_safe_names(args.path, text.removesuffix("\n")))
    return code


def _with_safe_names(path: str, text: str) -> str:
    """Return the output of the script, with line ends in names escaped; `main` escapes other control characters."""
    import os

    names = [path, *(os.listdir(path) if os.path.isdir(path) else [])]
    for name in filter(lambda name: "\n" in name, names):
        text = text.replace(name, escape_line(name))
    return text


def _look(args: argparse.Namespace) -> dict[str, Any]:
    from dataclasses import asdict

    from fastpack.tokens.flat.validate_shards import check_contents

    deep = check_contents(
        args.path,
        vocab_size=args.vocab_size,
        eos_token_id=args.eos_token_id,
        seq_len=args.seq_len,
        progress=progress(args, "validate"),
    )
    return deep | {"findings": [asdict(finding) for finding in deep["findings"]]}


def _shown(deep: dict[str, Any]) -> str:
    lines = ["  Every token looked at:"]
    for name, value in deep.items():
        if name != "findings" and value is not None:
            shown = ", ".join(value) if isinstance(value, list) else f"{value:,}"
            lines.append(f"    {name.replace('_', ' '):<28}{shown}")
    for finding in deep["findings"]:
        where = finding["file"] if finding["offset"] is None else f"{finding['file']}: at byte {finding['offset']}"
        lines.append(f"  FOUND: {where}: {finding['what']}")
    return "\n".join([*lines, "  Nothing wrong found." if not deep["findings"] else "", ""])
