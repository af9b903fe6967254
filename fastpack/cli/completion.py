"""`fastpack completion bash|zsh|fish`: what a shell completes after `fastpack`.

shtab writes the scripts from the parser. They are complete in themselves: no key press starts Python.
"""

from __future__ import annotations

import argparse

from fastpack.cli.argument_parser import command_action, parsers_of
from fastpack.cli.options import Commands, new_command
from fastpack.cli.output import emit

SHELLS = ("bash", "zsh", "fish")
# Values by their name in help; a value with another name is not completed.
FILES = frozenset(
    (
        *("PATH", "SRC", "DST", "TARGET", "T", "LIST", "FILE", "OTHER", "REPORT.html"),
        *("CONFIG.yaml", "CONFIG.yaml|SRC", "SRC|CONFIG.yaml", "FILE:NUMBER", "FILE|NAME"),
    )
)
FOLDERS = frozenset({"DIR", "NEWDIR", "ROOT"})


def add_commands(commands: Commands) -> list[argparse.ArgumentParser]:
    """Add the command `completion`."""
    parser = new_command(
        commands,
        "completion",
        run=run_completion,
        help="print the completion script of a shell",
        about="Print the script by which a shell completes commands, options and files.",
        example='fastpack completion bash        (in .bashrc: eval "$(fastpack completion bash)"; .zshrc the same; '
        "config.fish: fastpack completion fish | source)",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    return [parser]


def run_completion(args: argparse.Namespace) -> int:
    """Print the script."""
    script = completion_script(args.build_parser(), args.shell)
    emit(args, {"shell": args.shell, "script": script}, script.removesuffix("\n"))
    return 0


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell; the parser is changed."""
    import shtab

    commands = command_action(parser)
    for names, command in parsers_of(parser).items():
        for name in names[1:]:
            del commands.choices[name]  # of another system
        for action in command._actions:
            complete = shtab.FILE if action.metavar in FILES else shtab.DIRECTORY if action.metavar in FOLDERS else None
            if complete is not None and not action.choices:
                action.complete = complete  # type: ignore[attr-defined]
    listed = list(commands.choices)
    commands.add_parser("help", help="explain a command", add_help=False).add_argument("name", choices=listed)
    return f"{shtab.complete(parser, shell).rstrip()}\n"
