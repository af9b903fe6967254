"""The table of what packing a corpus gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import fastpack


def test_the_table(
    load_example: Callable[[str], ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many(np.zeros(60, np.uint16), [40, 17, 3])
    load_example("packing_table").main([str(writer.path), "--seq-len", "32"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows == [
        "| 32 | best_fit | split | 2 | 6.25% | 1 | 0.0% |",
        "| 32 | best_fit, padded to 16 | split | 3 | 37.50% | 1 | 0.0% |",
        "| 32 | first_fit | split | 2 | 6.25% | 1 | 0.0% |",
        "| 32 | none | split | 2 | 6.25% | 1 | 0.0% |",
        "| 32 | best_fit | truncate | 2 | 18.75% | 0 | 13.3% |",
        "| 32 | best_fit | drop | 1 | 37.50% | 0 | 66.7% |",
    ]
