"""Run the ranks of a command as processes, and kill them at random."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from command_line import run_process, started

COMMAND = [sys.executable, "-c", "import sys; from fastpack.cli import main; sys.exit(main(sys.argv[1:]))"]


def run(words: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command in `folder`."""
    return run_process([*COMMAND, *words], cwd=folder, env={**os.environ, **(env or {})})


def run_and_kill(words: Sequence[str], folder: Path, n_ranks: int, kills: int, seed: int) -> int:
    """Run all ranks at once, and again until none was killed; return how many kills hit a running process."""
    rng = random.Random(seed)
    hits = 0
    while True:
        codes = []
        with ExitStack() as stack:
            commands = (
                [*COMMAND, *words, "--rank", str(rank), "--world-size", str(n_ranks)] for rank in range(n_ranks)
            )
            options = {"cwd": folder, "stdout": subprocess.DEVNULL}
            processes = [stack.enter_context(started(command, **options)) for command in commands]
            if hits < kills:
                time.sleep(rng.uniform(0.2, 0.9))
                rng.choice(processes).kill()
            for process in processes:
                _, errors = process.communicate(timeout=300)
                codes.append(process.returncode)
                assert process.returncode in (0, -9), errors
        if -9 not in codes:
            if hits >= kills:
                return hits
            kills -= 1  # the process had already ended
        else:
            hits += 1
