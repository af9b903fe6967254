"""The `spans` kernels in Cython: compiled ahead of time, no warm-up."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define FP_PREFETCH(address, write) __builtin_prefetch((address), (write), 2)
    #else
    #define FP_PREFETCH(address, write) ((void) (address))
    #endif
    """
    void FP_PREFETCH(const void *address, int write) noexcept nogil

cdef enum:
    # Spans between the prefetch of a span's first lines and its copy: 1.6 kB documents from all over a gigabyte take
    # 254 ns each, 291 without it; of 400 bytes 99 and 121.
    AHEAD = 8


cdef void copy_all(
    const uint8_t *data, const int64_t *starts, const int64_t *targets, const int64_t *lengths, Py_ssize_t n,
    uint8_t *out,
) noexcept nogil:
    cdef Py_ssize_t i, ahead
    for i in range(n):
        ahead = min(i + AHEAD, n - 1)
        FP_PREFETCH(data + starts[ahead], 0)
        FP_PREFETCH(out + targets[ahead], 1)
        memcpy(out + targets[i], data + starts[i], <size_t> lengths[i])


def copy_spans(
    const uint8_t[::1] data not None,
    const int64_t[::1] starts not None,
    const int64_t[::1] targets not None,
    const int64_t[::1] lengths not None,
    uint8_t[::1] out not None,
):
    cdef Py_ssize_t n = starts.shape[0]
    if targets.shape[0] != n or lengths.shape[0] != n:
        raise ValueError(f"{n} starts, {targets.shape[0]} targets and {lengths.shape[0]} lengths: as many are needed")
    if n and data.shape[0] and out.shape[0]:
        with nogil:
            copy_all(&data[0], &starts[0], &targets[0], &lengths[0], n, &out[0])
