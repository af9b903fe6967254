"""Run commands on a pseudo-terminal, as a user sees them."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass
class TerminalOutput:
    """The text on the terminal, and the exit code of the command (as `subprocess` defines it)."""

    text: str
    code: int


def run_on_terminal(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    keys: str = "",
    when: Callable[[str], bool] | None = None,
    send: str = "",
    columns: int = 100,
    stdout: int | None = None,
    timeout: float = 60,
) -> TerminalOutput:
    """Run `command` on a new terminal that types `keys` at once, and `send` as soon as `when(text so far)` is true.

    stdout: a descriptor for standard output, for a command with only its standard error on the terminal.
    """
    master, slave = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    full = {**os.environ, "TERM": "xterm", **(env or {})}
    full.pop("NO_COLOR", None) if env is None or "NO_COLOR" not in env else None

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # test runs in the background ignore it

    process = subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave if stdout is None else stdout,
        stderr=slave,
        env=full,
        preexec_fn=take_terminal,
    )
    os.close(slave)
    os.write(master, keys.encode())
    seen, deadline = bytearray(), time.monotonic() + timeout
    try:
        while time.monotonic() < deadline:
            if select.select([master], [], [], 0.05)[0]:
                try:
                    data = os.read(master, 1 << 16)
                except OSError:  # the last process on the terminal has ended
                    break
                if not data:
                    break
                seen += data
            if send and when is not None and when(seen.decode(errors="replace")):
                os.write(master, send.encode())
                send = ""
        else:
            raise TimeoutError(f"{command} after {timeout} s: {seen.decode(errors='replace')}")
        return TerminalOutput(seen.decode(errors="replace"), process.wait(timeout=60))
    finally:
        process.kill()
        process.wait()
        os.close(master)
