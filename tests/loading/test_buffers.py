"""Leased buffers: memory is reused, and never while anything refers to it."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import random
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fastpack.loading.buffers import BufferPool, Memory, aligned_memory


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_arrays_have_the_requested_shape_and_dtype() -> None:
    pool = BufferPool()
    for shape in ((), (0,), (3,), (4, 5), (2, 3, 7)):
        for dtype in ("int64", "int32", "uint8", "bool", "float32", ">u2", "complex128"):
            array = pool.lease(shape, dtype)
            assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
            assert array.flags.c_contiguous
            assert array.flags.writeable
            assert address(array) % 64 == 0
            array[...] = 1
            assert (array == 1).all()
    with pytest.raises(ValueError, match="Python objects"):
        pool.lease((2,), object)


def test_memory_is_reused_once_nothing_refers_to_it() -> None:
    pool = BufferPool()
    first = pool.lease((100, 100), "int64")
    where = address(first)
    assert address(pool.lease((100, 100), "int64")) != where  # and this one is freed immediately
    del first
    assert address(pool.lease((100, 100), "int64")) == where
    assert address(pool.lease((50, 200), "float64")) == where  # the same memory in another shape
    assert pool.idle == 2


@pytest.mark.parametrize(
    "keep",
    [
        lambda array: array[1:],
        lambda array: array.T[::3],
        lambda array: array.view("uint8"),
        memoryview,
        lambda array: memoryview(array)[2:3],
        np.asarray,
        np.ndarray.__dlpack__,
        lambda array: array.flat,
        lambda array: array.base,
        lambda array: {"deep": [(array[0],)]},
        lambda array: lambda: array,
        lambda array: np.broadcast_to(array, (3, *array.shape)),
        lambda array: array.ctypes,
        np.nditer,
    ],
)
def test_every_object_that_shares_the_memory_keeps_it_alive(keep: Any) -> None:
    pool = BufferPool()
    array = pool.lease((64, 64), "int64")
    where = address(array)
    kept = keep(array)
    del array
    gc.collect()
    others = [pool.lease((64, 64), "int64") for _ in range(5)]
    assert where not in map(address, others)
    del kept, others
    gc.collect()
    assert where in [address(other) for other in [pool.lease((64, 64), "int64") for _ in range(6)]]


def test_garbage_cycles_and_resurrection() -> None:
    """An array in a reference cycle is released by the garbage collector, unless a finalizer resurrects it."""
    saved = []

    class Holder:
        def __init__(self, array: np.ndarray) -> None:
            self.array, self.me = array, self

        def __del__(self) -> None:
            saved.append(self.array)

    pool = BufferPool()
    array = pool.lease((1000,), "int64")
    array[:] = 7
    where = address(array)
    Holder(array)
    del array
    gc.collect()
    assert len(saved) == 1
    for _ in range(4):
        pool.lease((1000,), "int64")[:] = -1
    assert (saved[0] == 7).all()
    saved.clear()
    gc.collect()
    assert where in [address(other) for other in [pool.lease((1000,), "int64") for _ in range(6)]]


def test_copies_and_pickles_are_plain_arrays() -> None:
    pool = BufferPool()
    array = pool.lease((10,), "int64")
    array[:] = 3
    twins = [array.copy(), copy.deepcopy(array), pickle.loads(pickle.dumps(array))]
    where = address(array)
    del array
    pool.lease((10,), "int64")[:] = 4
    assert all((twin == 3).all() and address(twin) != where for twin in twins)
    again = pickle.loads(pickle.dumps(BufferPool(5, 2)))
    assert (again._ring, again._rest, again.idle) == (5, 2, 0)


def test_growth_is_bounded_by_the_ring() -> None:
    made: list[weakref.ref[Any]] = []

    class Counted(np.ndarray):
        pass

    def allocate(n_bytes: int) -> Memory:
        memory = aligned_memory(n_bytes).view(Counted)
        made.append(weakref.ref(memory))
        return memory

    pool = BufferPool(ring=4, allocate=allocate)
    arrays = [pool.lease((100,), "int64") for _ in range(50)]
    assert len(made) == 50
    arrays.clear()
    gc.collect()
    assert pool.idle == 4
    assert sum(one() is not None for one in made) == 4
    for size in range(1000, 100_000, 1000):  # changing sizes do not accumulate either
        pool.lease((size,), "uint8")
    assert pool.idle == 4


def test_small_arrays_do_not_hold_large_memory() -> None:
    pool = BufferPool()
    pool.lease((1_000_000,), "uint8")
    pool.lease((10_000,), "uint8")
    assert pool.idle == 2


def test_pinned_memory_is_reused_two_batches_later() -> None:
    pool = BufferPool(rest=2)
    array = pool.lease((100,), "int64")
    where = address(array)
    del array
    seen = []
    for _ in range(4):
        seen.append(address(pool.lease((100,), "int64")) == where)
        pool.next_batch()
    assert seen == [False, False, True, False]  # and then it rests again


class Leases(RuleBasedStateMachine):
    """Any sequence of leasing, keeping views, dropping and collecting: kept arrays never change."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(ring=3)
        self.held: list[tuple[np.ndarray, int]] = []
        self.stamp = 0

    @rule(rows=st.integers(0, 9), dtype=st.sampled_from(["int64", "int32", "uint8"]))
    def lease(self, rows: int, dtype: str) -> None:
        self.stamp = (self.stamp + 1) % 251
        array = self.pool.lease((rows, 100), dtype)
        array[...] = self.stamp
        self.held.append((array, self.stamp))

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 10**6), start=st.integers(0, 5))
    def keep_only_a_view(self, which: int, start: int) -> None:
        which %= len(self.held)
        array, stamp = self.held[which]
        self.held[which] = array[start:, ::2], stamp

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 10**6))
    def drop(self, which: int) -> None:
        del self.held[which % len(self.held)]

    @rule()
    def collect(self) -> None:
        gc.collect(0)

    @invariant()
    def nothing_held_was_overwritten(self) -> None:
        assert all((array == stamp).all() for array, stamp in self.held)
        assert self.pool.idle <= 3


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_threads_never_see_each_others_memory() -> None:
    pool = BufferPool(ring=8)
    wrong: list[str] = []
    handed_over: list[tuple[np.ndarray, int]] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        held: list[tuple[np.ndarray, int]] = []
        for step in range(1500):
            stamp = number * 10_000 + step
            array = pool.lease((rng.choice((50, 60, 200)),), "int64")
            array[:] = stamp
            held.append((array[rng.randrange(3) :], stamp))
            if rng.random() < 0.2:
                handed_over.append(held.pop())  # dies in another thread
            if rng.random() < 0.1:
                del handed_over[:2]
            while len(held) > rng.randrange(1, 12):
                kept, expected = held.pop(rng.randrange(len(held)))
                if not (kept == expected).all():
                    wrong.append(f"{expected} became {kept[0]}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert all((array == stamp).all() for array, stamp in handed_over)


def test_a_forked_child_starts_without_idle_buffers_and_keeps_inherited_ones() -> None:
    pool = BufferPool()
    array = pool.lease((1000,), "int64")
    array[:] = 5
    pool.lease((1000,), "int64")
    child = os.fork()
    if child == 0:
        fresh = pool.lease((1000,), "int64")
        fresh[:] = 6
        good = pool.idle == 0 and (array == 5).all()
        del array
        good = good and pool.idle == 0  # it went to the parent's list
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.idle == 1
    assert (array == 5).all()
