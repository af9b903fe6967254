"""The parser of all commands and options; it imports only the standard library, and the man page is made from it."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from fastpack.cli.argument_parser import CommandsParser, Parser, hide_other_spellings, nearest, parsers_of
from fastpack.cli.options import Commands, add_common_options
from fastpack.cli.version import VersionAction

AddCommands = Callable[[Commands], list[argparse.ArgumentParser]]

DESCRIPTION = (
    "Turns text, images, audio and video into training data for large models, and feeds it to the training loop. "
    "`fastpack COMMAND --help` explains a command."
)
EPILOG = "example: fastpack quickstart        (real text on this machine -> index -> pack -> training batches)"
GROUPS = {  # title in the help -> commands
    "set up": ("quickstart", "init", "doctor", "completion"),
    "pack text": ("pack", "chat", "index"),
    "inspect and check": ("info", "preview", "report", "compare", "verify", "repair"),
    "edit and convert token files": ("merge", "shuffle", "chunk", "filter", "convert"),
    "prepare images, audio and video": ("prepare", "prepare-media", "fix-duplicates", "mount"),
    "train": ("plan", "validate", "bench", "trace"),
    "many shards and object stores": ("manifest", "fetch"),
}
COMMANDS = {  # module of the commands -> their names: the listed one, then those of other systems
    "quickstart": ("quickstart",),
    "init": ("init",),
    "doctor": ("doctor",),
    "completion": ("completion",),
    "pack": ("pack", "pack_encoded_data", "create_packed_data"),
    "chat": ("chat", "prepare_instruction_tuning_data"),
    "index": ("index", "create_raw_index", "create_memmap_index"),
    "info": ("info",),
    "preview": ("preview",),
    "report": ("report",),
    "compare": ("compare",),
    "verify": ("verify", "lint"),
    "repair": ("repair",),
    "merge": ("merge", "merge_packed_data"),
    "shuffle": ("shuffle", "shuffle_tokenized_data", "shuffle_jsonl_data"),
    "chunk": ("chunk", "create_shuffled_dataset_chunk", "create_shuffled_jsonl_chunk"),
    "filter": ("filter", "filter_packed_data"),
    "convert": ("convert",),
    "prepare": ("prepare", "prepare-media", "prepare_media"),
    "fix_duplicates": ("fix-duplicates", "fix_duplicates"),
    "mount": ("mount",),
    "plan": ("plan",),
    "validate": ("validate", "prepare_data"),
    "bench": ("bench",),
    "trace": ("trace",),
    "manifest": ("manifest",),
    "fetch": ("fetch",),
}


def _load(module: str) -> AddCommands:
    """Import the module of a command. Importing all modules takes 30 ms."""
    match module:
        case "quickstart":
            from fastpack.cli.quickstart import add_commands
        case "init":
            from fastpack.cli.init import add_commands
        case "index":
            from fastpack.cli.index import add_commands
        case "pack":
            from fastpack.cli.pack import add_commands
        case "merge":
            from fastpack.cli.merge import add_commands
        case "shuffle":
            from fastpack.cli.shuffle import add_commands
        case "chunk":
            from fastpack.cli.chunk import add_commands
        case "filter":
            from fastpack.cli.filter import add_commands
        case "convert":
            from fastpack.cli.convert import add_commands
        case "plan":
            from fastpack.cli.plan import add_commands
        case "chat":
            from fastpack.cli.chat import add_commands
        case "prepare":
            from fastpack.cli.prepare import add_commands
        case "fix_duplicates":
            from fastpack.cli.fix_duplicates import add_commands
        case "manifest":
            from fastpack.cli.manifest import add_commands
        case "info":
            from fastpack.cli.info import add_commands
        case "validate":
            from fastpack.cli.validate import add_commands
        case "verify":
            from fastpack.cli.verify import add_commands
        case "repair":
            from fastpack.cli.repair import add_commands
        case "preview":
            from fastpack.cli.preview import add_commands
        case "report":
            from fastpack.cli.report import add_commands
        case "compare":
            from fastpack.cli.compare import add_commands
        case "trace":
            from fastpack.cli.trace import add_commands
        case "mount":
            from fastpack.cli.mount import add_commands
        case "fetch":
            from fastpack.cli.fetch import add_commands
        case "doctor":
            from fastpack.cli.doctor import add_commands
        case "bench":
            from fastpack.cli.bench import add_commands
        case "completion":
            from fastpack.cli.completion import add_commands
        case _:
            raise ValueError(module)
    return add_commands


def normal(words: list[str]) -> list[str]:
    """Remove the word `data`, and turn `help COMMAND` into `COMMAND --help`; exit with 2 for an unknown command."""
    if words[:1] == ["data"]:  # `modalities data COMMAND` works after replacing one word
        words = words[1:]
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words and not words[0].startswith("-"):
        known = [name for names in COMMANDS.values() for name in names]
        if words[0] not in known:
            Parser(prog="fastpack", add_help=False).error(f"no command {words[0]!r}{nearest(words[0], known)}")
    return words


def build_parser(word: str = "") -> argparse.ArgumentParser:
    """Return the parser of all commands; if `word` is a command, only with that command, which saves 20 ms."""
    parser = CommandsParser(GROUPS, prog="fastpack", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("-V", "--version", action=VersionAction, help="print versions and processor features, and exit")
    parser.set_defaults(run=None, kernels=None, build_parser=build_parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", parser_class=Parser)
    modules = [module for module, names in COMMANDS.items() if word in names] or list(COMMANDS)
    for module in modules:
        for command in _load(module)(commands):
            add_common_options(command)
            hide_other_spellings(command)
    return parser


def manual_parser() -> argparse.ArgumentParser:
    """Return the parser for the man page: descriptions include the examples, which the generator omits."""
    parser = build_parser()
    for command in parsers_of(parser).values():
        command.description = f"{command.description}\n\n{command.epilog}"
    return parser
