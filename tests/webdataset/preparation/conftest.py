"""A folder of shards to prepare."""

from __future__ import annotations

from pathlib import Path

import pytest
from preparing import write_tar


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Four shards of two samples each."""
    for i in range(4):
        write_tar(tmp_path / f"ds/s{i}.tar", [f"{i}_{k}.{field}" for k in "ab" for field in ("json", "txt")])
    return tmp_path / "ds"
