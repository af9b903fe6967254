"""The Python code of the README runs unchanged in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_python_block_needs_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = BLOCKS
    exec(compile(block, str(README), "exec"), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "python.idx",
        "python.jsonl",
        "python.pbin",
        "python.pbin.fptok",
    ]
