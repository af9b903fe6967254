"""The `token_statistics` kernels in Cython."""

from cpython.buffer cimport PyBUF_CONTIG_RO
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

include "dtypes.pxi"

cdef enum:
    BLOCK = 512  # tokens per block; accumulators as narrow as the tokens keep the loop in vector registers

cdef struct Task:
    Py_ssize_t n_tokens
    bint counting  # or scanning
    int64_t eos
    int64_t smallest
    int64_t largest
    Py_ssize_t n_eos
    uint32_t *counts
    uint64_t n_ids
    Py_ssize_t n_outside


cdef void scan(const token_t *tokens, Task *task) noexcept nogil:
    cdef Py_ssize_t i, stop, start = 0, n = task.n_tokens, n_eos = 0
    cdef int64_t smallest = 0, largest = 0
    cdef token_t narrow = <token_t> task.eos, low, high, hit
    cdef bint present = <int64_t> narrow == task.eos
    while start < n:
        stop = min(start + <Py_ssize_t> BLOCK, n)
        low = high = tokens[start]
        hit = 0
        for i in range(start, stop):
            hit |= <token_t> (tokens[i] == narrow)
            low = tokens[i] if tokens[i] < low else low
            high = tokens[i] if tokens[i] > high else high
        smallest = min(smallest, <int64_t> low)
        largest = max(largest, <int64_t> high)
        if hit and present:
            for i in range(start, stop):
                n_eos += tokens[i] == narrow
        start = stop
    task.smallest, task.largest, task.n_eos = smallest, largest, n_eos


cdef void count(const token_t *tokens, Task *task) noexcept nogil:
    cdef Py_ssize_t i = 0, n = task.n_tokens
    cdef uint32_t *counts = task.counts
    cdef uint64_t n_ids = task.n_ids
    cdef uint64_t token, four
    if token_t is uint16_t:
        if n_ids > 0xffff:  # every token has an entry; loading four at once is 20% faster
            while i + 4 <= n:
                memcpy(&four, tokens + i, 8)
                counts[four & 0xffff] += 1
                counts[(four >> 16) & 0xffff] += 1
                counts[(four >> 32) & 0xffff] += 1
                counts[four >> 48] += 1
                i += 4
    while i < n:
        token = <uint64_t> <int64_t> tokens[i]  # negative tokens become the largest
        if token < n_ids:
            counts[token] += 1
        else:
            task.n_outside += 1
        i += 1


cdef int run(const token_t *tokens, Task *task) noexcept nogil:
    if task.counting:
        count(tokens, task)
    else:
        scan(tokens, task)
    return 0


include "token_dispatch.pxi"


cdef int run_on(tokens, Task *task) except -1:
    """Run the task on an array of tokens; raise TypeError for an unsupported dtype."""
    cdef Py_buffer view
    cdef int status
    PyObject_GetBuffer(tokens, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT)
    task.n_tokens = view.len // view.itemsize
    with nogil:
        status = run_typed(type_code(&view), view.buf, task)
    PyBuffer_Release(&view)
    if status == UNKNOWN_TOKENS:
        raise TypeError(f"no kernel for tokens of dtype {tokens.dtype}")
    return 0


def scan_tokens(tokens not None, int64_t eos):
    """Return (smallest token or 0, largest token or 0, number of EOS tokens).

    See `fastpack.kernels.token_statistics_np.scan_tokens`.
    """
    cdef Task task
    task.counting, task.eos = False, eos
    run_on(tokens, &task)
    return task.smallest, task.largest, task.n_eos


def count_tokens(tokens not None, uint32_t[::1] counts not None):
    """Add the frequency of each token id to `counts`; return the number of tokens without an entry there.

    See `fastpack.kernels.token_statistics_np.count_tokens`.
    """
    cdef Task task
    task.counting, task.n_ids, task.n_outside = True, counts.shape[0], 0
    task.counts = &counts[0] if counts.shape[0] else NULL
    run_on(tokens, &task)
    return task.n_outside


def used_bytes(const uint8_t[::1] data not None):
    """Return the number of bytes of `data`, uint8 [n], up to and including the last nonzero one; 0 if there is none.

    See `fastpack.kernels.token_statistics_np.used_bytes`.
    """
    cdef Py_ssize_t i, start, stop = data.shape[0]
    cdef uint8_t bits
    with nogil:
        while stop > 0:
            start = max(<Py_ssize_t> 0, stop - 4096)
            bits = 0
            for i in range(start, stop):
                bits |= data[i]
            if bits:
                while stop > start and data[stop - 1] == 0:
                    stop -= 1
                if stop > start:
                    break
            stop = start  # also if a mapped file was zeroed meanwhile
    return stop
