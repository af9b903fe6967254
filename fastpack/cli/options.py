"""Options that several commands share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from fastpack.cli.progress import progress

Commands = Any  # argparse's subparsers action, whose class is private
Command = Callable[[argparse.Namespace], int]
OUTPUT = "output"  # title of a group of options


def new_command(
    commands: Commands,
    name: str,
    *,
    run: Command,
    help: str,
    example: str,
    about: str = "",
    aliases: tuple[str, ...] = (),
) -> argparse.ArgumentParser:
    """Add the parser of a command.

    run: takes the parsed arguments and returns the exit code. help: the line in the list of commands. about: the first
    lines of the command's own help (default: `help` as a sentence). aliases: its names in other systems, which work but
    are not listed.
    """
    about = about or f"{help[0].upper()}{help[1:]}."
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help, description=about, epilog=f"example: {example}"
    )
    commands.choices.update(dict.fromkeys(aliases, parser))
    parser.set_defaults(run=run)
    return parser


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command."""
    group = parser.add_argument_group("common options")
    group.add_argument("--json", action="store_true", help="print the result as one JSON object")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress and no messages")
    group.add_argument("--no-progress", action="store_true", help="no progress bar")
    group.add_argument("--kernels", choices=("numba", "cython", "numpy"), help="backend of the kernels")
    group.add_argument("--debug", action="store_true", help="show the traceback of a failure")


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an option: an integer of at least `least`."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is not at least {least}")
        return value

    return number


def output_group(parser: argparse.ArgumentParser) -> Any:
    """Return the group of options about the output, to which several functions add."""
    for group in parser._action_groups:
        if group.title == OUTPUT:
            return group
    return parser.add_argument_group(OUTPUT)


# The formats that are written; the table of formats is not imported for the help.
FORMATS = ("npy", "bin", "pbin", "megatron", "datatrove", "olmo", "llmc", "nanogpt", "litdata", "mds")


def add_output_options(parser: argparse.ArgumentParser, if_exists: str = "error", *, combines: bool = False) -> None:
    """Add the options of most commands that write files; others: as for `add_if_exists_option`."""
    add_if_exists_option(parser, if_exists, combines=combines)
    add_dry_run_option(parser)


class _Force(argparse.Action):
    """`--force`: replace the output, and combine what the command refuses to combine otherwise (`force`)."""

    def __call__(self, _parser: object, namespace: argparse.Namespace, *_: object) -> None:
        namespace.if_exists, namespace.force = "overwrite", True


def add_if_exists_option(parser: argparse.ArgumentParser, default: str = "error", *, combines: bool = False) -> None:
    """Add `--if-exists`, also under Modalities' names, and `--force`; combines: whether several token files."""
    output_group(parser).add_argument(
        "--if-exists",
        "--file-existence-policy",
        type=lambda text: "overwrite" if text == "override" else text,
        choices=("error", "skip", "overwrite"),
        default=default,
        help=f"what to do if the output exists (default: {default})",
    )
    output_group(parser).add_argument(
        "--force",
        action=_Force,
        nargs=0,
        default=False,
        help=f"replace the output{', and combine files of different tokenizers' if combines else ''}",
    )


def add_dry_run_option(parser: argparse.ArgumentParser) -> None:
    """Add `--dry-run`, and `--write-checksums`; see `write_checksums`."""
    output_group(parser).add_argument(
        "--dry-run", action="store_true", help="print what would be written, and write nothing"
    )
    output_group(parser).add_argument(
        "--write-checksums",
        action="store_true",
        help="write checksums of the outputs (FILE.fpsum), which `fastpack verify` compares; extra checksum",
    )


def add_engine_option(group: argparse._ActionsContainer) -> None:
    """Add `--engine`."""
    group.add_argument(
        "--engine",
        choices=("auto", "tokenizers", "gigatoken", "tiktoken", "sentencepiece"),
        default="auto",
        help="the library that tokenises (default: auto, the fastest installed one that gives the same ids)",
    )


def add_on_error_option(group: argparse._ActionsContainer, what: str) -> None:
    """Add `--on-error`, with its former name `--on-faulty` and its former value `error`."""
    group.add_argument(
        "--on-error",
        "--on-faulty",
        type=lambda text: "raise" if text == "error" else text,
        choices=("skip", "raise"),
        default="skip",
        help=f"skip {what} and list it, or fail (default: skip)",
    )


def add_text_options(parser: argparse._ActionsContainer) -> None:
    """Add --text-field and --split-on for sources that are not JSON Lines."""
    parser.add_argument(
        "--text-field",
        metavar="NAME",
        help="column of the texts of Parquet, Arrow, CSV and TSV files (default: text); a.b is the field b of a",
    )
    add_split_option(parser)


def add_split_option(group: argparse._ActionsContainer) -> None:
    """Add --split-on."""
    group.add_argument(
        "--split-on",
        type=_unescaped,
        metavar="TEXT",
        help=r"the text between two documents of a plain text file, such as '\n\n' (default: a file is one document)",
    )


def _unescaped(text: str) -> str:
    """Return a separator with the escapes of line ends and tabs replaced."""
    for escape, character in ((r"\n", "\n"), (r"\r", "\r"), (r"\t", "\t")):
        text = text.replace(escape, character)
    return text


def add_eos_option(parser: argparse.ArgumentParser) -> None:
    """Add `--eos-token-id`, which is determined automatically if it is not given."""
    parser.add_argument(
        "--eos-token-id",
        type=int,
        metavar="ID",
        help="the token that ends every document (default: guessed from the ends of documents or files)",
    )


def add_webdataset_options(group: argparse._ActionsContainer, splits: str, *aliases: str) -> None:
    """Add `--split-parts`, `--split-config` and `--dataset-config`, as in Energon's commands.

    splits: help of the first one; aliases: its aliases.
    """
    group.add_argument("--split-parts", *aliases, dest="split_parts", type=_names, metavar="NAME,...", help=splits)
    group.add_argument(
        "--split-config",
        default="split.yaml",
        metavar="NAME",
        help="name of the split file in .nv-meta (default: split.yaml)",
    )
    group.add_argument(
        "--dataset-config",
        default="dataset.yaml",
        metavar="NAME",
        help="name of the sample definition in .nv-meta (default: dataset.yaml)",
    )


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: expected names of splits, such as train,val")
    return names


def add_dtype_option(parser: argparse.ArgumentParser) -> None:
    """Add `--dtype`, for shards without a header."""
    parser.add_argument("--dtype", help="dtype of .bin shards (default: from tatm's metadata, else from their sizes)")


def check_checksum_option(args: argparse.Namespace) -> None:
    """Raise MissingExtra before the work, instead of after it, if checksums cannot be written."""
    if "write_checksums" in args and args.write_checksums:
        from fastpack.io.checksum_blocks import load_hash

        load_hash()


def write_checksums(args: argparse.Namespace, *paths: str | os.PathLike[str]) -> None:
    """Write the checksums of outputs, written or kept, if `--write-checksums` is given."""
    if args.write_checksums:
        from fastpack.io.checksums import are_current, write_checksums

        for path in paths:
            if not are_current(path):
                write_checksums(path, progress=progress(args, "checksums"))
