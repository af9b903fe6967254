"""Plans of very many documents: time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "asv_benchmarks" / "plan_scale.py"


@pytest.mark.long
def test_100_million_documents_take_a_minute_and_3_gigabytes(tmp_path: Path) -> None:
    """And shards add less than a thousandth of the rows. The files take 1.5 GB."""
    command = [sys.executable, str(SCRIPT), "--folder", str(tmp_path), "--documents", "100000000"]
    command += ["--shard-documents", str(1 << 26), "10000000", "--seq-len", "2048"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    whole, sharded = map(json.loads, found.splitlines())
    for plan in (whole, sharded):
        assert plan["documents"] == 100_000_000
        assert plan["cpu_s"] <= 60
        assert plan["rss_mb"] <= 3000
        assert plan["bytes_per_document"] <= 8
    assert sharded["rows"] <= 1.001 * whole["rows"]
