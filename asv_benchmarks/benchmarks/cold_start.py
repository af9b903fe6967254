"""The start-up time of the command line."""

from __future__ import annotations

import subprocess
import sys
import time

from .common import row


def wall_seconds(*command: str) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


class ColdStart:
    timeout = 120

    @row("`fastpack --help`, in addition to `python -c pass`", "ms (less is better)")
    def track_help(self) -> float:
        pairs = [
            (
                wall_seconds(sys.executable, "-m", "fastpack", "--help"),
                wall_seconds(sys.executable, "-c", "pass"),
            )
            for _ in range(15)
        ]
        return (min(ours for ours, _ in pairs) - min(bare for _, bare in pairs)) * 1000
