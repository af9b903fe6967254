"""The `row_spans` kernels in Cython."""

from cpython.buffer cimport PyBUF_CONTIG
from libc.stdint cimport uint64_t

include "dtypes.pxi"
include "eos_blocks.pxi"
include "widen.pxi"

cdef enum:
    N_OUTPUTS = 4
    OUTSIDE = -2  # status: a span outside the outputs


cdef struct Task:
    const uint64_t *addresses
    const int64_t *rows
    const int64_t *columns
    const int64_t *lengths
    const int64_t *numbers
    const int64_t *firsts
    Py_ssize_t n_spans
    bint has_eos
    int64_t eos
    # document_ends: the tokens of a window, and where the ends go
    Py_ssize_t n_tokens
    int64_t *ends
    Py_ssize_t n_ends
    Py_ssize_t found
    # fill_spans: input_ids, labels, doc_ids, position_ids: each [n_rows, width], or NULL if it is not an output.
    void *outputs[N_OUTPUTS]
    int output_type
    Py_ssize_t n_rows
    Py_ssize_t width


cdef inline void mask(const token_t *tokens, Py_ssize_t n, token_t eos, wide_t *labels) noexcept nogil:
    """Write -100 over the labels after an EOS."""
    cdef Py_ssize_t i, stop, start = 0
    while start < n:
        stop = min(start + <Py_ssize_t> BLOCK, n)
        if has(tokens + start, stop - start, eos):
            for i in range(start, stop):
                if tokens[i] == eos:
                    labels[i] = -100
        start = stop


include "row_outputs.pxi"


cdef int fill(const token_t *tokens, wide_t *input_ids, Task *task) noexcept nogil:
    """Write each span into its row; return 1 if a token does not fit, OUTSIDE for a span outside the outputs."""
    cdef Py_ssize_t k, at, width = task.width
    cdef int64_t row, start, n
    cdef wide_t *labels = <wide_t *> task.outputs[1]
    cdef wide_t *doc_ids = <wide_t *> task.outputs[2]
    cdef wide_t *position_ids = <wide_t *> task.outputs[3]
    cdef token_t eos = <token_t> task.eos
    cdef bint has_eos = task.has_eos and <int64_t> eos == task.eos  # an EOS outside the dtype's range never occurs
    cdef uint32_t bits = 0
    for k in range(task.n_spans):
        row, start, n = task.rows[k], task.columns[k], task.lengths[k]
        if row < 0 or row >= task.n_rows or start < 0 or n < 0 or start > width or n > width - start:
            return OUTSIDE
        at = row * width + start
        if task.addresses[k] == 0:
            set_all(input_ids + at, n, <wide_t> 0)
            if labels != NULL:
                set_all(labels + at, n, -100)
        elif n > 0:
            tokens = <const token_t *> task.addresses[k]
            bits |= widen(tokens, n, input_ids + at)
            if labels != NULL:
                bits |= widen(tokens + 1, n, labels + at)
                if has_eos:
                    mask(tokens, n, eos, labels + at)
        if doc_ids != NULL:
            set_all(doc_ids + at, n, <wide_t> task.numbers[k])
        if position_ids != NULL:
            ramp(position_ids + at, n, task.firsts[k])
    return bits >> 31


cdef inline void add_end(Task *task, int64_t end) noexcept nogil:
    if task.found < task.n_ends:
        task.ends[task.found] = end
    task.found += 1


cdef int find_ends(const token_t *tokens, Task *task) noexcept nogil:
    cdef Py_ssize_t k, i, start, stop, last = task.n_tokens - 1
    cdef int64_t base
    cdef token_t eos = <token_t> task.eos
    cdef bint present = <int64_t> eos == task.eos
    for k in range(task.n_spans):
        tokens = <const token_t *> task.addresses[k]
        base = task.rows[k] * task.n_tokens
        start = 0 if present else last
        while start < last:
            stop = min(start + <Py_ssize_t> BLOCK, last)
            if has(tokens + start, stop - start, eos):
                for i in range(start, stop):
                    if tokens[i] == eos:
                        add_end(task, base + i + 1)
            start = stop
        if task.n_tokens > 0:
            add_end(task, base + task.n_tokens)
    return 0


cdef int run(const token_t *tokens, Task *task) noexcept nogil:
    if task.outputs[0] == NULL:
        return find_ends(tokens, task)
    if task.output_type == INT64:
        return fill(tokens, <int64_t *> task.outputs[0], task)
    return fill(tokens, <int32_t *> task.outputs[0], task)


include "token_dispatch.pxi"


def document_ends(
    const uint64_t[::1] addresses not None, const int64_t[::1] rows not None, Py_ssize_t n_tokens, like, int64_t eos,
    int64_t[::1] ends not None
):
    """Write the ends (exclusive) of the documents in windows of `n_tokens` tokens, of the rows as one sequence.

    See `fastpack.kernels.row_spans_np.document_ends`.
    """
    cdef Task task
    cdef int status, code = type_code_of(like)
    if rows.shape[0] != addresses.shape[0]:
        raise ValueError("addresses and rows must have one length")
    task.n_spans, task.n_tokens, task.eos, task.found = rows.shape[0], n_tokens, eos, 0
    task.n_ends = ends.shape[0]
    task.outputs[0] = NULL
    if task.n_spans:
        task.addresses, task.rows = &addresses[0], &rows[0]
    if task.n_ends:
        task.ends = &ends[0]
    with nogil:
        status = run_typed(code, NULL, &task)
    if status == UNKNOWN_TOKENS:
        raise TypeError(f"no kernel for tokens of dtype {like.dtype}")
    return task.found


def fill_spans(
    const uint64_t[::1] addresses not None, const int64_t[::1] rows not None, const int64_t[::1] columns not None,
    const int64_t[::1] lengths not None, const int64_t[::1] numbers not None, const int64_t[::1] firsts not None,
    like, eos, input_ids not None, labels, doc_ids, position_ids
):
    """Write spans into the rows of up to four outputs, [n_rows, width], all int64 or all int32.

    See `fastpack.kernels.row_spans_np.fill_spans`.
    """
    cdef Task task
    cdef Py_buffer views[N_OUTPUTS]
    cdef Py_ssize_t n = addresses.shape[0]
    cdef int k, status, n_held = 0, code = type_code_of(like)
    cdef tuple outputs = (input_ids, labels, doc_ids, position_ids)
    if not (rows.shape[0] == columns.shape[0] == lengths.shape[0] == numbers.shape[0] == firsts.shape[0] == n):
        raise ValueError("the arrays of spans must have one length")
    task.n_spans, task.has_eos, task.eos = n, eos is not None, 0 if eos is None else eos
    if n:
        task.addresses, task.rows, task.columns = &addresses[0], &rows[0], &columns[0]
        task.lengths, task.numbers, task.firsts = &lengths[0], &numbers[0], &firsts[0]
    for k in range(N_OUTPUTS):
        task.outputs[k] = NULL
    try:
        for k in range(N_OUTPUTS):
            if outputs[k] is not None:
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
        raise ValueError("a span outside the outputs")
    return status
