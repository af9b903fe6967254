"""The `lines` kernels in Numba."""

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit


@jit
def count_newlines(data):
    """Return the number of newlines in `data`, uint8 [n].

    See `fastpack.kernels.lines_np.count_newlines`.
    """
    total = 0
    for first in range(0, data.size, 8192):
        # A narrow accumulator decides how many lanes SIMD gets; 8192 ones fit in int16.
        block = data[first : first + 8192]
        count = np.int16(0)
        for i in range(block.size):
            count += np.int16(block[i] == 10)
        total += int(count)
    return total


@jit
def index_lines(data, base, line_start, out):
    """Write the position and length of each line that ends in a window of a file.

    See `fastpack.kernels.lines_np.index_lines`.
    """
    n_rows = 0
    capacity = out.shape[0]
    if out.shape[1] != 2:
        raise ValueError("out must have two columns: offset and length")
    if capacity == 0:
        return 0, 0, line_start
    for first in range(0, data.size, 64):
        block = data[first : first + 64]
        hit = np.uint8(0)
        if block.size == 64:  # a constant trip count becomes one SIMD compare; most blocks of long lines end here
            for i in range(64):
                hit |= np.uint8(block[i] == 10)
            if hit == 0:
                continue
        for i in range(block.size):
            if block[i] == 10:
                newline = base + first + i
                out[n_rows, 0] = line_start
                out[n_rows, 1] = newline - line_start
                line_start = newline + 1
                n_rows += 1
                if n_rows == capacity:
                    return n_rows, first + i + 1, line_start
    return n_rows, data.size, line_start


def compile_all(_token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile for writeable and read-only buffers (a read-only array is another signature)."""
    out = np.empty((1, 2), np.int64)
    for writeable in (True, False):
        data = np.frombuffer(b"a\nb\n", np.uint8).copy()
        data.flags.writeable = writeable
        count_newlines(data)
        index_lines(data, 0, 0, out)
