"""The `token_statistics` kernels in Cython."""

from cpython.buffer cimport PyBUF_CONTIG_RO, PyBUF_FORMAT, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

include "dtypes.pxi"

ctypedef fused token_t:
    uint8_t
    uint16_t
    uint32_t
    int8_t
    int16_t
    int32_t
    int64_t

cdef enum:
    BLOCK = 512  # tokens per block; accumulators as narrow as the tokens keep the loop in vector registers

cdef struct Found:
    int64_t smallest
    int64_t largest
    Py_ssize_t n_eos


cdef void scan(const token_t *tokens, Py_ssize_t n, int64_t eos, Found *found) noexcept nogil:
    cdef Py_ssize_t i, stop, start = 0
    cdef token_t narrow = <token_t> eos, low, high, hit
    cdef bint present = <int64_t> narrow == eos
    while start < n:
        stop = min(start + <Py_ssize_t> BLOCK, n)
        low = high = tokens[start]
        hit = 0
        for i in range(start, stop):
            hit |= <token_t> (tokens[i] == narrow)
            low = tokens[i] if tokens[i] < low else low
            high = tokens[i] if tokens[i] > high else high
        found.smallest = min(found.smallest, <int64_t> low)
        found.largest = max(found.largest, <int64_t> high)
        if hit and present:
            for i in range(start, stop):
                found.n_eos += tokens[i] == narrow
        start = stop


cdef bint run(Py_buffer *tokens, Py_ssize_t n, int64_t eos, Found *found) noexcept nogil:
    """Scan, dispatched by dtype; return False for an unsupported dtype."""
    cdef int code = type_code(tokens)
    if code == UINT8:
        scan(<const uint8_t *> tokens.buf, n, eos, found)
    elif code == UINT16:
        scan(<const uint16_t *> tokens.buf, n, eos, found)
    elif code == UINT32:
        scan(<const uint32_t *> tokens.buf, n, eos, found)
    elif code == INT8:
        scan(<const int8_t *> tokens.buf, n, eos, found)
    elif code == INT16:
        scan(<const int16_t *> tokens.buf, n, eos, found)
    elif code == INT32:
        scan(<const int32_t *> tokens.buf, n, eos, found)
    elif code == INT64:
        scan(<const int64_t *> tokens.buf, n, eos, found)
    else:
        return False
    return True


def scan_tokens(tokens not None, int64_t eos):
    """Return (smallest token or 0, largest token or 0, number of EOS tokens).

    See `fastpack.kernels.token_statistics_np.scan_tokens`.
    """
    cdef Py_buffer view
    cdef Found found
    cdef bint known
    found.smallest, found.largest, found.n_eos = 0, 0, 0
    PyObject_GetBuffer(tokens, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT)
    with nogil:
        known = run(&view, view.len // view.itemsize, eos, &found)
    PyBuffer_Release(&view)
    if not known:
        raise TypeError(f"no kernel for tokens of dtype {tokens.dtype}")
    return found.smallest, found.largest, found.n_eos


cdef Py_ssize_t count(const token_t *tokens, Py_ssize_t n, uint32_t *counts, uint64_t n_ids) noexcept nogil:
    cdef Py_ssize_t i = 0, n_outside = 0
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
            n_outside += 1
        i += 1
    return n_outside


cdef Py_ssize_t count_by_type(Py_buffer *tokens, Py_ssize_t n, uint32_t *counts, uint64_t n_ids) noexcept nogil:
    """Count, dispatched by dtype; return -1 for an unsupported dtype."""
    cdef int code = type_code(tokens)
    if code == UINT8:
        return count(<const uint8_t *> tokens.buf, n, counts, n_ids)
    if code == UINT16:
        return count(<const uint16_t *> tokens.buf, n, counts, n_ids)
    if code == UINT32:
        return count(<const uint32_t *> tokens.buf, n, counts, n_ids)
    if code == INT8:
        return count(<const int8_t *> tokens.buf, n, counts, n_ids)
    if code == INT16:
        return count(<const int16_t *> tokens.buf, n, counts, n_ids)
    if code == INT32:
        return count(<const int32_t *> tokens.buf, n, counts, n_ids)
    if code == INT64:
        return count(<const int64_t *> tokens.buf, n, counts, n_ids)
    return -1


def count_tokens(tokens not None, uint32_t[::1] counts not None):
    """Add the frequency of each token id to `counts`; return the number of tokens without an entry there.

    See `fastpack.kernels.token_statistics_np.count_tokens`.
    """
    cdef Py_buffer view
    cdef Py_ssize_t n_outside
    cdef uint32_t *first = &counts[0] if counts.shape[0] else NULL
    PyObject_GetBuffer(tokens, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT)
    with nogil:
        n_outside = count_by_type(&view, view.len // view.itemsize, first, counts.shape[0])
    PyBuffer_Release(&view)
    if n_outside < 0:
        raise TypeError(f"no kernel for tokens of dtype {tokens.dtype}")
    return n_outside


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
