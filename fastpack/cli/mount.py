"""`fastpack mount`: mount a prepared WebDataset as a read-only folder."""

from __future__ import annotations

import argparse
import sys

from fastpack.cli.options import Commands, new_command
from fastpack.cli.output import emit, say


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `mount`."""
    parser = new_command(
        commands,
        "mount",
        run=run_mount,
        help="mount a WebDataset as a read-only folder",
        about="Mount a prepared WebDataset as a read-only folder with a file for each field of a sample (extra: "
        "mount).",
        example="fastpack mount webdataset/ /mnt/samples        (unmount: umount /mnt/samples, or Ctrl-C)",
    )
    parser.add_argument("path", metavar="PATH", help="the folder of the dataset")
    parser.add_argument("target", metavar="DIR", help="the mount point, an empty folder")
    parser.add_argument("-d", "--detach", action="store_true", help="run in the background")
    parser.add_argument(
        "-s", "--sample-folders", action="store_true", help="one folder per sample, with a file for each field"
    )
    parser.add_argument(
        "-w",
        "--allow-slow",
        action="store_true",
        help="with -s: also mount a dataset whose index, written by Energon 6, does not locate fields; the headers of "
        "each sample are read instead",
    )
    return [parser]


def run_mount(args: argparse.Namespace) -> int:
    """Mount the dataset and wait until it is unmounted; return the exit code."""
    from fastpack.webdataset.browsing.mount import mount

    announced: list[bool] = []

    def announce() -> None:
        announced.append(True)
        if args.json:
            emit(args, {"path": args.path, "target": args.target, "detached": args.detach}, [])
            sys.stdout.flush()
        say(args, f"{args.path} is mounted at {args.target}")

    if args.detach:  # the background process cannot print: libfuse closes its streams
        say(args, f"mounting {args.path} at {args.target} in the background")
        if args.json:
            emit(args, {"path": args.path, "target": args.target, "detached": True}, [])
    mount(
        args.path,
        args.target,
        sample_folders=args.sample_folders,
        allow_slow=args.allow_slow,
        detach=args.detach,
        mounted=announce if not args.detach else None,
        complain=lambda text: say(args, f"fastpack: {text}"),
    )
    if not args.detach and not announced:  # libfuse mounted and unmounted without calling `init`
        announce()
    return 0
