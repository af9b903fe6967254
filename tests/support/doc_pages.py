"""Run the code blocks of a Markdown page in order, in one folder and one Python namespace, both initially empty.

The language of the fence determines how a block runs; other languages are an error:

    ```python     runs in this process; `assert` states what a reader can rely on
    ```console    lines that begin with `$ ` are commands for bash, the lines below are their output. One bash runs all
                  commands of a block. A command continues after a final backslash, and in lines that begin with `> `.
                  `...` matches any text within a line or, alone on a line, any lines. Without lines below, any output
                  matches. A command that exits with another code than 0 fails the page.
    ```yaml, ```toml, ```json, ```jsonl    must parse
    ```text       diagrams; neither run nor compared

A block whose first line is a file name, such as `# train.py`, `# config.yaml` or `# pyproject.toml`, is written to that
file and not run. The comment `<!-- file: corpus.jsonl -->` before a block has the same effect.

Comments on their own lines directly before a block:

    <!-- needs: torch, torchrun -->    modules or commands; if one is missing, the block is skipped, and the test of the
                                       page ends as skipped with the line and the missing names
    <!-- not run: it mounts -->        the reason; test_pages.py lists how many such blocks a page has
    <!-- output -->                    before ```text: the output of the previous python block, compared as above

Comments anywhere on a page:

    <!-- given:                        Python that creates files that the text names; it runs at its position, in its
    Path("corpus.jsonl").write_...     own namespace with `Path` and `np`. Only kernels.md uses it; other pages show
    -->                                their preparation
    <!-- in a checkout -->             `examples` and `asv_benchmarks` are links in the folder of the page
    <!-- slow: trains -->              only `pytest -m slow` tests the page
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```[ ]*$", re.DOTALL | re.MULTILINE
)
GIVEN = re.compile(r"^<!-- given:\n(?P<code>.*?)^-->$", re.DOTALL | re.MULTILINE)
COMMENTS = re.compile(r"<!--.*?-->", re.DOTALL)
COMMENT = re.compile(r"<!-- (?P<what>needs|not run|file|output|in a checkout|slow)(?:: (?P<value>[^\n]*?))? -->")
FILE_NAME = re.compile(r"# (?P<name>[\w./-]+\.(?:py|yaml|yml|toml|json|jsonl|txt))")
LANGUAGES = ("python", "console", "yaml", "toml", "json", "jsonl", "text")
SECONDS = 240


@dataclass(frozen=True)
class Block:
    """A code block: its language ("given" for a preparation comment), code, first line, and comments."""

    language: str
    code: str
    line: int
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def file_name(self) -> str | None:
        first = self.code.split("\n", 1)[0]
        named = FILE_NAME.fullmatch(first.rstrip())
        return self.notes.get("file") or (named["name"] if named else None)

    def missing(self) -> list[str]:
        """Return the required modules and commands that are missing."""
        names = [name.strip() for name in self.notes.get("needs", "").split(",") if name.strip()]
        return [name for name in names if not _is_available(name)]


def _is_available(name: str) -> bool:
    if shutil.which(name, path=_environment()["PATH"]):
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


def _environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**os.environ, "PATH": path, "COLUMNS": "120", "PYTHONWARNINGS": "default"}


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a page in order.

    Raises ValueError for a fence that has no or an unknown language or is not closed, and for a comment without reason.
    """
    found = [Block("given", match["code"], _line(text, match)) for match in GIVEN.finditer(text)]
    for match in FENCE.finditer(text):
        language, line = match["language"].strip(), _line(text, match)
        if language not in LANGUAGES:
            raise ValueError(f"line {line}: a block of {language!r}; expected one of {', '.join(LANGUAGES)}")
        code = re.sub(f"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        found.append(Block(language, code, line, _notes_before(text[: match.start()], line)))
    if len(re.findall(r"^ *```", text, re.MULTILINE)) != 2 * sum(block.language != "given" for block in found):
        raise ValueError("a fence is not closed, or has more than three backticks")
    return sorted(found, key=lambda block: block.line)


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1


def _notes_before(text: str, line: int) -> dict[str, str]:
    notes = {}
    for above in reversed(text.rstrip("\n").split("\n")):
        if not above.strip().startswith("<!--"):
            break
        comment = COMMENT.fullmatch(above.strip())
        if comment is None:
            break
        if comment["what"] in ("needs", "not run", "file") and not comment["value"]:
            raise ValueError(f"line {line}: <!-- {comment['what']} --> has no value")
        notes[comment["what"]] = comment["value"] or ""
    return notes


def page_notes(text: str) -> dict[str, str]:
    """Return the comments for the whole page: "in a checkout" and "slow"."""
    comments = (comment for comment in COMMENT.finditer(text) if comment["what"] in ("in a checkout", "slow"))
    return {comment["what"]: comment["value"] or "" for comment in comments}


@contextlib.contextmanager
def _within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run_page(page: Path, folder: Path) -> list[str]:
    """Run the blocks of a page in an empty folder; return a line for each skipped block.

    Raises AssertionError, with page and line, if a command fails or prints other output than the page. Exceptions of
    Python blocks propagate; their tracebacks name page and line.
    """
    text = page.read_text()
    if "in a checkout" in page_notes(text):
        for name in ("examples", "asv_benchmarks"):
            (folder / name).symlink_to(page.parents[1] / name)
    namespace: dict[str, Any] = {"__name__": "__page__"}
    left_out, printed = [], ""
    with _within(folder):
        for block in blocks_of(text):
            where = f"{page.name}:{block.line}"
            if "not run" in block.notes:
                continue
            if missing := block.missing():
                left_out.append(f"{where} needs {', '.join(missing)}")
                printed = "..."
            elif block.language == "given":
                _run_given(block, page, where, COMMENTS.sub("", text))
            else:
                printed = _run(block, page, where, namespace, printed)
    return left_out


def _run_given(block: Block, page: Path, where: str, visible: str) -> None:
    """Run a preparation comment; the visible text must name the files that it creates."""
    before = set(os.listdir())
    exec(compile("\n" * block.line + block.code, str(page), "exec"), {"__name__": "__given__", "Path": Path, "np": np})
    unnamed = sorted(name for name in set(os.listdir()) - before if name not in visible)
    assert not unnamed, f"{where}: a comment creates {', '.join(unnamed)}, which the text does not name"


def _run(block: Block, page: Path, where: str, namespace: dict[str, Any], printed: str) -> str:
    """Run one block; return what Python printed, for a following <!-- output -->."""
    if block.file_name:
        target = Path(block.file_name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.code)
    if block.language in ("yaml", "toml", "json", "jsonl"):
        _parse(block)
    elif block.language == "console":
        _run_console(block.code, where)
    elif block.language == "text":
        assert "output" not in block.notes or _matches(block.code, printed), f"{where}: printed was\n{printed}"
    elif not block.file_name:
        code = compile("\n" * block.line + block.code, str(page), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, namespace)
        return out.getvalue()
    return printed


def _parse(block: Block) -> None:
    if block.language == "yaml":
        list(yaml.safe_load_all(block.code))
    elif block.language == "toml":
        tomllib.loads(block.code)
    else:
        for document in block.code.splitlines() if block.language == "jsonl" else [block.code]:
            json.loads(document)


def commands_of(code: str) -> list[tuple[str, str]]:
    """Return (command, expected output) for each command of a console block.

    Raises ValueError if there is text before the first command.
    """
    commands: list[tuple[str, str]] = []
    goes_on = False
    for line in code.splitlines():
        if goes_on or (commands and not commands[-1][1] and line.startswith("> ")):
            command = commands[-1][0] + "\n" + line.removeprefix("> ")
            commands[-1] = (command, "")
            goes_on = line.endswith("\\")
        elif line.startswith("$ "):
            commands.append((line[2:], ""))
            goes_on = line.endswith("\\")
        elif commands:
            commands[-1] = (commands[-1][0], commands[-1][1] + line + "\n")
        elif line.strip():
            raise ValueError(f"a console block begins with '$ ', not with {line!r}")
    return commands


def _run_console(code: str, where: str) -> None:
    """Run all commands in one bash; a random line separates their outputs."""
    commands = commands_of(code)
    separator = f"--- {os.urandom(8).hex()}"
    script = "".join(f"{command}\nprintf '%s %s\\n' '{separator}' $?\n" for command, _ in commands)
    done = subprocess.run(
        ["bash", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=SECONDS,
        env=_environment(),
        check=False,
    )
    fields = re.split(f"{separator} ([0-9]+)\n", done.stdout)
    assert len(fields) == 2 * len(commands) + 1, f"{where}: bash ended early:\n{done.stdout}"
    for (command, expected), printed, status in zip(commands, fields[::2], fields[1::2], strict=False):
        assert status == "0", f"{where}: {command} ended with {status}:\n{printed}"
        assert not expected.strip() or _matches(expected, printed), f"{where}: {command} printed\n{printed}"


def _matches(expected: str, printed: str) -> bool:
    """Compare a text with the expected one, in which `...` matches anything; ignore trailing spaces."""
    pattern = ""
    for line in (line.rstrip() for line in expected.strip("\n").splitlines()):
        words = [re.escape(fragment) for fragment in line.split("...")]
        pattern += r"(?:.*\n)*?" if line.strip() == "..." else "[^\n]*".join(words) + "\n"
    given = "".join(line.rstrip() + "\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, given) is not None
