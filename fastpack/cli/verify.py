"""`fastpack verify`: check files and datasets for damage."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastpack.cli.distributed_options import (
    add_distributed_options,
    check_distributed_options,
    is_distributed,
    run_distributed,
)
from fastpack.cli.failures import describe
from fastpack.cli.options import Commands, add_webdataset_options, new_command
from fastpack.cli.output import emit, say
from fastpack.cli.progress import progress

if TYPE_CHECKING:
    from fastpack.analysis.findings import VerifyReport
    from fastpack.cli.tables import Table

DAMAGED = 3  # exit code


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `verify`."""
    parser = new_command(
        commands,
        "verify",
        run=run_verify,
        aliases=("lint",),
        help="check files for damage",
        about="Check packed files, JSON lines, shards and WebDatasets against their indexes and metadata (exit code "
        "3: damaged).",
        example="fastpack verify corpus.pbin --vocab-size 50257 --eos-token-id 50256",
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        nargs="+",
        help="a .pbin, .jsonl, .idx, .npy, .bin, .fpm or .plan file, or a folder of such",
    )
    parser.add_argument("--vocab-size", type=int, metavar="N", help="token ids from N on are errors")
    parser.add_argument("--eos-token-id", type=int, metavar="ID", help="the token that ends every document")
    parser.add_argument(
        "--deep",
        "--decode",
        action="store_true",
        help="also parse every JSON line and decode every sample of a WebDataset",
    )
    parser.add_argument(
        "--trust-code", action="store_true", help="run code from the dataset, and unpickle, to decode it"
    )
    parser.add_argument(
        "--write-checksums",
        action="store_true",
        help="if there is no damage, write checksums of every file (FILE.fpsum), which `verify` then compares",
    )
    parser.add_argument(
        "--threads",
        "--parallel",
        type=int,
        default=2,
        metavar="N",
        help="shards checked, or samples decoded, at the same time (default: 2)",
    )
    add_webdataset_options(
        parser.add_argument_group("WebDatasets"),
        "splits whose samples are decoded; implies --deep (default: all shards)",
    )
    add_distributed_options(parser, task_bytes=False)
    return [parser]


def run_verify(args: argparse.Namespace) -> int:
    """Print the findings; return 3 if there is damage, else 1 if a path could not be read, else 0."""
    check_distributed_options(args, "--write-checksums")
    reports: list[VerifyReport] = []
    failed: list[dict[str, str]] = []
    results = _verify_as_tasks(args) if is_distributed(args) else [_verify(args, path) for path in args.path]
    if results is None:  # a rank: the last step has the reports
        return 0
    for path, found in zip(args.path, results, strict=True):
        if not isinstance(found, Exception):
            reports.append(found)
        elif len(args.path) == 1:
            raise found
        else:
            failed.append({"path": path, "error": describe(found)})
    lines = _lines(reports, len(args.path))
    emit(args, _as_json(reports, failed, len(args.path)), lines, lambda: _tables(reports))
    for failure in failed:
        say(args, f"fastpack: error: {failure['error']}")
    if not all(report.is_sound for report in reports):
        return DAMAGED
    return 1 if failed else 0


def _verify(args: argparse.Namespace, path: str) -> VerifyReport | Exception:
    from fastpack.errors import FastpackError
    from fastpack.inspection.verify import verify

    try:
        return verify(
            path,
            write_checksums=args.write_checksums,
            progress=progress(args, "verify", at_once=True),
            **_options(args),
        )
    except (FastpackError, OSError, ValueError) as error:
        return error


def _verify_as_tasks(args: argparse.Namespace) -> list[VerifyReport | Exception] | None:
    from fastpack.analysis.options import VerifyOptions
    from fastpack.distributed.verify_tasks import collect_verify, plan_verify

    plan = plan_verify(args.path, VerifyOptions(**_options(args)), folder=args.task_folder)
    return run_distributed(args, "verify", plan, lambda: collect_verify(plan))


def _options(args: argparse.Namespace) -> dict[str, Any]:
    names = ("vocab_size", "eos_token_id", "deep", "trust_code", "split_parts", "split_config", "dataset_config")
    return {**{name: getattr(args, name) for name in names}, "threads": max(1, args.threads)}


def _as_json(reports: list[VerifyReport], failed: list[dict[str, str]], n_paths: int) -> dict[str, Any]:
    found = [report.as_json() for report in reports]
    if n_paths == 1:
        return found[0]
    return {"sound": all(one["sound"] for one in found) and not failed, "reports": found, "failed": failed}


def _tables(reports: list[VerifyReport]) -> Iterator[Table | str]:
    """Yield a table of the findings and a line for each path, for a terminal."""
    from fastpack.cli.tables import Table

    for report in reports:
        if report.findings:
            rows = [
                (one.severity, one.file, "" if one.offset is None else f"{one.offset:,}", one.found, one.expected)
                for one in report.findings
            ]
            headings = ("", "file", "byte", "found", "expected")
            yield Table(headings, rows, frozenset({2}), {"error": "red", "warning": "yellow"})
        yield list(report.lines())[-1] if not report.n_more else "\n".join(list(report.lines())[-2:])


def _lines(reports: list[VerifyReport], n_paths: int) -> Iterator[str]:
    """Yield the findings and a summary of one path; for several paths a table of summaries."""
    if n_paths == 1:
        yield from reports[0].lines()
        return
    rows = [("", "errors", "warnings", "format", "path", "checked")]
    for report in reports:
        yield from list(report.lines())[:-1]
        counts = (f"{report.n_errors:,}", f"{report.n_warnings:,}")
        rows.append(("sound" if report.is_sound else "DAMAGED", *counts, report.kind, report.path, report.amounts()))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True))
        yield "  ".join(cells).rstrip()
