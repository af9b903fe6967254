"""The two interpreters of the comparison: creation of the peer's environment, requests with a timeout."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RUNNER = Path(__file__).with_name("runner.py")
TORCH_FOR_CPU = "https://download.pytorch.org/whl/cpu"
# 0.5.0 imports transformers.models.llama.tokenization_llama_fast, which transformers 5 does not have.
REQUIREMENTS = ("modalities==0.5.0", "transformers<5")


class PeerFailure(Exception):
    """A side raised an error, ended, or did not answer in time; the message contains the cause."""


def make_peer(folder: Path, requirements: Sequence[str] = REQUIREMENTS, *, torch: bool = True) -> Path:
    """Return the Python of a virtual environment with the peer; create it once (about 2 GB for modalities 0.5.0)."""
    python = folder / "bin" / "python"
    done = folder / "complete"
    if not done.exists():
        print(f"creating {folder} (once)", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "-q"]
        if torch and subprocess.run([*pip, "torch", "--index-url", TORCH_FOR_CPU], check=False).returncode:
            print("no CPU-only build of torch; installing the default build", file=sys.stderr)
        subprocess.run([*pip, *requirements], check=True)
        done.touch()
    return python


class Side:
    """A runner process: `ask()` sends one request and waits for its answer."""

    def __init__(self, name: str, python: str, folder: Path, timeout: float, log: Path) -> None:
        self.name, self.timeout = name, timeout
        self._command, self._folder, self._log = [python, str(RUNNER), name], folder, log
        self._process: subprocess.Popen[str] | None = None
        self.ready: dict[str, Any] = {}

    def start(self) -> None:
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONWARNINGS": "ignore",
        }
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=environment,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.ready = self._answer()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the runner's answer or raise PeerFailure; if the process ended, the next call starts another."""
        if self._process is None:
            self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise PeerFailure(f"{self.name}: {answer['error']}")
        return answer

    def stop(self) -> None:
        """End the process and its children."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            in_time = bool(selector.select(self.timeout))
        line = self._process.stdout.readline() if in_time else ""
        if not line:
            why = "ended without an answer" if in_time else f"no answer in {self.timeout:.0f} s"
            self.stop()
            raise PeerFailure(f"{self.name}: {why} (see {self._log})")
        answer: dict[str, Any] = json.loads(line)
        return answer
