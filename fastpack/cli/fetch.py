"""`fastpack fetch`: fetch objects of a store into the local cache."""

from __future__ import annotations

import argparse

from fastpack.cli.options import Commands, new_command
from fastpack.cli.output import emit
from fastpack.cli.progress import progress
from fastpack.errors import counted


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `fetch`."""
    parser = new_command(
        commands,
        "fetch",
        run=run_fetch,
        help="copy objects of a store into the local cache",
        about="Have an object of a store, or a folder of them, in the local cache, where datasets and commands find "
        "it.",
        example="fastpack fetch s3://bucket/shards",
    )
    parser.add_argument("path", metavar="URL", help="s3://, gs://, az://, http:// or https://; extra remote")
    return [parser]


def run_fetch(args: argparse.Namespace) -> int:
    """Fetch missing objects, and print the amount in the cache."""
    from fastpack.errors import JobError
    from fastpack.io import is_remote
    from fastpack.io.cache_folder import cache_folder
    from fastpack.io.remote_files import fetch_all

    if not is_remote(args.path):
        raise JobError(f"{args.path} is no URL of a store: what is on this machine need not be fetched")
    files, n_bytes = fetch_all(args.path, progress=progress(args, "fetch"))
    folder = str(cache_folder())
    emit(
        args,
        {"path": args.path, "objects": len(files), "bytes": n_bytes, "cache": folder},
        [f"{args.path}: {counted(len(files), 'object')}, {counted(n_bytes, 'byte')} in {folder}"],
    )
    return 0
