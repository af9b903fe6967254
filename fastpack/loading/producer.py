"""One background thread that makes batches ahead of the training loop.

Kernels release the GIL, so a thread of the training process fills batches beside it; a worker process would have to
send them, which costs ten times what making them does. The thread runs only while somebody may want its batches: it is
ended when its loader is gone, at the interpreter's exit, and before a fork (a forked child has no copy of it, and would
inherit whatever lock it held); whoever asks for a batch afterwards starts it again where it was.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple

from fastpack.loading.fetch import Fetch

PATIENCE = 5.0  # seconds to wait for a batch that is being made, before a fork and at exit


class Made(NamedTuple):
    """A batch and its number in the epoch, counted from 0; or why there is none."""

    number: int
    batch: Any
    error: BaseException | None = None


class Stop:
    """Tells one run of the thread to end."""

    asked = False


class Producer:
    """The batches of an epoch, made in order and ahead of time.

    plan: the samples of each batch. fetch: makes a batch of them; the thread calls it within its `session()`, where it
    has one. prefetch: how many batches may wait; 0 makes each when it is asked for, without a thread. number: of the
    plan's first batch. hint: called with the samples of each batch, `lookahead` batches before they are fetched.
    """

    def __init__(
        self,
        plan: Iterator[Any],
        fetch: Fetch,
        prefetch: int,
        number: int = 0,
        hint: Callable[[Any], object] | None = None,
        lookahead: int = 2,
    ) -> None:
        self._plan, self._fetch, self._hint = plan, fetch, hint
        self._number, self._lookahead = number, lookahead if hint else 0
        self._coming: deque[Any] = deque()  # taken from the plan, not yet made
        self._ready: SimpleQueue[Made | None] = SimpleQueue()
        self._room: SimpleQueue[bool] = SimpleQueue()  # True: room for one more batch; False: only look at `Stop`
        for _ in range(prefetch):
            self._room.put(True)
        self._plan_error: BaseException | None = None
        self._threaded = prefetch > 0
        self._thread: threading.Thread | None = None
        self._stop = Stop()
        # Its position is not known: in a forked child whose parent was still at work, and where an interrupt (Ctrl-C)
        # broke off `get`, or what its caller does until it sets this to False: a batch may have been taken.
        self.lost = False

    def get(self) -> Made | None:
        """The next batch, None at the end; raises what making it raised, and tries that batch again when called again.

        Its traceback leads to where it was raised in the background. `lost` is set until the caller says otherwise.
        """
        self.lost = True
        if not self._threaded:
            made = self._make()
        else:
            if self._thread is None or self._stop.asked:
                self._start()
            made = self._ready.get()
            if made is None or made.error is not None:
                self._end(None)
            if made is not None:
                self._room.put(True)
        if made is None or made.error is None:
            return made
        self.lost = not isinstance(made.error, Exception)  # an interrupt leaves a plan that is a generator finished
        try:
            raise made.error
        finally:
            del made  # or the error would refer to itself by its traceback, and hold what the dataset had in hand

    def end(self) -> None:
        """Let the thread end after the batch it is at, without waiting for it."""
        self._stop.asked = True
        self._room.put(False)

    def pause(self, patience: float | None) -> None:
        """End the thread and wait for it, so many seconds at most; the next `get` starts another."""
        if self._thread is not threading.current_thread():
            self.end()
            self._end(patience)

    def _end(self, patience: float | None) -> None:
        thread = self._thread
        if thread is not None:
            with suppress(RuntimeError):  # an interrupt came before it was started
                thread.join(patience)
            if not thread.is_alive():
                self._thread = None
                _RUNNING.discard(self)

    def _start(self) -> None:
        self._end(None)
        self._stop = Stop()
        # A daemon only so that a batch that never gets done cannot keep the interpreter from exiting.
        self._thread = threading.Thread(target=self._run, args=(self._stop,), name="fastpack-loader", daemon=True)
        _RUNNING.add(self)
        self._thread.start()

    def _run(self, stop: Stop) -> None:
        try:
            with self._fetch.session():
                while True:
                    room = self._room.get()
                    if stop.asked:
                        if room:
                            self._room.put(True)
                        return
                    if room and not self._deliver():
                        return
        finally:
            _RUNNING.discard(self)

    def _deliver(self) -> bool:
        """Make a batch and hand it on; whether there may be another. (Its own scope: it must not hold the batch.)"""
        made = self._make()
        self._ready.put(made)
        return made is not None and made.error is None

    def _make(self) -> Made | None:
        try:
            self._look_ahead()
            if not self._coming:
                if self._plan_error is not None:
                    raise self._plan_error
                return None
            batch = self._fetch(self._coming[0])
        except BaseException as error:
            return Made(self._number, None, self._described(error))
        self._coming.popleft()
        self._number += 1
        return Made(self._number - 1, batch)

    def _look_ahead(self) -> None:
        while len(self._coming) <= self._lookahead:
            try:
                samples = None if self._plan_error else next(self._plan, None)
            except BaseException as error:  # kept: a generator that failed looks finished when asked again
                self._plan_error = error
                return
            if samples is None:
                return
            self._coming.append(samples)
            if self._hint is not None:
                with suppress(Exception):  # only advice: what is wrong with a sample is said when its turn comes
                    self._hint(samples)

    def _described(self, error: BaseException) -> BaseException:
        samples = [str(sample) for sample in self._coming[0][:4]] if self._coming else []
        more = ", ..." if self._coming and len(self._coming[0]) > 4 else ""
        error.add_note(f"while batch {self._number} of the epoch was made (samples {', '.join(samples)}{more})")
        if isinstance(error, StopIteration):  # would look like the end of the epoch
            changed = RuntimeError(f"the dataset or its collate function raised StopIteration: {error}")
            changed.__cause__ = error
            return changed
        return error


_RUNNING: set[Producer] = set()  # those whose thread runs; add, discard and copy are atomic


def _pause_all() -> None:
    for producer in _RUNNING.copy():
        producer.pause(PATIENCE)


def _forget_all() -> None:
    """In a forked child: who is still here was at work when the fork happened."""
    for producer in _RUNNING.copy():
        producer.lost = True
    _RUNNING.clear()


atexit.register(_pause_all)
os.register_at_fork(before=_pause_all, after_in_child=_forget_all)
