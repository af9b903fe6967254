"""The `segments` kernels in Cython."""

from cpython.buffer cimport PyBUF_CONTIG
from libc.stdint cimport uint64_t

include "dtypes.pxi"
include "widen.pxi"

cdef enum:
    N_OUTPUTS = 4
    OUTSIDE = -2  # status: a segment outside the outputs


cdef struct Task:
    const uint64_t *addresses
    const int64_t *rows
    const int64_t *columns
    const int64_t *lengths
    const int64_t *numbers
    Py_ssize_t n_segments
    int64_t padding
    # input_ids, labels, doc_ids, position_ids: each [n_rows, width], or NULL if it is not an output.
    void *outputs[N_OUTPUTS]
    int output_type
    Py_ssize_t n_rows
    Py_ssize_t width


cdef inline void set_all(wide_t *out, Py_ssize_t n, wide_t value) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = value


cdef inline void ramp(wide_t *out, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = <wide_t> i


cdef int fill(const token_t *tokens, wide_t *input_ids, Task *task) noexcept nogil:
    """Write each segment into its row; return 1 if a token does not fit, OUTSIDE for a segment outside the outputs."""
    cdef Py_ssize_t k, at, width = task.width
    cdef int64_t row, start, n
    cdef wide_t *labels = <wide_t *> task.outputs[1]
    cdef wide_t *doc_ids = <wide_t *> task.outputs[2]
    cdef wide_t *position_ids = <wide_t *> task.outputs[3]
    cdef wide_t padding = <wide_t> task.padding
    cdef uint32_t bits = 0
    for k in range(task.n_segments):
        row, start, n = task.rows[k], task.columns[k], task.lengths[k]
        if row < 0 or row >= task.n_rows or start < 0 or n < 0 or start > width or n > width - start:
            return OUTSIDE
        at = row * width + start
        if task.addresses[k] == 0:
            bits |= <uint32_t> (n > 0 and <int64_t> padding != task.padding) << 31
            set_all(input_ids + at, n, padding)
            if labels != NULL:
                set_all(labels + at, n, -100)
        else:
            tokens = <const token_t *> task.addresses[k]
            bits |= widen(tokens, n, input_ids + at)
            if labels != NULL and n > 0:
                widen(tokens + 1, n - 1, labels + at)
                labels[at + n - 1] = -100
        if doc_ids != NULL:
            set_all(doc_ids + at, n, <wide_t> task.numbers[k])
        if position_ids != NULL:
            ramp(position_ids + at, n)
    return bits >> 31


cdef int run(const token_t *tokens, Task *task) noexcept nogil:
    if task.output_type == INT64:
        return fill(tokens, <int64_t *> task.outputs[0], task)
    return fill(tokens, <int32_t *> task.outputs[0], task)


include "token_dispatch.pxi"


cdef int add_output(Task *task, int k, const Py_buffer *view) except -1:
    """Set output k; ValueError unless it has the shape and type of input_ids, the first one."""
    cdef int code = type_code(view)
    if code not in (INT64, INT32) or (k > 0 and code != task.output_type):
        raise ValueError("outputs must be all int64 or all int32")
    if view.ndim != 2 or (k > 0 and (view.shape[0] != task.n_rows or view.shape[1] != task.width)):
        raise ValueError("outputs must have one shape")
    task.output_type, task.n_rows, task.width = code, view.shape[0], view.shape[1]
    task.outputs[k] = view.buf
    return 0


cdef int fill_outputs(
    const uint64_t[::1] addresses, const int64_t[::1] rows, const int64_t[::1] columns, const int64_t[::1] lengths,
    const int64_t[::1] numbers, int64_t padding, like, tuple outputs
) except -1:
    """Fill the outputs, in the order of `Task`; return whether a token does not fit."""
    cdef Task task
    cdef Py_buffer views[N_OUTPUTS]
    cdef Py_ssize_t n = addresses.shape[0]
    cdef int k, status, n_held = 0, code = type_code_of(like)
    if rows.shape[0] != n or columns.shape[0] != n or lengths.shape[0] != n or numbers.shape[0] != n:
        raise ValueError("addresses, rows, columns, lengths and numbers must have one length")
    task.n_segments, task.padding = n, padding
    if n:
        task.addresses, task.rows, task.columns = &addresses[0], &rows[0], &columns[0]
        task.lengths, task.numbers = &lengths[0], &numbers[0]
    for k in range(N_OUTPUTS):
        task.outputs[k] = NULL
    try:
        for k in range(N_OUTPUTS):
            if k < len(outputs) and outputs[k] is not None:
                PyObject_GetBuffer(outputs[k], &views[n_held], PyBUF_CONTIG | PyBUF_FORMAT)
                n_held += 1
                add_output(&task, k, &views[n_held - 1])
        with nogil:
            status = run_typed(code, NULL, &task)
    finally:
        for k in range(n_held):
            PyBuffer_Release(&views[k])
    if status == UNKNOWN_TOKENS:
        raise TypeError(f"no kernel for tokens of dtype {like.dtype}")
    if status == OUTSIDE:
        raise ValueError("a segment outside the outputs")
    return status


def copy_segments(
    const uint64_t[::1] addresses not None, const int64_t[::1] rows not None, const int64_t[::1] columns not None,
    const int64_t[::1] lengths not None, like, out not None
):
    """Copy segments: out[rows[k], columns[k] : columns[k] + lengths[k]] = the tokens at addresses[k].

    See `fastpack.kernels.segments_np.copy_segments`.
    """
    return fill_outputs(addresses, rows, columns, lengths, rows, 0, like, (out,))


def fill_segments(
    const uint64_t[::1] addresses not None, const int64_t[::1] rows not None, const int64_t[::1] columns not None,
    const int64_t[::1] lengths not None, const int64_t[::1] numbers not None, int64_t padding, like,
    input_ids not None, labels, doc_ids, position_ids
):
    """Write segments into the rows of up to four outputs, [n_rows, length], all int64 or all int32.

    See `fastpack.kernels.segments_np.fill_segments`.
    """
    return fill_outputs(
        addresses, rows, columns, lengths, numbers, padding, like, (input_ids, labels, doc_ids, position_ids)
    )
