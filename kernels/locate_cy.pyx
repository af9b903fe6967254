"""The `locate` kernels in Cython."""

from libc.stdint cimport int64_t, uint64_t


cdef inline Py_ssize_t last_not_above(const int64_t *cumulative, Py_ssize_t n, int64_t index) noexcept nogil:
    cdef Py_ssize_t low = 0, high = n, middle
    while low < high:
        middle = (low + high) >> 1
        if cumulative[middle] <= index:
            low = middle + 1
        else:
            high = middle
    return low - 1


def locate(const int64_t[::1] cumulative not None, int64_t index):
    """Return the shard of sample `index`: the last s with cumulative[s] <= index.

    See `fastpack.kernels.locate_np.locate`.
    """
    cdef Py_ssize_t n = cumulative.shape[0]
    return last_not_above(&cumulative[0], n, index) if n else -1


def locate_many(
    const int64_t[::1] cumulative not None, const int64_t[::1] indices not None,
    int64_t[::1] shards not None, int64_t[::1] locals_ not None
):
    """Write the shard of each sample and its number in the shard; return the position of the first bad index.

    See `fastpack.kernels.locate_np.locate_many`.
    """
    cdef Py_ssize_t k, n = cumulative.shape[0], n_indices = indices.shape[0], shard
    cdef int64_t index, total = cumulative[n - 1] if n else 0
    if shards.shape[0] < n_indices or locals_.shape[0] < n_indices:
        raise ValueError("shards and locals_ must be as long as indices")
    with nogil:
        for k in range(n_indices):
            index = indices[k]
            if index < 0 or index >= total:
                n_indices = k
                break
            shard = last_not_above(&cumulative[0], n, index)
            if shard < 0 or shard >= n - 1:  # `cumulative` is not ascending, or another thread changes it
                n_indices = k
                break
            shards[k] = shard
            locals_[k] = index - cumulative[shard]
    return n_indices


def locate_windows(
    const int64_t[::1] cumulative not None, const int64_t[::1] indices not None, const uint64_t[::1] bases not None,
    int64_t step_bytes, uint64_t[::1] addresses not None
):
    """Write the memory address of each sample's window; return the position of the first sample without one.

    See `fastpack.kernels.locate_np.locate_windows`.
    """
    cdef Py_ssize_t k, n = cumulative.shape[0], n_indices = indices.shape[0], shard
    cdef int64_t index, total = cumulative[n - 1] if n else 0
    cdef uint64_t base
    if addresses.shape[0] < n_indices or bases.shape[0] < n - 1:
        raise ValueError("addresses must be as long as indices, bases as long as there are shards")
    for k in range(n_indices):
        index = indices[k]
        if index < 0 or index >= total:
            return k
        shard = last_not_above(&cumulative[0], n, index)
        if shard < 0 or shard >= n - 1:
            return k
        base = bases[shard]
        if base == 0:
            return k
        addresses[k] = base + <uint64_t> ((index - cumulative[shard]) * step_bytes)
    return n_indices
