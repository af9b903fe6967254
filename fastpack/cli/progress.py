"""Progress on stderr: a bar on a terminal, else a line every 10 seconds."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from fastpack.cli.streams import unescaped
from fastpack.escape import escape_line

Progress = Callable[[int, int], None]
SHOWN_AFTER = 0.3  # seconds; a bar for shorter work would only flicker
LOG_EVERY = 10.0  # seconds


def progress(
    args: argparse.Namespace, label: str | Callable[[], str], unit: str = "B", *, at_once: bool = False
) -> Progress | None:
    """Return a callback (done, total), in bytes or `unit`: a bar on a terminal, else a line per 10 s; None if disabled.

    label: may change on the way. It may start over, for another file. at_once: show a bar before anything is done. What
    is left of a bar goes away by `end_progress`, which `main` calls.
    """
    if args.quiet or args.no_progress:
        return None

    def text() -> str:
        return escape_line(label() if callable(label) else label)

    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        bar = _Bar(text, unit)
        _bars.append(bar)
        if at_once:
            bar.start(delay=0)
        return bar
    return _LogLines(text, unit)


def end_progress() -> None:
    """Remove the bars from the terminal, after the command has finished or failed."""
    while _bars:
        _bars.pop().close()


def clear_progress() -> None:
    """Clear the bars, so that a message can be printed; they are drawn again on the next update."""
    for bar in _bars:
        bar.clear()


class _Bar:
    """A bar on the terminal, shown while work is in progress."""

    def __init__(self, label: Callable[[], str], unit: str) -> None:
        self._label = label
        self._started = time.monotonic()
        self._settings: dict[str, Any] = {"unit": unit, "unit_scale": True}
        if unit == "B":
            self._settings["unit_divisor"] = 1024
        else:
            self._settings["unit"] = f" {unit}"
        self._bar: Any = None

    def start(self, delay: float = SHOWN_AFTER) -> None:
        """Show the bar after a delay in seconds."""
        from tqdm import tqdm

        tqdm.monitor_interval = 0  # its thread would exist when workers are forked
        self._bar = tqdm(**self._settings, leave=False, delay=delay, dynamic_ncols=True, file=unescaped(sys.stderr))
        self._bar.set_description_str(self._label())  # no total yet: tqdm adds the colon

    def count(self, documents: int, tokens: int) -> None:
        """Show the rates of documents and tokens that are done."""
        if self._bar is not None:
            self._bar.set_postfix_str(_rates(documents, tokens, time.monotonic() - self._started), refresh=False)

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None and done < total:
            self.start()
        if self._bar is not None:
            self._bar.set_description(self._label(), refresh=False)
            self._bar.total = total
            self._bar.update(done - self._bar.n)
            if done >= total:
                self.close()

    def clear(self) -> None:
        if self._bar is not None:
            self._bar.clear()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _LogLines:
    """A line on stderr every 10 seconds."""

    def __init__(self, label: Callable[[], str], unit: str) -> None:
        self._label, self._unit = label, unit
        self._started = self._last = time.monotonic()
        self._done = 0
        self._packed: tuple[int, int] | None = None

    def count(self, documents: int, tokens: int) -> None:
        """Receive the number of documents and tokens that are done."""
        self._packed = documents, tokens

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done < self._done:
            self._started = now
        self._done = done
        if now - self._last < LOG_EVERY:
            return
        self._last = now
        rate = done / max(now - self._started, 1e-9)
        left = f"{(total - done) / rate:.0f} s left" if rate else "ETA unknown"
        speed = f"{rate / 2**20:.1f} MiB/s" if self._unit == "B" else f"{rate:,.1f} {self._unit}/s"
        if self._packed is not None and any(self._packed):
            speed += f", {_rates(*self._packed, now - self._started)}"
        print(f"{self._label()}: {done / max(total, 1):.0%}, {speed}, {left}", file=sys.stderr)


def _rates(documents: int, tokens: int, seconds: float) -> str:
    """Return the rates of what is counted."""
    counts = {"documents": documents, "tokens": tokens}
    return ", ".join(f"{n / max(seconds, 1e-9):,.0f} {name}/s" for name, n in counts.items() if n)


_bars: list[_Bar] = []
