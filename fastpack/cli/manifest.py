"""`fastpack manifest`: write the facts about a folder of token shards to one file, which datasets open."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fastpack.cli.options import Commands, add_if_exists_option, new_command, output_group
from fastpack.cli.output import emit, fields_of, say
from fastpack.cli.progress import progress
from fastpack.errors import counted

if TYPE_CHECKING:
    from fastpack.tokens.manifest.manifest_writer import ManifestResult


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `manifest`."""
    parser = new_command(
        commands,
        "manifest",
        run=run_manifest,
        help="write one file of facts, so that many shards open fast",
        about="Write one file with the facts about many shards or packed files, so that datasets open quickly.",
        example="fastpack manifest shards/ --checksums",
    )
    parser.add_argument(
        "folder", metavar="DIR", help="the folder of the shards (.npy, .bin) or packed files (.pbin), or its URL"
    )
    parser.add_argument(
        "--pattern",
        metavar="GLOB",
        help="the files to include; **/*.npy includes subfolders (default: all .npy and .bin in the folder itself, or "
        "else all .pbin)",
    )
    parser.add_argument(
        "--dtype",
        help="dtype of the tokens in .bin shards, or `metadata` for the dtype in tatm's metadata (default: uint32 if "
        "the size of the file is divisible by 4, else uint16)",
    )
    parser.add_argument(
        "--eos-token-id",
        type=int,
        metavar="ID",
        help="count the documents of each shard by this end token (reads all data; packed files store the number)",
    )
    parser.add_argument(
        "--checksums",
        action="store_true",
        help="include the checksum of each shard, for `fastpack verify` (reads all data; extra: checksum)",
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="shards to read in parallel (default: 4; 16 in an object store)"
    )
    output_group(parser).add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the manifest, *.fpm in DIR or a parent folder (default: DIR/manifest.fpm)",
    )
    add_if_exists_option(parser)
    return [parser]


def run_manifest(args: argparse.Namespace) -> int:
    """Write the manifest and print its facts; return the exit code."""
    from fastpack.tokens.manifest.manifest_writer import write_manifest

    result = write_manifest(
        args.folder,
        args.output,
        file_pattern=args.pattern,
        dtype=args.dtype,
        eos_token_id=args.eos_token_id,
        checksums=args.checksums,
        num_threads=None if args.threads is None else max(1, args.threads),
        if_exists=args.if_exists,
        progress=progress(args, "manifest", "shards"),
    )
    for text in result.warnings:
        say(args, f"warning: {text}")
    emit(args, {**fields_of(result), "written": not result.kept_existing}, [_text(result)])
    return 0


def _text(result: ManifestResult) -> str:
    if result.kept_existing:
        return f"{result.path}: exists, kept"
    documents = "" if result.documents is None else f", {counted(result.documents, 'document')}"
    facts = (
        f"{counted(result.shards, 'shard')} of {', '.join(result.dtypes)}, {counted(result.tokens, 'token')}{documents}"
    )
    checksums = ", with checksums" if result.checksums else ""
    return f"{result.path}: {facts}, {counted(result.manifest_bytes, 'byte')}{checksums}"
