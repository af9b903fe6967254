"""The random orders of Modalities: `random.Random(seed).shuffle` and NumPy's default generator."""

from __future__ import annotations

import hashlib
import random
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels

Order: TypeAlias = npt.NDArray[np.int32]
Seed: TypeAlias = int | float | str | bytes | bytearray | None

MAX_DOCUMENTS = 1 << 31


def stdlib_order(n: int, seed: Seed) -> Order:
    """Return the order [n] in which `random.Random(seed).shuffle` puts a list of n; without a seed, a new one."""
    order = _identity(n)
    state = random.Random(seed).getstate()[1]  # the standard library turns the seed into a state
    kernels.stdlib_shuffle(np.array(state, np.uint32), order)
    return order


def numpy_order(n: int, seed: int | None) -> Order:
    """Return the order [n] in which `np.random.default_rng(seed).shuffle` puts a list of n (or an array)."""
    order = _identity(n)
    np.random.default_rng(seed).shuffle(order)
    return order


def _identity(n: int) -> Order:
    if n >= MAX_DOCUMENTS:
        raise ValueError(f"{n} documents: at most {MAX_DOCUMENTS - 1} can be shuffled at once")
    return np.arange(n, dtype=np.int32)


def chunk_seed(global_seed: int | None, chunk_id: int) -> int | None:
    """Return the seed of a chunk, a sum of hashes below 2^32 - 1; None without a global seed."""
    if global_seed is None:
        return None
    hashes = (hashlib.sha256(str(number).encode()).hexdigest() for number in (global_seed, chunk_id))
    return sum(int(digest, 16) for digest in hashes) % (2**32 - 1)


def check_chunk(chunk_id: int, num_chunks: int) -> None:
    """Raise ValueError unless 0 <= chunk_id < num_chunks."""
    if num_chunks < 1:
        raise ValueError(f"Number of chunks must be greater than 0, not {num_chunks}.")
    if not 0 <= chunk_id < num_chunks:
        raise ValueError(f"Chunk ID must be less than the number of chunks, and not negative: {chunk_id}")


def chunk_range(n: int, chunk_id: int, num_chunks: int) -> tuple[int, int]:
    """Return the documents [start, end) of n that a chunk contains: sizes differ by one, larger chunks first."""
    size, larger = divmod(n, num_chunks)
    start = chunk_id * size + min(chunk_id, larger)
    return start, start + size + (chunk_id < larger)
