"""The random orders of Modalities: of `random.Random(seed).shuffle` and of NumPy's default generator."""

from __future__ import annotations

import hashlib
import random
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels

Order: TypeAlias = npt.NDArray[np.int32]
Seed: TypeAlias = int | float | str | bytes | bytearray | None

MOST = 1 << 31  # documents that an order takes


def stdlib_order(n: int, seed: Seed) -> Order:
    """The order [n] into which `random.Random(seed).shuffle` brings a list of n. None: another one every time."""
    order = _in_order(n)
    state = random.Random(seed).getstate()[1]  # what a seed means is the standard library's business
    kernels.stdlib_shuffle(np.array(state, np.uint32), order)
    return order


def numpy_order(n: int, seed: int | None) -> Order:
    """The order [n] into which `np.random.default_rng(seed).shuffle` brings a list of n (arrays take the same one)."""
    order = _in_order(n)
    np.random.default_rng(seed).shuffle(order)
    return order


def _in_order(n: int) -> Order:
    if n >= MOST:
        raise ValueError(f"{n} documents: at most {MOST - 1} can be shuffled at once")
    return np.arange(n, dtype=np.int32)


def chunk_seed(global_seed: int | None, chunk_id: int) -> int | None:
    """The seed of a chunk: a sum of hashes below 2^32 - 1; None without a global seed."""
    if global_seed is None:
        return None
    hashes = (hashlib.sha256(str(part).encode()).hexdigest() for part in (global_seed, chunk_id))
    return sum(int(digest, 16) for digest in hashes) % (2**32 - 1)


def check_chunk(chunk_id: int, num_chunks: int) -> None:
    """Raise ValueError where there is no such chunk."""
    if num_chunks < 1:
        raise ValueError(f"Number of chunks must be greater than 0, not {num_chunks}.")
    if not 0 <= chunk_id < num_chunks:
        raise ValueError(f"Chunk ID must be less than the number of chunks, and not negative: {chunk_id}")


def chunk_range(n: int, chunk_id: int, num_chunks: int) -> tuple[int, int]:
    """The documents [start, end) of n that chunk `chunk_id` takes: sizes differ by one, the larger chunks first."""
    size, larger = divmod(n, num_chunks)
    start = chunk_id * size + min(chunk_id, larger)
    return start, start + size + (chunk_id < larger)
