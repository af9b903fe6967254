"""Stores for a process that was forked from one that used them.

obstore runs threads, and threads do not survive a fork: in the child, every call would wait for ever. So a child has
a process of its own, started afresh, do its calls; arguments and answers go through its standard input and output.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from typing import IO, Any

from fastpack.files import remote

_helpers: dict[int, Helper] = {}  # process -> its helper
_lock = threading.Lock()


def helper() -> Helper:
    """This process's helper, started at its first call."""
    with _lock:
        found = _helpers.get(os.getpid())
        if found is None:
            _helpers.clear()  # those of the parent
            found = _helpers[os.getpid()] = Helper()
        return found


class Helper:
    """A process that calls functions of `remote`, one at a time. It ends when its standard input does."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", "from fastpack.files.remote_helper import serve; serve()"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._lock, self._pid = threading.Lock(), os.getpid()

    def ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        """What `remote.name(*arguments, **options)` returns or raises there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                _send(self._process.stdin, (name, arguments, options))
                good, answer = _receive(self._process.stdout)
            except (OSError, EOFError):
                raise OSError(f"the helper process for remote files ended with {self._process.wait()}") from None
        if good:
            return answer
        raise answer

    def __del__(self) -> None:
        process = self.__dict__.get("_process")
        if process is not None and self._pid == os.getpid():
            process.stdin.close()
            process.stdout.close()
            process.wait()


def serve() -> None:
    """Answer until standard input ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            name, arguments, options = _receive(requests)
        except EOFError:
            return
        try:
            good, answer = True, getattr(remote, name)(*arguments, **options)
        except Exception as error:
            good, answer = False, error
        _send(answers, (good, answer))


def _send(stream: IO[bytes], message: Any) -> None:
    pickle.dump(message, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    return pickle.load(stream)
