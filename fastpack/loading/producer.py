"""One background thread that produces batches ahead of the training loop.

Kernels release the GIL, so a thread fills batches while the training loop runs; sending them from a worker process
would cost ten times the filling. The thread ends when its loader is garbage collected, at the interpreter's exit, and
before a fork (a forked child has no copy of it, and would inherit a lock that it holds). The next request for a batch
starts it again where it was.

Waking the thread and receiving its batch takes 30 to 80 us of CPU. A loop that does nothing between two batches has
nothing to overlap with that: after HURRIED such batches it makes batches itself, until it takes longer again.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple

from fastpack.loading.fetch import Fetch

PATIENCE = 5.0  # seconds to wait for a batch in production, before a fork and at exit
QUICK = 1e-4  # seconds between two requests below which the thread gains less than it costs
SLOW = 2e-3  # seconds to wait for a batch above which that cost does not matter
HURRIED = 32  # a step may take several batches: so many quick requests more than others, each of those counted as
CALMING = 16


class ProducedBatch(NamedTuple):
    """A batch and its number in the epoch, counted from 0; or the error that producing it raised."""

    number: int
    batch: Any
    error: BaseException | None = None


class Pace:
    """How fast a loop takes its batches, over all producers of a loader."""

    def __init__(self) -> None:
        self._quick, self._began, self._returned = 0, 0.0, 0.0

    def request(self) -> bool:
        """Note a request for a batch; return whether the loop is hurried."""
        began = perf_counter()
        if began - self._returned < QUICK and self._returned - self._began < SLOW:
            self._quick = min(self._quick + 1, 4 * HURRIED)
        else:
            self._quick = max(0, self._quick - CALMING)
        self._began = began
        return self._quick >= HURRIED

    def receive(self) -> None:
        """Note that the request got its batch."""
        self._returned = perf_counter()


class StopRequest:
    """Requests one run of the thread to end."""

    requested = False


class Producer:
    """Produces the batches of an epoch in order and ahead of time.

    Parameters
    ----------
    plan
        The number of each batch in the epoch, and its samples.
    fetch
        Makes a batch of them; the thread calls it within its `session()`.
    prefetch
        The number of batches that may wait; 0 produces each on request, without a thread.
    hint
        Called with the samples of each batch, `lookahead` batches before they are fetched.
    pace
        The pace of the loop so far.
    """

    def __init__(
        self,
        plan: Iterator[tuple[int, Any]],
        fetch: Fetch,
        prefetch: int,
        hint: Callable[[Any], object] | None = None,
        lookahead: int = 2,
        pace: Pace | None = None,
    ) -> None:
        self._plan, self.fetch, self._hint = plan, fetch, hint
        self._lookahead = lookahead if hint else 0
        self._coming: deque[tuple[int, Any]] = deque()  # taken from the plan, not yet produced
        self._ready: SimpleQueue[ProducedBatch | None] = SimpleQueue()
        self._permits: SimpleQueue[bool] = SimpleQueue()  # True: produce one more batch; False: check the stop request
        self._prefetch, self._permitted = prefetch, 0  # `_permitted`: permits whose batch was not received; 0: it idles
        self._plan_error: BaseException | None = None
        self._pace = pace or Pace()
        self._thread: threading.Thread | None = None
        self._stop = StopRequest()
        self._settled = True  # False: the next batch is not produced ahead, because the plan may change again
        # Whether the position is unknown, because a batch may have been taken: in a forked child whose parent was still
        # producing, and after an interrupt (Ctrl-C) in `get` or in its caller, which sets this to False.
        self.lost = False

    def get(self) -> ProducedBatch | None:
        """Return the next batch, None at the end; raise what producing it raised, and retry it in the next call.

        The traceback leads to the background thread. `lost` stays set until the caller resets it.
        """
        self.lost = True
        if not self._prefetch:
            produced = self._make()
        else:
            hurried = self._pace.request()
            makes = not self._settled or (hurried and not self._permitted)
            produced = self._make() if makes else self._receive(hurried)
            self._pace.receive()
        self._settled = True
        if produced is None or produced.error is None:
            return produced
        self.lost = not isinstance(produced.error, Exception)  # an interrupt finishes a plan that is a generator
        try:
            raise produced.error
        finally:
            del produced  # or the error would refer to itself by its traceback, and keep objects of the dataset alive

    def _receive(self, hurried: bool) -> ProducedBatch | None:
        """Return the thread's next batch, and let it produce the following ones unless the loop is hurried."""
        if self._thread is None or self._stop.requested:
            self._start()
        self._permit(1 if hurried else self._prefetch)
        produced = self._ready.get()
        self._permitted -= 1
        if produced is None or produced.error is not None:
            self._end(None)
        elif not hurried:
            self._permit(self._prefetch)
        return produced

    def _permit(self, count: int) -> None:
        while self._permitted < count:
            self._permitted += 1
            self._permits.put(True)

    def follow(self, plan: Iterator[tuple[int, Any]]) -> bool:
        """Continue with another plan, and produce its first batch on request; return False after batches ahead."""
        if self._thread is not None or self._permitted:
            return False
        self._plan, self._plan_error, self._settled = plan, None, False
        self._coming.clear()
        return True

    def end(self) -> None:
        """Let the thread end after its current batch, without waiting for it."""
        self._stop.requested = True
        self._permits.put(False)

    def pause(self, patience: float | None) -> None:
        """End the thread and wait for it, at most `patience` seconds; the next `get` starts another one."""
        if self._thread is not threading.current_thread():
            self.end()
            self._end(patience)

    def _end(self, patience: float | None) -> None:
        thread = self._thread
        if thread is not None:
            with suppress(RuntimeError):  # an interrupt came before the start
                thread.join(patience)
            if not thread.is_alive():
                self._thread = None
                _RUNNING.discard(self)

    def _start(self) -> None:
        self._end(None)
        self._stop = StopRequest()
        # A daemon, so that a batch that never completes cannot keep the interpreter from exiting.
        self._thread = threading.Thread(target=self._run, args=(self._stop,), name="fastpack-loader", daemon=True)
        _RUNNING.add(self)
        self._thread.start()

    def _run(self, stop: StopRequest) -> None:
        try:
            with self.fetch.session():
                while True:
                    permit = self._permits.get()
                    if stop.requested:
                        if permit:
                            self._permits.put(True)
                        return
                    if permit and not self._deliver():
                        return
        finally:
            _RUNNING.discard(self)

    def _deliver(self) -> bool:
        """Produce and queue a batch; return whether there may be another.

        A separate scope, so that the thread does not keep the batch alive.
        """
        produced = self._make()
        self._ready.put(produced)
        return produced is not None and produced.error is None

    def _make(self) -> ProducedBatch | None:
        try:
            self._look_ahead()
            if not self._coming:
                if self._plan_error is not None:
                    raise self._plan_error
                return None
            batch = self.fetch(self._coming[0][1])
        except BaseException as error:
            return ProducedBatch(-1, None, self._described(error))
        return ProducedBatch(self._coming.popleft()[0], batch)

    def _look_ahead(self) -> None:
        while len(self._coming) <= (self._lookahead if self._settled else 0):
            try:
                planned = None if self._plan_error else next(self._plan, None)
            except BaseException as error:  # kept: a generator that failed looks finished when asked again
                self._plan_error = error
                return
            if planned is None:
                return
            self._coming.append(planned)
            if self._hint is not None:
                try:  # noqa: SIM105 - `suppress` takes 0.5 us
                    self._hint(planned[1])
                except Exception:  # only a hint: a faulty sample raises when it is fetched
                    pass

    def _described(self, error: BaseException) -> BaseException:
        if self._coming:
            number, numbers = self._coming[0]
            samples = ", ".join(str(sample) for sample in numbers[:4])
            more = ", ..." if len(numbers) > 4 else ""
            error.add_note(f"while batch {number} of the epoch was made (samples {samples}{more})")
        if isinstance(error, StopIteration):  # it would end the epoch
            changed = RuntimeError(f"the dataset or its collate function raised StopIteration: {error}")
            changed.__cause__ = error
            return changed
        return error


_RUNNING: set[Producer] = set()  # with a running thread; add, discard and copy are atomic


def _pause_all() -> None:
    for producer in _RUNNING.copy():
        producer.pause(PATIENCE)


def _forget_all() -> None:
    """In a forked child: the producers that were running at the time of the fork."""
    for producer in _RUNNING.copy():
        producer.lost = True
    _RUNNING.clear()


atexit.register(_pause_all)
os.register_at_fork(before=_pause_all, after_in_child=_forget_all)
