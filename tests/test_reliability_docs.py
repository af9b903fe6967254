"""docs/reliability.md names existing tests for every promise."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "reliability.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


def rows() -> list[list[str]]:
    """Return the cells of the tables of faults."""
    found, inside = [], False
    for line in TEXT.splitlines():
        inside = line.startswith("| fault |") or (inside and line.startswith("|"))
        if inside and not line.startswith(("| fault |", "|---")):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


@pytest.mark.parametrize(("path", "name"), NAMED, ids=str)
def test_named_tests_exist(path: str, name: str) -> None:
    defined = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if hasattr(node, "name")}
    assert name in defined


def test_every_promise_names_a_test() -> None:
    assert len(rows()) > 20
    for cells in rows():
        assert len(cells) == 3, cells
        assert re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`(, `tests/[\w/]+\.py::test_\w+`)*", cells[2]), cells
