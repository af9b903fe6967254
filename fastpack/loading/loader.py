"""`StatefulDataLoader`: batches in a sampler's order, produced ahead by one background thread, resumable exactly."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from fastpack.datasets.map_dataset import MapDataset
from fastpack.datasets.outputs import OutputDtype
from fastpack.display import Described, facts
from fastpack.loading.adapters import as_batch_dataset
from fastpack.loading.batch_numbers import BatchNumbers, row_options
from fastpack.loading.buffers import BufferPool
from fastpack.loading.context_parallel import CpLayout, default_sampler
from fastpack.loading.fetch import BatchOptions, Fetch, make_fetch, warm_kernels
from fastpack.loading.loader_position import LoaderPosition
from fastpack.loading.producer import Pace, Producer
from fastpack.loading.protocols import BatchDataset, LoaderOptions
from fastpack.loading.run_control import RunControl
from fastpack.loading.run_record import BatchPlan

PREFETCH = 2

BatchT = TypeVar("BatchT")
SampleT = TypeVar("SampleT")


class StatefulDataLoader(RunControl, Described, Generic[BatchT]):
    """Load batches of a dataset in a sampler's order, epoch after epoch (KempnerForge's class, in NumPy arrays).

    `iter()` starts the epoch, or continues in the middle of one: after a `break`, or after `load_state_dict`. Samples
    at the end of an epoch that do not fill a batch are dropped. `len()` is the number of whole batches of an epoch.
    After all of them, the next `iter()` starts the next epoch, whether or not the loop requested one more batch (in
    KempnerForge it would be empty).

    Parameters
    ----------
    dataset
        A map-style dataset. One with `batch(indices)` and, for reused arrays, `fill(indices, out)` provides whole
        batches; the samples of others are collated as torch's default_collate does.
    batch_size
        The samples of a batch, of this rank.
    sampler
        Sample numbers in order; by default `DistributedSampler(dataset)`: shuffled, and divided among the ranks of
        torch.distributed (as in KempnerForge).
    config
        An object with KempnerForge's prefetch_factor, num_workers and pin_memory. num_workers has no effect: a thread
        fills batches in a tenth of the time that worker processes take to send them. NumPy arrays are not pinned.
    collate_fn
        Receives the list of the samples of a batch and returns the batch.
    prefetch
        The number of batches produced ahead; 0 produces each on demand, without a thread. Default: the config's
        prefetch_factor, else 2.
    outputs, dtype, cu_seqlens_length
        Passed to the dataset's `batch`.
    num_threads
        The number of threads that fill slices of one batch.
    context_parallel, cp_layout
        (rank, size) of this process among those that share each row, and how rows are cut: see the notes. The sampler
        gets the rank and number of such groups (see `ParallelRanks`), so that their members draw the same samples.
    share_memory
        Whether input_ids and labels are views of one array [B, L + 1], which halves what is written for each batch. By
        default they are where labels are not masked. See the notes.
    shapes_only
        Deliver batches whose arrays hold zeros and take no memory, and read no tokens: for ranks that need only the
        shapes, such as middle pipeline stages. Position and state are those of other ranks; dataset_idx is exact.
    elastic
        Whether a state saved in the middle of an epoch can be resumed on another number of ranks or with another batch
        size: after the consumed samples, without losing or repeating any, except those at the end of the epoch that
        fill no batch on every rank. With False the loader continues at the same batch number (as KempnerForge).

    Raises
    ------
    ValueError
        If batch_size or num_threads is below 1, prefetch is negative, the dataset lacks a requested option, or
        share_memory=True is not possible: labels are masked, rows are cut, or samples are collated.

    Notes
    -----
    An array that was returned is never overwritten, however long it is kept: its memory is reused once nothing refers
    to it. Several threads may take batches from one loader: each batch goes to one of them, and `state_dict()` counts
    all. An exception of the dataset is raised in `next`; the following `next` tries that batch again. The loader
    pickles without its buffers and survives a fork.

    With share_memory, labels[:, :-1] and input_ids[:, 1:] are the same memory: writing to one changes the other. Pass
    share_memory=False to a loop that writes to either in place, or copies it first. Neither array is C-contiguous (use
    `reshape(-1)`, as `view(-1)` of torch refuses them).

    With context_parallel, a batch is this rank's share of the whole one, and only the share is written. "zigzag" cuts
    each row into 2 * size equal chunks, of which rank r gets chunks r and 2 * size - 1 - r (as Megatron); "contiguous"
    cuts it into `size` chunks. "documents" cuts every document of a row as a zigzag, after padding it to a multiple of
    2 * size (as TransformerEngine); shorter rows end with padding. Padding is token 0 with label -100, and continues
    the positions of its document. Labels, doc_ids and position_ids are those of the whole row. cu_seqlens and
    max_seqlen are of the share as one sequence of its rows: of runs of consecutive tokens of one document, and for
    "documents" of the share of each padded document; cu_seqlens_global and max_seqlen_global are of the whole batch
    (padded, for "documents"). Only the tokens of the share are read, except with "documents" and for doc_ids and the
    outputs after it: they need the ends of documents, for which all tokens of the rows are scanned.

    Examples
    --------
    >>> import tempfile, numpy as np, fastpack
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/a.npy", np.arange(400, dtype=np.uint16))
    >>> dataset = fastpack.MemoryMappedDataset(folder, seq_len=5)
    >>> sampler = fastpack.DistributedSampler(dataset, num_replicas=2, rank=0, shuffle=False)
    >>> loader = fastpack.StatefulDataLoader(dataset, batch_size=2, sampler=sampler)
    >>> len(loader)
    20
    >>> next(iter(loader))["input_ids"]
    array([[ 0,  1,  2,  3],
           [10, 11, 12, 13]])
    >>> loader.state_dict()["batches_yielded"]
    1
    >>> loader.close()
    """

    _shown = facts(
        dataset=lambda self: type(self.dataset),
        batch_size="batch_size",
        sampler=lambda self: type(self.sampler),
        epoch=lambda self: self._position.epoch,
        batches_yielded=lambda self: self._position.batches_yielded,
    )

    # Attributes of torch's DataLoader that tools read.
    num_workers = 0
    prefetch_factor: int | None = None
    drop_last = True

    _cuts_windows = True  # False: batches have input_ids and labels as the one array that they share

    @overload
    def __init__(
        self,
        dataset: BatchDataset[BatchT],
        batch_size: int,
        sampler: Iterable[int] | None = None,
        config: object = None,
        collate_fn: None = None,
        **options: Unpack[LoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        dataset: MapDataset[SampleT],
        batch_size: int,
        sampler: Iterable[int] | None = None,
        config: object = None,
        *,
        collate_fn: Callable[[list[SampleT]], BatchT],
        **options: Unpack[LoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: StatefulDataLoader[Any],
        dataset: MapDataset[Any],
        batch_size: int,
        sampler: Iterable[Any] | None = None,
        config: object = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **options: Unpack[LoaderOptions],
    ) -> None: ...
    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        sampler: Iterable[Any] | None = None,
        config: object = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        prefetch: int | None = None,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype = "int64",
        num_threads: int = 1,
        elastic: bool = True,
        cu_seqlens_length: int | None = None,
        context_parallel: tuple[int, int] | None = None,
        cp_layout: CpLayout = "zigzag",
        shapes_only: bool = False,
        share_memory: bool | None = None,
    ) -> None:
        if prefetch is None:
            prefetch = int(getattr(config, "prefetch_factor", None) or PREFETCH)
        minima = {"batch_size": (batch_size, 1), "prefetch": (prefetch, 0), "num_threads": (num_threads, 1)}
        for name, (value, minimum) in minima.items():
            if value < minimum:
                raise ValueError(f"{name} is {value}, at least {minimum} is needed")
        self.sampler = default_sampler(dataset, context_parallel) if sampler is None else sampler
        self.dataset, self.batch_size, self.config = dataset, batch_size, config
        self.collate_fn, self.elastic, self.prefetch = collate_fn, elastic, prefetch
        self.outputs, self.num_threads = outputs, num_threads
        self.dtype: OutputDtype = dtype
        self.cu_seqlens_length = cu_seqlens_length
        self.context_parallel, self.shapes_only, self.share_memory = context_parallel, shapes_only, share_memory
        self.cp_layout: CpLayout = cp_layout
        self._position = LoaderPosition(dataset, self.sampler, batch_size, elastic)
        self._progress, self._exclusions = self._position.progress, {}
        self._attach()
        warm_kernels(self.dataset, self._options(), lambda: len(self) * self.batch_size)

    def _attach(self) -> None:
        self._attach_lock()
        self._pool = self._make_pool()
        self._producers: list[Producer] = []  # the current one, if any
        self._pace = Pace()
        self._apply_exclusions()
        # The thread refers to its producer only: a loader that is garbage collected ends its thread.
        weakref.finalize(self, _end_all, self._producers).atexit = False

    def _make_pool(self) -> BufferPool:
        """Return the pool of arrays, whose ring holds what is queued, in the caller's hands and being filled."""
        return BufferPool(ring=8 * (self.prefetch + 2))

    def _make_fetch(self) -> Fetch:
        """Return what makes a batch; it must not refer to the loader."""
        return self._masked(make_fetch(self.dataset, self._options(), self._pool, self._cuts_windows))

    def _options(self) -> BatchOptions:
        whole = (self.collate_fn, self.outputs, self.dtype, self.num_threads, self.cu_seqlens_length)
        share_memory = False if self._progress.record.excluded else self.share_memory
        return BatchOptions(*whole, self.context_parallel, self.cp_layout, self.shapes_only, share_memory)

    def __len__(self) -> int:
        return len(self._position.sampler) // self.batch_size

    def __iter__(self) -> Self:
        with self._lock:
            self._begin(self._position.plan_or_next_epoch)
        return self

    def _begin(self, make_plan: Callable[[], BatchPlan]) -> None:
        for producer in self._producers:  # kept until it is replaced: an interrupt here is not the end of the epoch
            producer.end()
        plan, source = make_plan(), as_batch_dataset(self.dataset)
        if source.check_unchanged is not None:
            source.check_unchanged()
        self._producers[:] = [self._new_producer(plan)]
        self._record(plan)

    def _plan_again(self) -> None:
        """Follow a change of the run; batches are produced ahead again once a batch was taken without a change."""
        plan = self._position.plan()
        if self._producers[0].fetch is not self._fetch or not self._producers[0].follow(plan):
            self._producers[0].end()
            self._producers[:] = [self._new_producer(plan)]
            self._producers[0].follow(plan)
        self._record(plan)

    def _new_producer(self, plan: BatchPlan) -> Producer:
        hint = self._fetch.will_need or as_batch_dataset(self.dataset).will_need
        return Producer(plan, self._fetch, self.prefetch, hint, pace=self._pace)

    def _record(self, plan: BatchPlan) -> None:
        self._progress.plan()
        self._batch_plan, self._planned = plan, self._progress.revision

    def __next__(self) -> BatchT:
        with self._lock:  # threads take batches in turn
            if not self._producers:
                raise StopIteration
            if self._producers[0].lost:
                self._begin(self._position.plan)
            elif self._planned != self._progress.revision:
                self._plan_again()
            self._pool.next_batch()
            produced = self._producers[0].get()
            if produced is None:
                self._stop()
                self._position.end_epoch(self._batch_plan)
                raise StopIteration
            self._position.advance(produced.number)
            self._producers[0].lost = False
            batch: BatchT = produced.batch
            return batch

    def set_epoch(self, epoch: int) -> None:
        """Start another epoch, counted from 0, at the next `iter()`; for the current epoch nothing changes.

        For loops that count epochs themselves (transformers' Trainer). Without it, each `for` loop is the next epoch.

        Parameters
        ----------
        epoch
            The epoch.
        """
        with self._lock:
            if epoch != self._position.epoch:
                self._stop()
                self._position.set_epoch(epoch)

    @property
    def batch_sampler(self) -> BatchNumbers:
        """The sample numbers of each batch of the current epoch, for tools that load batches themselves."""
        return BatchNumbers(self)

    def planned_batches(self) -> Iterator[Any]:
        """Return the sample numbers of each remaining batch of the epoch, without loading them.

        Returns
        -------
        iterator
            The sample numbers of one batch after the other.
        """
        with self._lock:
            return (samples for _, samples in self._position.plan())

    def row_options(self) -> dict[str, Any]:
        """Return the options of `dataset.batch` that produce rows like this loader's.

        Returns
        -------
        dict
            The options by name.

        Raises
        ------
        ValueError
            If no options produce such rows.
        """
        return row_options(self.dataset, self._options())

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the epoch, as JSON values; the state of one rank serves every rank.

        Returns
        -------
        dict
            "epoch", "batches_yielded" (without those produced ahead) and "sampler" as in KempnerForge, and "elastic",
            which other numbers of ranks and batch sizes need, with the steps, counts and skips of the run. Each system
            loads the other's states.
        """
        with self._lock:
            return self._position.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the state was saved, at the next `iter()`.

        Parameters
        ----------
        state
            A state of `state_dict`, or of KempnerForge's loader.

        Raises
        ------
        ValueError
            If this is no state of a loader, but, say, a checkpoint that contains one. If the state was saved in the
            middle of an epoch whose remaining samples cannot be determined (unless elastic=False): another dataset
            length, seed, order or weights, or a state of KempnerForge and another number of ranks. Order and weights
            are checked by `iter()`, because weights may be set until then.
        """
        with self._lock:
            self._stop()
            self._position.load(state)
            self._apply_exclusions()

    def close(self) -> None:
        """End the background thread and wait for it. The loader can be used again."""
        with self._lock:
            for producer in self._producers:
                producer.pause(None)
            self._stop()

    def _stop(self) -> None:
        _end_all(self._producers)

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_pool", "_fetch", "_producers", "_pace", "_lock", "_batch_plan")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach()


def _end_all(producers: list[Producer]) -> None:
    while producers:
        producers.pop().end()
