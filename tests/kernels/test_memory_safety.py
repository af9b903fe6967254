"""No kernel reads or writes outside its arrays, whatever they contain or another thread writes to them.

Each output has guards before and after it. Tests that race with another thread run in a separate process: without the
checks, they would crash or never end.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastpack import kernels

NO_NUMBA = pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="numba is not installed")
COMPILED = [pytest.param("numba", marks=NO_NUMBA), "cython"]
COMPILED_LOCATE = {"numba": "locate_nb", "cython": "locate_cy"}
GUARD = 64  # entries before and after an output


def guarded(shape: tuple[int, ...], dtype: Any, fill: int = 0) -> tuple[np.ndarray, Callable[[], bool]]:
    """Return an array between two guards, and a function that checks the guards."""
    n = int(np.prod(shape))
    memory = np.full(n + 2 * GUARD, 77, dtype)
    inside = memory[GUARD : GUARD + n]
    inside[:] = fill
    return inside.reshape(shape), lambda: bool((memory[:GUARD] == 77).all() and (memory[GUARD + n :] == 77).all())


def integers(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize(
    ("row", "place"),
    [([0, 1, -5], 2), ([0, 1, -1], 2), ([0, 1, 3], 2), ([9, 0, 1], 0), ([0, 7, 0], 1), ([9, 9, 2], None)],
)
def test_positions_outside_a_row_end_the_search(backend: str, dtype: Any, row: list[int], place: int | None) -> None:
    """Without the checks, -1 would loop forever, -5 would pass the end of the row, and 3 its start."""
    positions = np.array([[0, 1, 2], row], dtype)
    out, is_intact = guarded((8,), np.int32)
    needed, found = kernels.cu_seqlens(positions, out)
    assert is_intact()
    if place is None:
        assert (needed, found) == (3, 3)
    else:
        assert (needed, found) == (0, 3 + place)


FLIPPING = """
import threading
import time
import numpy as np
from fastpack import kernels
from fastpack.kernels import spans_cy

class Flipping:
    "Overwrite `array` alternately with two contents, in a thread that needs no GIL."
    def __init__(self, array, one, other):
        data = np.concatenate([np.ravel(one), np.ravel(other)]).astype(array.dtype).view(np.uint8)
        n = int(2e7 / (10 + array.nbytes / 10))  # some 20 ms
        zeros, target = np.zeros(n, np.int64), array.view(np.uint8).ravel()
        self.spans = (data, np.arange(n) % 2 * array.nbytes, zeros, zeros + array.nbytes, target)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)
    def run(self):
        while not self.stop.is_set():
            spans_cy.copy_spans(*self.spans)
    def __enter__(self):
        self.thread.start()
    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

def half_a_second():
    end = time.monotonic() + 0.5  # less, and the other thread may never have run
    while time.monotonic() < end:
        yield
"""


def run_flipping(code: str, backend_name: str) -> None:
    """Run the code with a backend in a separate process, which alone ends after a crash or an endless loop."""
    words = [sys.executable, "-c", f"{FLIPPING}\nkernels.use({backend_name!r})\n{code}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_concurrently_changed_positions_cause_no_write_outside_the_output(backend: str) -> None:
    """Documents are counted first; more documents later would need more bounds than `out` has.

    Here, writing the first bound turns one document of row 6 into 64, as another thread might do at any time.
    """
    positions = np.arange(64, dtype=np.int32)[None].repeat(8, 0)
    positions[6, :63] = 0
    out = positions.reshape(-1)[6 * 64 + 63 : 6 * 64 + 63 + 9]
    needed, _ = kernels.cu_seqlens(positions, out)
    assert needed in (0, 9)
    assert (positions[:6] == np.arange(64)).all()
    assert (positions[6, :63] == 0).all()


@pytest.mark.parametrize("row", [-1, 2, 2**40, -(2**62)])
@pytest.mark.parametrize("kernel", ["fill_packed", "fill_documents", "fill_plain", "fill_tokens"])
def test_a_row_outside_the_outputs_is_rejected(backend: str, kernel: str, row: int) -> None:
    tokens = np.arange(20, dtype=np.uint16)
    n_outputs = {"fill_packed": 3, "fill_documents": 4, "fill_plain": 2, "fill_tokens": 1}[kernel]
    outputs = [guarded((2, 8), np.int64) for _ in range(n_outputs)]
    eos = () if kernel in ("fill_plain", "fill_tokens") else (3,)
    addresses = np.full(2, tokens.ctypes.data, np.uint64)
    with pytest.raises(ValueError, match="a row outside the outputs"):
        getattr(kernels, kernel)(addresses, integers([0, row]), tokens[:0], *eos, *(array for array, _ in outputs))
    assert all(is_intact() for _, is_intact in outputs)


@pytest.mark.parametrize("kernel", ["fill_packed", "fill_documents", "fill_plain"])
def test_outputs_of_different_shapes_are_rejected(backend: str, kernel: str) -> None:
    tokens = np.arange(20, dtype=np.uint16)
    n_outputs = {"fill_packed": 3, "fill_documents": 4, "fill_plain": 2}[kernel]
    eos = () if kernel == "fill_plain" else (3,)
    addresses = np.full(1, tokens.ctypes.data, np.uint64)
    for odd in range(1, n_outputs):
        outputs = [np.zeros((1, 4 if k == odd else 8), np.int64) for k in range(n_outputs)]
        with pytest.raises(ValueError, match="one shape"):
            getattr(kernels, kernel)(addresses, integers([0]), tokens[:0], *eos, *outputs)
    outputs = [np.zeros((2, 8), np.int64) for _ in range(n_outputs)]
    with pytest.raises(ValueError, match="one length"):
        getattr(kernels, kernel)(addresses, integers([0, 1]), tokens[:0], *eos, *outputs)


@pytest.mark.parametrize(
    ("row", "column", "length"),
    [
        (-1, 0, 1),
        (2, 0, 1),
        (2**40, 0, 1),
        (0, -1, 1),
        (0, 9, 0),
        (0, 7, 2),
        (0, 0, -1),
        (0, 1, 2**63 - 1),
        (0, -(2**63), 1),
        (0, 4, -(2**63)),
    ],
)
def test_a_segment_outside_the_outputs_is_rejected(backend: str, row: int, column: int, length: int) -> None:
    tokens = np.arange(20, dtype=np.uint16)
    outputs = [guarded((2, 8), np.int64) for _ in range(4)]
    place = (integers([0, row]), integers([0, column]), integers([1, length]))
    for address in (tokens.ctypes.data, 0):
        call = (np.full(2, address, np.uint64), *place)
        arrays = [array for array, _ in outputs]
        with pytest.raises(ValueError, match="a segment outside the outputs"):
            kernels.fill_segments(*call, place[2], integers([0, 1]), 0, tokens[:0], *arrays)
        with pytest.raises(ValueError, match="a segment outside the outputs"):
            kernels.copy_segments(*call, tokens[:0], arrays[0])
    assert all(is_intact() for _, is_intact in outputs)


def test_spans_outside_the_arrays_are_rejected(backend: str) -> None:
    data = np.arange(10, dtype=np.uint8)
    for start, target, length in ((-1, 0, 1), (0, -1, 1), (0, 0, -1), (8, 0, 3), (0, 8, 3), (2**62, 0, 2**62)):
        out, is_intact = guarded((10,), np.uint8)
        with pytest.raises(ValueError, match="outside data or out"):
            kernels.copy_spans(data, integers([0, start]), integers([0, target]), integers([1, length]), out)
        assert is_intact()
    with pytest.raises(ValueError, match="one length"):
        kernels.copy_spans(data, integers([0, 1]), integers([0]), integers([1, 1]), data.copy())


@pytest.mark.parametrize("backend_name", COMPILED)
def test_unsorted_cumulative_sums_cause_no_read_outside_the_array(backend_name: str) -> None:
    """The bisection of unsorted numbers may end before the first or after the last one."""
    kernels = importlib.import_module(f"fastpack.kernels.{COMPILED_LOCATE[backend_name]}")
    shards, local, addresses = np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.uint64)
    for cumulative in ([5, 6, 7], [0, 9, 3, 2, 4], [0, 1, 2, 3, 4, 5, 0, 6]):
        sums, n_shards = integers(cumulative), len(cumulative) - 1
        for index in range(cumulative[-1]):
            if kernels.locate_many(sums, integers([index]), shards, local):
                assert 0 <= shards[0] < n_shards
            kernels.locate_windows(sums, integers([index]), np.full(n_shards, 1000, np.uint64), 1, addresses)
    none = integers([])
    assert kernels.locate_many(none, integers([0]), shards, local) == 0
    assert kernels.locate_windows(none, integers([0]), np.zeros(0, np.uint64), 1, addresses) == 0


def test_texts_outside_the_data_are_rejected(backend: str) -> None:
    data, work = np.frombuffer(b"bbaa", np.uint8), np.zeros(40, np.int64)
    for bounds in ([0, 2, 5], [-1, 2, 4], [0, 3, 2], [2**62, 2**62 + 2, 2**62 + 4]):
        with pytest.raises(ValueError, match="a text outside the data"):
            kernels.sort_texts(data, integers(bounds), work, np.zeros(2, np.int64))
    rows = np.zeros((2, 3), np.int64)
    for number in (-1, 2, 2**40):
        rows[1, 2] = number
        with pytest.raises(ValueError, match="a text outside the data"):
            kernels.sort_within(rows, 0, data, integers([0, 2, 4]), work, np.zeros(2, np.int64))


def test_cells_outside_the_arrays_are_rejected(backend: str) -> None:
    from fastpack.kernels.codecs.btree_layout import CELL_ROOM, INDEX_LEAF, PAGE_BYTES, TABLE_LEAF, TEXT

    rows, data = np.zeros((2, 2), np.int64), np.frombuffer(b"abcd", np.uint8)
    for order, text, bounds in (
        ([2], 0, [0, 4]),
        ([-1], 0, [0, 4]),
        ([0], 1, [0, 4]),
        ([0], -1, [0, 4]),
        ([0], 0, [0, 5]),
        ([0], 0, [3, 1]),
    ):
        cells, is_intact = guarded((CELL_ROOM,), np.uint8)
        call = (integers([0, TEXT]), integers([text]), integers(bounds), data, np.zeros(3, np.int64), cells)
        with pytest.raises(ValueError, match="row 0 of the order, or its text"):
            kernels.encode_cells(TABLE_LEAF, rows, integers(order), *call, np.zeros(2, np.int64))
        assert is_intact()
    for ends in ([20, 40, 200], [40, 20, -5], [2**62, 2**62 + 9, 2**62 + 18]):
        pages, is_intact = guarded((PAGE_BYTES,), np.uint8)
        call = (True, 0, 1, 1, np.zeros(2, np.int64), pages, np.zeros(1040, np.uint8), np.zeros(1, np.int64))
        with pytest.raises(ValueError, match="page 0 do not fit"):
            kernels.pack_cells(INDEX_LEAF, np.zeros(100, np.uint8), integers(ends), *call)
        assert is_intact()


@pytest.mark.parametrize("backend_name", COMPILED)
def test_concurrently_zeroed_data_causes_no_read_outside_it(backend_name: str) -> None:
    """Another process may zero a mapped file between the test of a block and the backward search in it."""
    code = """
memory = np.zeros(1 << 16, np.uint8)
data = memory[4096:8192]
kernels.used_bytes(data)
with Flipping(data[:1], [1], [0]):
    found = {kernels.used_bytes(data) for _ in half_a_second()}
assert found <= {0, 1}, found
"""
    run_flipping(code, backend_name)


@pytest.mark.parametrize("backend_name", COMPILED)
def test_concurrently_changed_indices_and_rows(backend_name: str) -> None:
    """Each value is read once: a valid row that changes after its check causes no access outside the arrays."""
    code = """
tokens, memory = np.arange(64, dtype=np.uint16), np.full((300, 8), 77)
out, addresses, rows = memory[100:200], np.full(50, tokens.ctypes.data, np.uint64), np.zeros(50, np.int64)
starts = np.zeros(50, np.int64)
span_memory = np.full(300, 77, np.uint8)
kernels.fill_tokens(addresses, rows, tokens[:0], out)
with Flipping(rows, rows, rows - 90), Flipping(starts, starts, starts - 90):
    for _ in half_a_second():
        try:
            kernels.fill_tokens(addresses, rows, tokens[:0], out)
        except ValueError:
            pass
        try:
            kernels.copy_spans(tokens.view(np.uint8), rows * 0, starts, rows * 0 + 1, span_memory[100:200])
        except ValueError:
            pass
        assert (memory[:100] == 77).all() and (memory[200:] == 77).all()
        assert (span_memory[:100] == 77).all() and (span_memory[200:] == 77).all()
"""
    run_flipping(code, backend_name)
