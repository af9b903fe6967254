"""Run a check in a forked process."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable


def check_in_a_fork(check: Callable[[], object], seconds: int = 60) -> None:
    """Fail if `check` raises in a child of this process, or does not end in time."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(seconds)
            check()
            code = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
