"""Encode batches in new processes; results come in order, and a bounded number of batches is in flight.

A worker is a new interpreter, which does not import the user's main module. In a process with a single thread, as that
of the command line, it is a fork, which starts in 10 ms with the tokenizer that is loaded. It communicates over a
socket and watches a pipe that only its parent keeps open: when the parent dies, for whatever reason, the worker exits.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import current_process, get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from fastpack.errors import JobError
from fastpack.packing.chat_encoder import build_encoder
from fastpack.packing.encoder import Batch, Encoded, Encoder, EncoderSpec
from fastpack.tokenizers.interface import Tokenizer

_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from fastpack.packing.worker_pool import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
# One thread per worker: the library's own pool would run CPUs x workers threads, and BLAS threads cost memory.
_ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
RESULTS_PER_WORKER = 2  # finished or running batches per worker ahead of the writer
GRACE_SECONDS = 5.0
_THREADS = "/proc/self/task"  # Linux: a folder for each thread, also of libraries


def can_fork() -> bool:
    """Return whether workers can be forked: this process has one thread, so no lock is held by another."""
    try:
        return len(os.listdir(_THREADS)) == 1 and not current_process().daemon  # which may not have children
    except OSError:
        return False


class WorkerPool:
    """Worker processes that encode batches; a context manager that ends them.

    tokenizer: that of the encoders, which forked workers use.
    """

    def __init__(self, spec: EncoderSpec, n_workers: int, tokenizer: Tokenizer | None = None) -> None:
        self._lifeline, self._lifeline_write = os.pipe()
        self._workers: list[_Worker] = []
        encoder = build_encoder(spec, tokenizer) if tokenizer is not None and can_fork() else None
        try:
            for _ in range(n_workers):
                if encoder is None:
                    worker = _Worker(lambda channel, _: _Interpreter(channel, self._lifeline))
                    worker.send(spec)
                else:
                    worker = _Worker(lambda *ends: _Fork(self._forked, encoder, *ends))
                self._workers.append(worker)
        except BaseException:
            self.close(kill=True)
            raise

    def encode(self, batches: Iterable[Batch]) -> Iterator[Encoded]:
        """Yield the encoded batches in order. Raises JobError when a worker fails or dies."""
        tasks = enumerate(batches)
        task = next(tasks, None)
        done: dict[int, Encoded] = {}
        idle = list(self._workers)
        busy: dict[Connection, _Worker] = {}
        turn = 0
        ahead = RESULTS_PER_WORKER * len(self._workers)
        while task is not None or busy or done:
            while task is not None and idle and task[0] < turn + ahead:
                worker = idle.pop()
                worker.give(*task)
                busy[worker.connection] = worker
                task = next(tasks, None)
            if turn in done:
                yield done.pop(turn)
                turn += 1
                continue
            for connection in wait(list(busy)):
                worker = busy.pop(connection)  # type: ignore[call-overload]
                done[worker.number] = worker.take()
                idle.append(worker)

    def _forked(self, encoder: Encoder, channel: int, parents: Connection) -> None:
        """Run in a forked worker: close the parent's ends of the sockets and of the pipe, then serve."""
        for connection in (parents, *(worker.connection for worker in self._workers)):
            connection.close()
        os.close(self._lifeline_write)
        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        os.environ.update(_ENVIRONMENT)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        serve(channel, self._lifeline, lambda _: encoder)

    def close(self, kill: bool = False) -> None:
        """End the workers: waiting workers exit by themselves, the others are killed."""
        for worker in self._workers:
            worker.end(kill)
        for fd in (self._lifeline, self._lifeline_write):
            with contextlib.suppress(OSError):
                os.close(fd)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(kill=kind is not None)


class _Process(Protocol):
    """What a worker needs of its process; the exit code is negative for a signal."""

    @property
    def returncode(self) -> int | None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class _Interpreter(subprocess.Popen[bytes]):
    """A new interpreter that serves on a channel."""

    def __init__(self, channel: int, lifeline: int) -> None:
        super().__init__(
            [sys.executable, "-c", _START, json.dumps(sys.path), str(channel), str(lifeline)],
            pass_fds=(channel, lifeline),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT},
        )


class _Fork:
    """A forked process that runs a function."""

    def __init__(self, run: Callable[..., None], *arguments: Any) -> None:
        self._process = get_context("fork").Process(target=run, args=arguments)
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
        return self._process.exitcode


class _Worker:
    """A worker. start: starts a process that serves on the descriptor of a socket, whose other end is the parent's."""

    def __init__(self, start: Callable[[int, Connection], _Process]) -> None:
        self.number = -1  # of the current batch
        self._path = "the first lines"
        ours, theirs = socket.socketpair()
        with theirs:
            self.connection = Connection(ours.detach())
            self._process = start(theirs.fileno(), self.connection)

    def give(self, number: int, batch: Batch) -> None:
        self.number, self._path = number, batch.path
        self.send(batch)

    def take(self) -> Encoded:
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if isinstance(answer, str):
            raise JobError(f"a tokenising process failed on {self._path}: {answer}")
        return Encoded(*answer)

    def end(self, kill: bool) -> None:
        """Close the connection, so that a waiting worker exits; kill the worker on request or after a grace period."""
        self.connection.close()
        if kill:
            self._process.kill()
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def send(self, message: Any) -> None:
        try:
            self.connection.send(message)
        except OSError:
            raise self._died() from None

    def _died(self) -> JobError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        code = self._process.returncode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"killed by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"signal {-code}"
            how += " (out of memory?)" if -code == signal.SIGKILL else ""
        return JobError(f"a tokenising process died ({how}) while packing {self._path}; nothing was written")


def main(channel: int, lifeline: int) -> None:
    """Run a worker in its own interpreter: receive an EncoderSpec, then serve."""
    serve(channel, lifeline, lambda connection: build_encoder(connection.recv()))


def serve(channel: int, lifeline: int, encoder_of: Callable[[Connection], Encoder]) -> None:
    """Receive batches and send each result; exit when the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent decides
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    connection = Connection(channel)
    try:
        encoder = encoder_of(connection)
        while True:
            connection.send(tuple(encoder.encode(connection.recv())))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        with contextlib.suppress(OSError):
            connection.send(f"{type(error).__name__}: {error}")


def _end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # nothing is ever written: this returns when the last writing end is closed
    os._exit(1)
