"""The `megatron_blocks` kernel in Cython."""

from libc.stdint cimport int64_t


def block_starts(const int64_t[:, ::1] rows not None, int64_t block_bytes, int64_t first, int64_t[::1] starts not None):
    """Write the offset of each block of `block_bytes`; return the number of blocks.

    See `fastpack.kernels.megatron_blocks_np.block_starts`.
    """
    cdef Py_ssize_t k, n_blocks = 0
    cdef int64_t start = first, gathered = 0, length
    if rows.shape[1] != 2 or starts.shape[0] < rows.shape[0]:
        raise ValueError("rows must be [n, 2] and starts as long")
    with nogil:
        for k in range(rows.shape[0]):
            length = rows[k, 1]
            if gathered + length < block_bytes:
                gathered += length
                continue
            starts[n_blocks] = start
            n_blocks += 1
            if gathered + length == block_bytes or length > block_bytes:
                start += block_bytes
                gathered = 0
            else:
                start = rows[k, 0]
                gathered = length
    return n_blocks
