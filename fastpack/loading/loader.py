"""`StatefulDataLoader`: batches in a sampler's order, made ahead by one background thread, exact to resume."""

from __future__ import annotations

import multiprocessing
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, Self

import numpy as np

from fastpack import kernels
from fastpack.loading.buffers import BufferPool
from fastpack.loading.fetch import Fetch, make_fetch
from fastpack.loading.producer import Producer
from fastpack.loading.resume import Job, Place, check_order

# Compiling the Numba kernels takes a second and saves 0.2 ns a token against the Cython ones: worth it from here on.
WARM_TOKENS = 5_000_000_000
PREFETCH = 2
BATCHES_A_BLOCK = 512  # of an order that is computed, not stored


class StatefulDataLoader:
    """Batches of `batch_size` samples in the sampler's order, epoch after epoch; KempnerForge's class, in NumPy arrays.

    `iter()` begins the epoch, or goes on in the middle of one: after a break, or after `load_state_dict`. What is left
    of an epoch below a whole batch is dropped. `state_dict()` is KempnerForge's with one key more, and either reads the
    other's. `len()` is the number of whole batches of an epoch.

    dataset: anything with `[i]` and `len()`. One with `batch(indices)` and, for arrays that are used again,
    `fill(indices, out)` gives whole batches; of another the samples are put together as torch's default_collate does.
    With `collate_fn`, exactly that gets the list of samples. sampler: the samples' order, by default 0, 1, 2, ....
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

    An exception of the dataset is raised where the batch was asked for; the next call tries that batch again. Pickles
    (without its buffers), and may be inherited by a forked process. Raises ValueError for sizes below 1.
    """

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
        self.dataset, self.batch_size, self.sampler, self.config = dataset, batch_size, sampler, config
        self.collate_fn, self.elastic, self.prefetch = collate_fn, elastic, prefetch
        self.outputs, self.dtype, self.num_threads = outputs, dtype, num_threads
        self.cu_seqlens_length = cu_seqlens_length
        self._epoch = 0
        self._place = Place(0, self._num_replicas)  # where this process took the epoch up
        self._since = 0  # batches yielded since then
        self._to_check: Mapping[str, Any] | None = None  # the order a loaded state speaks of
        self._shared_out = False  # whether the sampler was told to resume
        self._attach()
        self._warm()

    def _attach(self) -> None:
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

    def _warm(self) -> None:
        """Switch to the Numba kernels where that pays: in a main process, before an epoch of many tokens."""
        if multiprocessing.parent_process() is None and hasattr(self.dataset, "new_outputs") and len(self.dataset):
            n_tokens = max(array.size for array in self.dataset.new_outputs(1).values())
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
        return len(self.dataset if self.sampler is None else self.sampler) // self.batch_size

    def __iter__(self) -> Self:
        for producer in self._running:  # they stay until there is another: an interrupt here is not the epoch's end
            producer.end()
        if self._to_check is not None:
            check_order(self._to_check, self.sampler)
            self._to_check = None
        if hasattr(self.sampler, "set_epoch"):
            if self._shared_out:  # another epoch makes the sampler forget where it resumed
                self.sampler.set_epoch(self._epoch + 1)
            self.sampler.set_epoch(self._epoch)
            self._shared_out = False
        if hasattr(self.dataset, "check_unchanged"):
            self.dataset.check_unchanged()
        hint = getattr(self.dataset, "will_need", None)
        self._running[:] = [Producer(self._plan(), self._fetch, self.prefetch, self._since, hint)]
        return self

    def __next__(self) -> Any:
        if not self._running:
            raise StopIteration
        if self._running[0].lost:
            iter(self)
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
        place = self._here()
        skip = place.skip(self._num_replicas)
        if self.sampler is None:
            return _counted(skip or 0, len(self.dataset), self.batch_size)
        if skip is None:
            self.sampler.resume_at(place.consumed, place.base)
            self._shared_out = True
            skip = 0
        elif skip and hasattr(self.sampler, "set_skip"):
            self.sampler.set_skip(skip)
            skip = 0
        if isinstance(self.sampler, np.ndarray):
            return _sliced(self.sampler, skip, self.batch_size)
        if skip == 0 and hasattr(self.sampler, "blocks"):
            return _of_blocks(self.sampler.blocks(self.batch_size * BATCHES_A_BLOCK), self.batch_size)
        if hasattr(self.sampler, "indices"):
            return _sliced(self.sampler.indices(), skip, self.batch_size)
        return _listed(islice(iter(self.sampler), skip, None), self.batch_size)

    def _here(self) -> Place:
        """How far all ranks are together, as every rank yields batches at the same pace."""
        return Place(self._place.consumed + self._since * self.batch_size * self._num_replicas, self._place.base)

    def _go_to(self, epoch: int, place: Place) -> None:
        self._epoch, self._place, self._since = epoch, place, 0

    def state_dict(self) -> dict[str, Any]:
        """{"epoch", "batches_yielded", "sampler"} as KempnerForge has it, and "elastic": what another job needs.

        It counts what was yielded, not what was made ahead. A rank's state serves every rank.
        """
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
        self._stop()
        if self.elastic:
            place = self._job.place(state, getattr(self.sampler, "seed", None))
            if place.skip(self._num_replicas) is None and not hasattr(self.sampler, "resume_at"):
                raise ValueError(
                    f"a {type(self.sampler).__name__} cannot share out the rest of an epoch that {place.base} ranks "
                    f"began: it has no resume_at(consumed, base_num_replicas)"
                )
            self._to_check = state.get("elastic", {}).get("order") if place.consumed else None
        else:
            place = Place(state["batches_yielded"] * self.batch_size * self._num_replicas, self._num_replicas)
            self._to_check = None
        self._go_to(state["epoch"], place)
        if "sampler" in state and hasattr(self.sampler, "load_state_dict"):
            self.sampler.load_state_dict(state["sampler"])

    def close(self) -> None:
        """End the background thread and wait for it. The loader can be used again."""
        for producer in self._running:
            producer.pause(None)
        self._stop()

    def _stop(self) -> None:
        _end_all(self._running)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_pool", "_fetch", "_running")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach()


def _end_all(producers: list[Producer]) -> None:
    while producers:
        producers.pop().end()


def _counted(first: int, end: int, size: int) -> Iterator[Any]:
    return (np.arange(start, start + size) for start in range(first, end - size + 1, size))


def _sliced(order: Any, first: int, size: int) -> Iterator[Any]:
    return (order[start : start + size] for start in range(first, len(order) - size + 1, size))


def _of_blocks(blocks: Iterator[Any], size: int) -> Iterator[Any]:
    """Batches of blocks that hold a whole number of them, but for the last one."""
    return (batch for block in blocks for batch in _sliced(block, 0, size))


def _listed(samples: Iterator[Any], size: int) -> Iterator[Any]:
    while len(batch := list(islice(samples, size))) == size:
        yield batch
