"""`StatefulDataLoader`: batches in a sampler's order, made ahead by one background thread, exact to resume."""

from __future__ import annotations

import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, Self

from fastpack import kernels
from fastpack.datasets.base import RowDataset
from fastpack.datasets.outputs import WHOLE_OUTPUTS
from fastpack.display import Described, facts
from fastpack.loading.batch_numbers import BatchNumbers, batches_of
from fastpack.loading.buffers import BufferPool
from fastpack.loading.fetch import Fetch, batch_options, make_fetch
from fastpack.loading.producer import Producer
from fastpack.loading.resume import HOW_TO_GO_ON, Job, Place, check_order, fingerprint
from fastpack.loading.sampler import DistributedSampler

# Compiling the Numba kernels takes a second and saves 0.2 ns a token against the Cython ones: worth it from here on.
WARM_TOKENS = 5_000_000_000
PREFETCH = 2


class StatefulDataLoader(Described):
    """Batches of `batch_size` samples in the sampler's order, epoch after epoch; KempnerForge's class, in NumPy arrays.

    `iter()` begins the epoch, or goes on in the middle of one: after a break, or after `load_state_dict`. What is left
    of an epoch below a whole batch is dropped. `state_dict()` is KempnerForge's with one key more, and either reads the
    other's. `len()` is the number of whole batches of an epoch. When all of them were taken, the next `iter()` begins
    the next epoch, whether or not the loop asked for one more batch (in KempnerForge it would be empty).

    dataset: anything with `[i]` and `len()`. One with `batch(indices)` and, for arrays that are used again,
    `fill(indices, out)` gives whole batches; of another the samples are put together as torch's default_collate does.
    With `collate_fn`, exactly that gets the list of samples. sampler: the samples' order, by default
    `DistributedSampler(dataset)`: shuffled and divided among the ranks of torch.distributed, as in KempnerForge.
    config: an object with KempnerForge's num_workers, pin_memory and prefetch_factor. num_workers is accepted and
    changes nothing: a thread makes the batches while kernels leave the interpreter free, where workers would have to
    send them, at ten times the cost. NumPy arrays are not pinned (fastpack.torch does that).

    prefetch: batches made ahead; 0 makes each when asked for, without a thread; by default config's prefetch_factor,
    else 2. outputs, dtype, cu_seqlens_length: passed to the dataset's `batch`. num_threads: over how many threads a
    batch is sliced. An array handed out is never overwritten, however long it is kept: its memory is used again when
    nothing refers to it.

    elastic: resuming in the middle of an epoch on another number of ranks or with another batch size goes on behind the
    samples that were consumed, none of the epoch's lost or repeated, but for those at its end that fill no batch on
    every rank. ValueError where that cannot be. elastic=False does what KempnerForge does: go on at the same batch
    number, whatever the samples.

    Several threads may take batches from one loader: each batch goes to one of them, and `state_dict()` counts all.
    An exception of the dataset is raised where the batch was asked for; the next call tries that batch again. Pickles
    (without its buffers), and may be inherited by a forked process. Raises ValueError for sizes below 1.
    """

    _shown = facts(
        dataset=lambda self: type(self.dataset),
        batch_size="batch_size",
        sampler=lambda self: type(self.sampler),
        epoch="_epoch",
        batches_yielded=lambda self: self._here().batches(self._num_replicas, self.batch_size),
    )

    # What a torch DataLoader says of itself, for tools that ask it.
    num_workers = 0
    prefetch_factor: int | None = None
    drop_last = True

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        sampler: Any = None,
        config: Any = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        prefetch: int | None = None,
        outputs: Sequence[str] | None = None,
        dtype: Literal["int64", "int32"] = "int64",
        num_threads: int = 1,
        elastic: bool = True,
        cu_seqlens_length: int | None = None,
    ) -> None:
        if prefetch is None:
            prefetch = int(getattr(config, "prefetch_factor", None) or PREFETCH)
        least = {"batch_size": (batch_size, 1), "prefetch": (prefetch, 0), "num_threads": (num_threads, 1)}
        for name, (value, lowest) in least.items():
            if value < lowest:
                raise ValueError(f"{name} is {value}, at least {lowest} is needed")
        self.sampler = DistributedSampler(dataset) if sampler is None else sampler
        self.dataset, self.batch_size, self.config = dataset, batch_size, config
        self.collate_fn, self.elastic, self.prefetch = collate_fn, elastic, prefetch
        self.outputs, self.dtype, self.num_threads = outputs, dtype, num_threads
        self.cu_seqlens_length = cu_seqlens_length
        self._epoch = 0
        self._place = Place(0, self._num_replicas)  # where this process took the epoch up
        self._since = 0  # batches yielded since then
        self._to_check: Mapping[str, Any] | None = None  # the order a loaded state speaks of
        self._attach()
        self._warm()

    def _attach(self) -> None:
        self._lock = threading.RLock()  # re-entrant: a signal handler may ask for the state within next()
        _LOADERS.add(self)
        self._pool = self._make_pool()
        self._fetch = self._make_fetch()
        self._running: list[Producer] = []  # the one at work, if any
        # The thread knows its producer, not the loader: a loader that nobody refers to takes its thread with it.
        weakref.finalize(self, _end_all, self._running).atexit = False

    def _make_pool(self) -> BufferPool:
        """Where arrays come from; what is queued, in the caller's hands and being made fits into the ring."""
        return BufferPool(ring=8 * (self.prefetch + 2))

    def _make_fetch(self) -> Fetch:
        """What makes a batch; it must not refer to the loader, whose end the background thread waits for."""
        wanted = (self.outputs, self.dtype, self.num_threads, self.cu_seqlens_length)
        return make_fetch(self.dataset, self.collate_fn, self._pool, *wanted)

    def _batch_options(self) -> dict[str, Any]:
        """What the dataset's `batch` is given next to the sample numbers."""
        wanted = (self.outputs, self.dtype, self.num_threads, self.cu_seqlens_length)
        return batch_options(self.dataset, self.collate_fn, *wanted) or {}

    def _warm(self) -> None:
        """Switch to the Numba kernels where that pays: in a main process, before an epoch of many tokens."""
        if multiprocessing.parent_process() is None and hasattr(self.dataset, "new_outputs") and len(self.dataset):
            arrays = self.dataset.new_outputs(1, **self._batch_options()).values()
            n_tokens = max((array.size for array in arrays if array is not None), default=0)
            if len(self) * self.batch_size * n_tokens >= WARM_TOKENS:
                kernels.warm(out_dtypes=(self.dtype,))

    @property
    def _num_replicas(self) -> int:
        return getattr(self.sampler, "num_replicas", 1)

    @property
    def _job(self) -> Job:
        sized = hasattr(self.dataset, "__len__")
        return Job(self._num_replicas, self.batch_size, len(self.dataset) if sized else None)

    def __len__(self) -> int:
        return len(self.sampler) // self.batch_size

    def __iter__(self) -> Self:
        with self._lock:
            self._begin(self._plan_or_next_epoch)
        return self

    def _plan_or_next_epoch(self) -> Iterator[Any]:
        """The plan of this epoch; of the next one when all its batches were taken here.

        Loops that count batches by `len()` never ask for the one after the last, and so do not see the epoch's end.
        """
        plan = self._plan()
        if not self._since:
            return plan
        first = next(plan, None)
        if first is not None:
            return chain((first,), plan)
        self._go_to(self._epoch + 1, Place(0, self._num_replicas))
        return self._plan()

    def _begin(self, make_plan: Callable[[], Iterator[Any]]) -> None:
        for producer in self._running:  # they stay until there is another: an interrupt here is not the epoch's end
            producer.end()
        plan = make_plan()
        if hasattr(self.dataset, "check_unchanged"):
            self.dataset.check_unchanged()
        hint = getattr(self.dataset, "will_need", None)
        self._running[:] = [Producer(plan, self._fetch, self.prefetch, self._since, hint)]

    def __next__(self) -> Any:
        with self._lock:  # of several threads each has its batch in turn
            return self._next()

    def _next(self) -> Any:
        if not self._running:
            raise StopIteration
        if self._running[0].lost:
            self._begin(self._plan)
        self._pool.next_batch()
        made = self._running[0].get()
        if made is None:
            self._stop()
            self._go_to(self._epoch + 1, Place(0, self._num_replicas))
            raise StopIteration
        self._since = made.number + 1
        self._running[0].lost = False
        return made.batch

    def _plan(self) -> Iterator[Any]:
        """The samples of each batch that is still to come in this epoch."""
        if self._to_check is not None:
            check_order(self._to_check, self.sampler, HOW_TO_GO_ON)
            self._to_check = None
        for name, arguments in (("set_epoch", (self._epoch,)), ("forget_resume", ())):
            if hasattr(self.sampler, name):
                getattr(self.sampler, name)(*arguments)
        place = self._here()
        skip = place.skip(self._num_replicas)
        if skip is None:
            self.sampler.resume_at(place.consumed, place.base)
            skip = 0
        elif skip and hasattr(self.sampler, "set_skip"):
            self.sampler.set_skip(skip)
            skip = 0
        return batches_of(self.sampler, skip, self.batch_size)

    def _here(self) -> Place:
        """How far all ranks are together, as every rank yields batches at the same pace."""
        return Place(self._place.consumed + self._since * self.batch_size * self._num_replicas, self._place.base)

    def _go_to(self, epoch: int, place: Place) -> None:
        self._epoch, self._place, self._since = epoch, place, 0

    def set_epoch(self, epoch: int) -> None:
        """Begin another epoch, counted from 0, at the next `iter()`; the current one goes on where it is.

        Loops that count epochs themselves call this (as transformers' Trainer). Without it each `for` is the next one.
        """
        with self._lock:
            if epoch != self._epoch:
                self._stop()
                self._to_check = None
                self._go_to(epoch, Place(0, self._num_replicas))

    @property
    def batch_sampler(self) -> BatchNumbers:
        """The sample numbers of each batch of the current epoch, for tools that load batches by themselves."""
        return BatchNumbers(self)

    def planned_batches(self) -> Iterator[Any]:
        """Return the sample numbers of each remaining batch of the epoch, without loading them."""
        with self._lock:
            return self._plan()

    def row_options(self) -> dict[str, Any]:
        """Return the options for `dataset.batch` that produce rows like this loader's.

        Raises
        ------
        ValueError
            If the batches of this loader cannot be assembled from samples of its dataset.
        """
        options = self._batch_options()
        whole = [name for name in WHOLE_OUTPUTS if name in (self.outputs or ())]
        chosen = self.outputs is not None or self.dtype != "int64"
        if whole or (options and chosen and not isinstance(self.dataset, RowDataset)):
            what = f"outputs={list(self.outputs or ())}, dtype={self.dtype!r}"
            raise ValueError(
                f"a batch of this loader ({what}) cannot be put together from samples of its dataset, as "
                "skip_first_batches does: iterate the loader itself, and resume it with load_state_dict()"
            )
        return options

    def state_dict(self) -> dict[str, Any]:
        """{"epoch", "batches_yielded", "sampler"} as KempnerForge has it, and "elastic": what another job needs.

        It counts what was yielded, not what was made ahead. A rank's state serves every rank.
        """
        with self._lock:
            place = self._here()
            batches = place.batches(self._num_replicas, self.batch_size)
            state: dict[str, Any] = {"epoch": self._epoch, "batches_yielded": batches}
            if hasattr(self.sampler, "state_dict"):
                state["sampler"] = self.sampler.state_dict()
            if self.elastic:
                state["elastic"] = self._job.extra(place, self.sampler)
            return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was saved, at the next `iter()`.

        Raises ValueError (unless elastic=False) when it was saved in the middle of an epoch and the samples left of
        that cannot be told: another dataset length, seed, order or weights (these are looked at by `iter()`, as weights
        may still be set until then); or KempnerForge's own state and another number of ranks.
        """
        with self._lock:
            self._stop()
            self._load(state)

    def _load(self, state: Mapping[str, Any]) -> None:
        if self.elastic:
            place = self._job.place(state, fingerprint(self.sampler))
            if place.skip(self._num_replicas) is None and not hasattr(self.sampler, "resume_at"):
                raise ValueError(
                    f"a {type(self.sampler).__name__} cannot share out the rest of an epoch that {place.base} ranks "
                    f"began: it has no resume_at(consumed, base_num_replicas)"
                )
            self._to_check = state.get("elastic", {}).get("order") if place.consumed else None
        else:
            place = Place(state.get("batches_yielded", 0) * self.batch_size * self._num_replicas, self._num_replicas)
            self._to_check = None
        self._go_to(state.get("epoch", 0), place)
        if "sampler" in state and hasattr(self.sampler, "load_state_dict"):
            self.sampler.load_state_dict(state["sampler"])

    def close(self) -> None:
        """End the background thread and wait for it. The loader can be used again."""
        with self._lock:
            for producer in self._running:
                producer.pause(None)
            self._stop()

    def _stop(self) -> None:
        _end_all(self._running)

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_pool", "_fetch", "_running", "_lock")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach()


_LOADERS: weakref.WeakSet[StatefulDataLoader] = weakref.WeakSet()


def _unlock_all() -> None:
    """In a forked child: a thread that held a loader's lock has no copy here."""
    for loader in list(_LOADERS):
        loader._lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock_all)


def _end_all(producers: list[Producer]) -> None:
    while producers:
        producers.pop().end()
