"""`fastpack verify`: whether a dataset is sound."""

from __future__ import annotations

import argparse

from fastpack.cli.common import Commands, emit, new_command, progress

DAMAGED = 3  # exit code


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """The command `verify`."""
    parser = new_command(
        commands,
        "verify",
        run="fastpack.cli.verify:run_verify",
        aliases=("lint",),
        help="check a prepared WebDataset: tars, indexes, counts and splits against each other (exit code 3: damaged)",
        example="fastpack verify --decode webdataset/",
    )
    parser.add_argument("path", metavar="PATH", nargs="+", help="the folder of a prepared WebDataset")
    parser.add_argument("--decode", action="store_true", help="decode every sample as well")
    parser.add_argument(
        "--trust-code", "--trust_code", action="store_true", help="run code of the dataset, and pickles, to decode it"
    )
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="shards at a time (default: 2)")
    return [parser]


def run_verify(args: argparse.Namespace) -> int:
    """Print what is wrong, and 0 when nothing is."""
    from fastpack.checks.verify import verify

    reports = [
        verify(
            path,
            decode=args.decode,
            trust_code=args.trust_code,
            threads=max(1, args.threads),
            progress=progress(args, "verify"),
        )
        for path in args.path
    ]
    found = [report.as_json() for report in reports]
    result = found[0] if len(found) == 1 else {"sound": all(one["sound"] for one in found), "reports": found}
    emit(args, result, "\n".join(line for report in reports for line in report.lines()))
    return 0 if all(report.is_sound for report in reports) else DAMAGED
