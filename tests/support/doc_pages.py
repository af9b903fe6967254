"""Runs the code blocks of a Markdown page in order, in one folder and one Python namespace that is empty at first.

So the page runs as for a reader, who sees nothing of its comments. What a block is run as stands in its fence; every
other word there is an error:

    ```python     run in this process; `assert` what a reader should rely on
    ```console    lines of `$ ` are commands for bash; what stands below is what they print. One bash a block: `cd`
                  and variables last to its end. A command goes on behind a last backslash, and in lines of `> `.
                  `...` stands for anything within a line, and, alone on a line, for any lines. Nothing below: any
                  output. A command that does not end with 0 fails the page (`fastpack verify bad.pbin || echo $?`).
    ```yaml, ```toml, ```json, ```jsonl    must parse
    ```text       pictures; neither run nor compared

A block whose first line is a name alone, as in `# train.py`, `# config.yaml`, `# pyproject.toml`, is written to that
file and not run. So is any block behind the comment `<!-- file: corpus.jsonl -->`.

Comments on a line of their own, right before the block (several may follow each other):

    <!-- needs: torch, torchrun -->    modules, or commands on the PATH; where one is missing the block is left out, and
                                       the test of the page ends as skipped, with the line and what was missing
    <!-- not run: it mounts -->        why; test_pages.py lists the pages that may, and how often
    <!-- output -->                    before ```text: what the python block before has printed, compared as above

Comments anywhere on a page, best at its top:

    <!-- given:                        Python that makes files that a reader has and the text names ("your own files"):
    Path("corpus.jsonl").write_...     run where it stands, as are blocks, but in a namespace of its own, in which
    -->                                `Path` and `np` are; a file that the text does not name is an error
    <!-- in a checkout -->             `examples` and `asv_benchmarks` are links in the page's folder
    <!-- slow: trains -->              the page is tested by `pytest -m slow` alone
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
    """What is to be run: its language ("given" for a stand-in), its code, the line it begins on, and its comments."""

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
        """The modules and commands it needs that are not there."""
        names = [name.strip() for name in self.notes.get("needs", "").split(",") if name.strip()]
        return [name for name in names if not _is_there(name)]


def _is_there(name: str) -> bool:
    if shutil.which(name, path=_environment()["PATH"]):
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package that the module is in
        return False


def _environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**os.environ, "PATH": path, "COLUMNS": "120", "PYTHONWARNINGS": "default"}


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page, in order.

    Raises:
        ValueError: a fence without language, of an unknown one or without end; a comment that lacks its reason.
    """
    found = [Block("given", match["code"], _line(text, match)) for match in GIVEN.finditer(text)]
    for match in FENCE.finditer(text):
        language, line = match["language"].strip(), _line(text, match)
        if language not in LANGUAGES:
            raise ValueError(f"line {line}: a block of {language!r}; known are {', '.join(LANGUAGES)}")
        code = re.sub(f"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        found.append(Block(language, code, line, _notes_before(text[: match.start()], line)))
    if len(re.findall(r"^ *```", text, re.MULTILINE)) != 2 * sum(block.language != "given" for block in found):
        raise ValueError("a fence that is not closed, or is of more than three backticks")
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
            raise ValueError(f"line {line}: <!-- {comment['what']} --> does not say what")
        notes[comment["what"]] = comment["value"] or ""
    return notes


def page_notes(text: str) -> dict[str, str]:
    """The comments that hold for the whole page: "in a checkout" and "slow"."""
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
    """Runs the page's blocks in an empty folder; a line for every block that was left out.

    Raises:
        AssertionError: a command failed, or printed something else than the page says; it names page and line.
        Exception: whatever a Python block raises; its traceback names page and line.
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
    """Runs Python that readers do not see; the visible text has to name the files that it makes."""
    before = set(os.listdir())
    exec(compile("\n" * block.line + block.code, str(page), "exec"), {"__name__": "__given__", "Path": Path, "np": np})
    unnamed = sorted(name for name in set(os.listdir()) - before if name not in visible)
    assert not unnamed, f"{where}: a comment makes {', '.join(unnamed)}, of which the text says nothing"


def _run(block: Block, page: Path, where: str, namespace: dict[str, Any], printed: str) -> str:
    """Runs one block; what Python has printed for the <!-- output --> behind it."""
    if block.file_name:
        target = Path(block.file_name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.code)
    if block.language in ("yaml", "toml", "json", "jsonl"):
        _parse(block)
    elif block.language == "console":
        _run_console(block.code, where)
    elif block.language == "text":
        assert "output" not in block.notes or _fits(block.code, printed), f"{where}: printed was\n{printed}"
    elif not block.file_name:
        code = compile("\n" * block.line + block.code, str(page), "exec")
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
    """(command, expected output) of a console block.

    Raises:
        ValueError: something stands before the first command.
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
    """One bash runs all commands; a line that no command prints parts their outputs."""
    commands = commands_of(code)
    mark = f"--- {os.urandom(8).hex()}"
    script = "".join(f"{command}\nprintf '%s %s\\n' '{mark}' $?\n" for command, _ in commands)
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
    parts = re.split(f"{mark} ([0-9]+)\n", done.stdout)
    assert len(parts) == 2 * len(commands) + 1, f"{where}: bash ended early:\n{done.stdout}"
    for (command, expected), printed, status in zip(commands, parts[::2], parts[1::2], strict=False):
        assert status == "0", f"{where}: {command} ended with {status}:\n{printed}"
        assert not expected.strip() or _fits(expected, printed), f"{where}: {command} printed\n{printed}"


def _fits(expected: str, printed: str) -> bool:
    """Whether a text is the expected one, `...` standing for anything; spaces at the ends of lines do not count."""
    pattern = ""
    for line in (line.rstrip() for line in expected.strip("\n").splitlines()):
        words = [re.escape(part) for part in line.split("...")]
        pattern += r"(?:.*\n)*?" if line.strip() == "..." else "[^\n]*".join(words) + "\n"
    given = "".join(line.rstrip() + "\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, given) is not None
