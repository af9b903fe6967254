"""What the commands merge, shuffle, chunk and filter share: how they run, and how they report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastpack.cli.common import (
    add_checksum_option,
    add_dry_run_option,
    add_policy_option,
    check_checksum_option,
    emit,
    progress,
    say,
    write_checksums,
)

if TYPE_CHECKING:
    from fastpack.build.editing.results import EditResult

COMPAT = "modalities-0.5"


def add_edit_options(parser: argparse.ArgumentParser) -> None:
    """The options of every one of them."""
    add_policy_option(parser)
    add_dry_run_option(parser)
    add_checksum_option(parser)


def add_compat_option(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument("--compat", choices=(COMPAT,), help=meaning)


def option(parser: Any, name: str, **settings: Any) -> None:
    """An option in both spellings: with hyphens, and with the underscores of Modalities."""
    spellings = dict.fromkeys((f"--{name}", f"--{name.replace('-', '_')}"))
    parser.add_argument(*spellings, **settings)


def usage_error(message: str) -> int:
    print(f"fastpack: error: {message}", file=sys.stderr)
    return 2


def run_edit(args: argparse.Namespace, label: str, edit: Callable[..., EditResult], *given: Any, **options: Any) -> int:
    """Call `edit` and report what it did; return the exit code."""
    import warnings

    check_checksum_option(args)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        result = edit(
            *given,
            file_existence_policy=args.file_existence_policy,
            progress=progress(args, label),
            dry_run=args.dry_run,
            **options,
        )
    for warning in warned:
        say(args, str(warning.message))
    if result.written:
        write_checksums(args, str(result.path))
    _report(args, result)
    return 0


def _report(args: argparse.Namespace, result: EditResult) -> None:
    fields = {name: getattr(result, name) for name in result.__slots__}
    fields |= {"path": str(result.path), "dry_run": args.dry_run}
    if result.kept_existing:
        emit(args, fields, f"{result.path}: exists, kept")
        return
    contents = f"{result.documents} lines" if result.tokens is None else f"{result.documents} documents"
    contents += "" if result.tokens is None else f", {result.tokens} tokens"
    sources = f" from {result.sources} files" if result.sources > 1 else ""
    left_out = f", {result.left_out} documents left out" if result.left_out else ""
    would = "would write " if args.dry_run else ""
    emit(args, fields, f"{would}{result.path}: {contents}, {result.bytes} bytes{sources}{left_out}")


def kind_of(path: str) -> str:
    """ "pbin" or "jsonl": by the name's suffix, else by the first byte, with which no packed file begins."""
    suffix = path.rpartition(".")[2].lower()
    if suffix in ("pbin", "jsonl"):
        return suffix
    if suffix in ("ndjson", "json"):
        return "jsonl"
    with open(path, "rb") as file:
        return "jsonl" if file.read(1) in (b"{", b"[", b'"') else "pbin"
