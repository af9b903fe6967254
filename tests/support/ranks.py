"""Run the ranks of a command as processes, and kill them at random."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

COMMAND = [sys.executable, "-c", "import sys; from fastpack.cli import main; sys.exit(main(sys.argv[1:]))"]


def run(words: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command in `folder`."""
    environment = {**os.environ, **(env or {})}
    return subprocess.run([*COMMAND, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def run_and_kill(words: Sequence[str], folder: Path, n_ranks: int, kills: int, seed: int) -> int:
    """Run all ranks at once, and again until none was killed; return how many kills hit a running process."""
    rng = random.Random(seed)
    hits = 0
    while True:
        started = [
            subprocess.Popen(
                [*COMMAND, *words, "--rank", str(rank), "--world-size", str(n_ranks)],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(n_ranks)
        ]
        if hits < kills:
            time.sleep(rng.uniform(0.2, 0.9))
            victim = rng.choice(started)
            victim.kill()
        codes = []
        for process in started:
            _, errors = process.communicate(timeout=120)
            codes.append(process.returncode)
            assert process.returncode in (0, -9), errors
        if -9 not in codes:
            if hits >= kills:
                return hits
            kills -= 1  # the process had already ended
        else:
            hits += 1
