"""Writes tests/golden/runs/version-N: what `loader.describe()` returns for the runs of `described_runs`, and the
samples that each rank was given at each step. Run by hand when the version of the format grows; the files of a version
are never changed:

PYTHONPATH=tests/support python tests/golden/make_run_descriptions.py
"""

import json
import os
import tempfile
from pathlib import Path

from described_runs import RUNS, run, write_data

root = Path(__file__).resolve().parent / "runs"
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    write_data(Path())
    for name in RUNS:
        description, samples = run(name)
        target = root / f"version-{description['version']}" / f"{name}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise SystemExit(f"{target} exists: the files of a version are never changed")
        with target.open("w") as file:
            json.dump({"description": description, "samples": samples}, file, separators=(",", ":"))
            file.write("\n")
    os.chdir(root)
