"""Run commands of fastpack: in this process, or in another one that gets signals."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fastpack import kernels
from fastpack.cli import main
from fastpack.cli.argument_parser import parsers_of
from fastpack.cli.parser import build_parser

FASTPACK = [sys.executable, "-m", "fastpack"]


class Cli:
    """The command line in this process; give it the words after `fastpack`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, code: int = 0) -> Any:
        """Run a command, which must exit with `code`; return what was printed since the previous call: (out, err)."""
        try:
            found = main([str(word) for word in words])
        except SystemExit as stopped:  # from argparse
            found = int(stopped.code or 0)
        printed = self._capsys.readouterr()
        assert found == code, printed
        return printed

    def json(self, *words: object, code: int = 0) -> Any:
        """Run a command with `--json`; return its result."""
        return json.loads(self(*words, "--json", code=code).out)


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command, by each of its names."""
    return {name: parser for names, parser in parsers_of(build_parser()).items() for name in names}


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments and options of a command; argparse has no public name for them."""
    return parser._actions


@contextmanager
def kept_kernels() -> Iterator[None]:
    """Restore the choice of kernels at the end."""
    before, chosen = kernels.backend(), kernels._chosen
    try:
        yield
    finally:
        kernels.use(before)
        kernels._chosen = chosen


def run_python(code: str, *words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python code in another process to its end."""
    return run_process([sys.executable, "-c", code, *map(str, words)], **options)


def run_process(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, **{"capture_output": True, "text": True, "timeout": 300, **options})


@contextmanager
def started(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a process, and kill it at the end. Ctrl-C ends it, even if this process ignores it as a background job."""
    options = {"stderr": subprocess.PIPE, "text": True, **options}
    obey = lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None  # noqa: E731
    with subprocess.Popen(command, preexec_fn=obey, **options) as process:
        try:
            yield process
        finally:
            process.kill()
