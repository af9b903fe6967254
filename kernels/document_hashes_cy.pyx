"""The `document_hashes` kernel in Cython."""

from cpython.buffer cimport PyBUF_CONTIG_RO
from libc.stdint cimport uint64_t

include "dtypes.pxi"

cdef uint64_t STEP = 0x9E3779B97F4A7C15u, FIRST = 0xBF58476D1CE4E5B9u, SECOND = 0x94D049BB133111EBu

cdef struct Task:
    Py_ssize_t n_tokens
    const int64_t *rows
    Py_ssize_t n_rows
    uint64_t *sums


cdef int run(const token_t *tokens, Task *task) noexcept nogil:
    cdef Py_ssize_t number
    cdef int64_t i, start, first, end
    cdef uint64_t total, place, value
    for number in range(task.n_rows):
        start = task.rows[2 * number]
        first = max(start, <int64_t> 0)
        end = start + task.rows[2 * number + 1]
        end = min(end, <int64_t> task.n_tokens)
        total, place = 0, <uint64_t> (first - start) * STEP
        for i in range(first, end):
            place += STEP
            value = <uint64_t> <int64_t> tokens[i] + place
            value = (value ^ (value >> 30)) * FIRST
            value = (value ^ (value >> 27)) * SECOND
            total += value ^ (value >> 31)
        task.sums[number] += total
    return 0


include "token_dispatch.pxi"


def add_hashes(tokens not None, const int64_t[:, ::1] rows not None, uint64_t[::1] sums not None):
    """Add the hashes of the tokens of each document that are in this block of a stream to the document's sum.

    See `fastpack.kernels.document_hashes_np.add_hashes`.
    """
    cdef Py_buffer view
    cdef Task task
    cdef int status
    if rows.shape[0] != sums.shape[0] or rows.shape[1] != 2:
        raise ValueError("expected a sum for each document")
    if rows.shape[0] == 0:
        return
    PyObject_GetBuffer(tokens, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT)
    task = Task(view.len // view.itemsize, &rows[0, 0], rows.shape[0], &sums[0])
    with nogil:
        status = run_typed(type_code(&view), view.buf, &task)
    PyBuffer_Release(&view)
    if status == UNKNOWN_TOKENS:
        raise TypeError(f"no kernel for tokens of dtype {tokens.dtype}")
