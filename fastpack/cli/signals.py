"""Signals: a command ends by an exception, so that partial files are removed."""

from __future__ import annotations

import signal
from types import FrameType

# Where Python loses an exception and continues: finalisers, and imports (importlib's callback on a module lock that is
# released; an interrupted parser starts over).
_SWALLOWING = frozenset({"__del__", "_find_and_load"})
# Where a signal waits: half a batch cannot be resumed, and the progress of an interrupted run is being written.
_UNDIVIDED = frozenset({"Packer._append_batch", "Packer._stop", "IndexWriter.suspend"})
_received: int = signal.SIGTERM  # the signal that asked the command to end


def handle_signals() -> None:
    """Install the handlers of SIGTERM and SIGINT."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGALRM, _end)  # set by _end itself, to try again
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background jobs ignore it
        signal.signal(signal.SIGINT, _end)


def restore_signals() -> None:
    """Stop trying to end the command, and restore Python's handler of SIGINT."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    """End the command by an exception; try again until one reaches the command."""
    global _received
    if number != signal.SIGALRM:
        _received = number
    while frame is not None:
        if frame.f_code.co_name in _SWALLOWING or frame.f_code.co_qualname in _UNDIVIDED:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            return
        frame = frame.f_back
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    if _received == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + _received)
