"""Access to stores for a process that was forked from one that used them.

obstore runs threads, which do not survive a fork: in the child, every call would wait forever. Therefore the child
starts a new process that does its calls; arguments and results go through its standard input and output.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import wait
from typing import IO, Any

_helpers: dict[int, Helper] = {}  # process -> its helper
_lock = threading.Lock()
ANSWER_SECONDS = 600.0  # longer than all attempts of a request
END_SECONDS = 5.0


def _renew_lock() -> None:
    """In a forked child: another thread of the parent may have held the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def helper() -> Helper:
    """Return this process's helper, which is started on the first call."""
    with _lock:
        found = _helpers.get(os.getpid())
        if found is None or found.has_ended():
            _helpers.clear()  # of the parent
            found = _helpers[os.getpid()] = Helper()
        return found


class Helper:
    """A process that calls functions of `stores`, one at a time. It ends with its standard input."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", "from fastpack.io.stores import serve; serve()"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._lock, self._pid = threading.Lock(), os.getpid()

    def ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Return the result of `stores.NAME(*arguments, **options)`, or raise its exception."""
        with self._lock:
            try:
                _send(self._requests, (name, arguments, options))
                # An upload may be of any size.
                if name != "upload" and not wait([self._answers.fileno()], ANSWER_SECONDS):
                    raise TimeoutError
                good, answer = pickle.load(self._answers)
            except TimeoutError:
                self._process.kill()
                text = f"the helper process for remote files did not respond to `{name}` for {ANSWER_SECONDS:.0f} s"
                raise OSError(f"{text}, and was killed") from None
            except (OSError, EOFError):
                code = _end(self._process)
                raise OSError(f"the helper process for remote files ended with {code}") from None
            except BaseException:  # interrupted: its response would be read as that of the next request
                self._process.kill()
                raise
        if good:
            return answer
        raise answer

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def __del__(self) -> None:
        process = self.__dict__.get("_process")
        if process is not None and self._pid == os.getpid():
            self._requests.close()
            self._answers.close()
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process to end, and kill it after END_SECONDS; return its exit code."""
    try:
        return process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def answer_requests(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Call the requested functions until standard input ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            name, arguments, options = pickle.load(requests)
        except EOFError:
            return
        try:
            good, answer = True, functions[name](*arguments, **options)
            if isinstance(answer, memoryview):
                answer = bytes(answer)
        except Exception as error:
            good, answer = False, error
        _send(answers, (good, answer))


def _send(stream: IO[bytes], message: Any) -> None:
    pickle.dump(message, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()
