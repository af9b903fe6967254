"""Peak memory of `convert` for a file that is larger than it may be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack.cli.options import FORMATS

N_BYTES, LIMIT = 400_000_000, 200_000_000
SCRIPT = """
import sys
from fastpack.cli import main
assert main(sys.argv[1:]) == 0
lines = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
print(int(lines["VmHWM"].split()[0]) * 1024)
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/status")
def test_memory_of_every_format(tmp_path: Path) -> None:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        for _ in range(N_BYTES // 20_000_000):
            writer.append_many(np.arange(10_000_000, dtype=np.uint32) % 60_000, [1000] * 10_000)
    for name in FORMATS:
        for more in ([], ["--shard-tokens", "100M"]):
            words = ["convert", "a.pbin", "-o", f"out/{name}", "--to", name, "-q", *more]
            done = subprocess.run(
                [sys.executable, "-c", SCRIPT, *words], cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            shutil.rmtree(tmp_path / "out")
            assert int(done.stdout.split()[-1]) < LIMIT, (name, more)
