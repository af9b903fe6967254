"""The command line: one module per command."""

from fastpack.cli.command_line import main

__all__ = ["main"]
