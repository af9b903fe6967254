"""Names in the pages exist: `fastpack.NAME` in Python, `fastpack COMMAND` on the command line."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from command_line import commands

import fastpack

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"\bfastpack\.(\w+)(?:\.(\w+))?")
COMMAND = re.compile(r"^(?:\$ )?fastpack (?:data )?([a-z][\w-]*)(?![\w.-]*[./])")


def exists(name: str, within: str) -> bool:
    if name == "torch":  # which may not be installed
        return not within or f'"{within}",' in (Path(fastpack.__file__).parent / "torch" / "__init__.py").read_text()
    if hasattr(fastpack, name):
        return not within or name == "kernels" or hasattr(getattr(fastpack, name), within)
    return importlib.util.find_spec(f"fastpack.{name}") is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_exist(page: Path) -> None:
    text = page.read_text()
    known = set(commands())
    for span in CODE.findall(text):
        for name, within in NAME.findall(span):
            if name not in ("py", "json", "1"):
                assert exists(name, within), f"{page.name}: {span}: fastpack.{name} {within} does not exist"
        if named := COMMAND.match(span):
            assert named[1] in {*known, "help"}, f"{page.name}: {span}: unknown command"
