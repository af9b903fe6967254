"""The notebook: its cells run one after the other, each shows its value, and it is stored without outputs."""

from __future__ import annotations

import ast
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import fastpack

NOTEBOOK = Path(__file__).parents[2] / "examples" / "pack_and_train.ipynb"
CELLS = json.loads(NOTEBOOK.read_text())["cells"]


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as Jupyter does; return the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


def test_its_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [run("".join(cell["source"]), names) for cell in CELLS if cell["cell_type"] == "code"]
    tables = [type(value) for value in shown if hasattr(value, "_repr_html_")]
    assert tables == [
        fastpack.PackResult,
        fastpack.PackedFile,
        fastpack.PlanResult,
        fastpack.PlannedDataset,
        fastpack.StatefulDataLoader,
    ]
    assert names["losses"][-1] < names["losses"][0]
    assert len(names["losses"]) == 100
    (folder,) = tmp_path.iterdir()
    assert folder == names["folder"]


def test_it_is_stored_without_outputs() -> None:
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in CELLS if "outputs" in cell)
    assert len({cell["id"] for cell in CELLS}) == len(CELLS)
