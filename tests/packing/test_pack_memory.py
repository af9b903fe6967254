"""The memory of packing a gigabyte of Parquet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra arrow")

import pyarrow as pa
import pyarrow.parquet as pq

LIMIT = 300 << 10  # KiB
MEASURED = """
import sys
from fastpack.cli import main
code = main(sys.argv[1:])
(peak,) = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(peak, code)
"""


def write_a_gigabyte(path: Path) -> None:
    """Write one row group of 1 GB of text."""
    text = "some words of a document " * 160
    array = pa.array([f"{number} {text}" for number in range(2500)])
    table = pa.table({"text": pa.chunked_array([array] * (1_000_000_000 // array.nbytes + 1))})
    pq.write_table(table, path, row_group_size=len(table), use_dictionary=False)


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/status")
def test_memory_of_a_gigabyte_of_parquet(tmp_path: Path) -> None:
    write_a_gigabyte(tmp_path / "docs.parquet")
    assert pq.ParquetFile(tmp_path / "docs.parquet").num_row_groups == 1
    pack = ["pack", "docs.parquet", "--tokenizer", "bytes", "--num-workers", "1", "-o", "docs.pbin"]
    for words in (pack, ["info", "docs.parquet"], ["preview", "docs.parquet"]):
        run = [sys.executable, "-c", MEASURED, *words, "-q"]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
        peak, code = map(int, done.stdout.split()[-2:])
        assert code == 0, done.stderr
        assert peak < LIMIT, f"{words}: {peak / 1024:.0f} MiB"
