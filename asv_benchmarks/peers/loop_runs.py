"""Run loops of loop_process.py in turn, each in a new process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from peers.table import shown

PROCESS = Path(__file__).with_name("loop_process.py")
OURS = "Fastpack"


class LoopFailure(Exception):
    """A loop did not answer; the message names the log."""


class Loops:
    """Runs loops of a module over the files in `folder`; `settings` are passed to each of them."""

    def __init__(self, module: str, peer_python: str, folder: Path, **settings: Any) -> None:
        self.peer_python, self.folder = peer_python, folder
        self.settings = {"module": module, "folder": str(folder), **settings}
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
        self.environment |= {"HF_HOME": str(folder / "huggingface"), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise modules can be compiled in every run

    def ask(self, loop: str, task: str, **settings: Any) -> dict[str, Any]:
        """Return the answer of a new process."""
        job = {**self.settings, "loop": loop, "task": task, **settings}
        python = sys.executable if loop.startswith(OURS) else self.peer_python
        log = self.folder / f"{loop}.log"
        with log.open("a") as errors:
            job["started"] = time.monotonic()
            process = subprocess.Popen(
                [python, str(PROCESS), json.dumps(job)],
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # some systems leave threads and processes that delay the exit
        process.communicate()
        if not line:
            last = (log.read_text().splitlines() or ["no output"])[-1]
            raise LoopFailure(f"{loop}, {task}: {last} (see {log})")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def measure(self, loops: list[tuple[str, dict[str, Any]]], task: str, rounds: int) -> list[list[dict[str, Any]]]:
        """Return the answers of each loop, which take turns."""
        found: list[list[dict[str, Any]]] = [[] for _ in loops]
        for _ in range(rounds):
            for (loop, settings), answers in zip(loops, found, strict=True):
                answers.append(self.ask(loop, task, **settings))
        return found


def best(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the best figures of the rounds of `measure`: rates from opening to the end, and [CPU, wall] seconds."""
    cpu, wall = (min(a["epoch"][k] - a["imports"][k] for a in answers) for k in (0, 1))
    least = {name: [min(a[name][k] for a in answers) for k in (0, 1)] for name in ("first", "imports")}
    n = answers[0]["samples"]
    return {"samples_per_cpu_second": n / cpu, "samples_per_second": n / wall, **least}


def seconds(pair: list[float]) -> str:
    """Format CPU and wall seconds."""
    return " / ".join(map(shown, pair)) + " s"
