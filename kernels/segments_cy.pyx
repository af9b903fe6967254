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
    const int64_t *sizes
    const int64_t *numbers
    Py_ssize_t n_segments
    int64_t padding
    # input_ids, labels, doc_ids, position_ids: each [n_rows, width], or NULL if it is not an output.
    void *outputs[N_OUTPUTS]
    int output_type
    Py_ssize_t n_rows
    Py_ssize_t width


include "row_outputs.pxi"


cdef int fill(const token_t *tokens, wide_t *input_ids, Task *task) noexcept nogil:
    """Write each segment into its row; return 1 if a token does not fit, OUTSIDE for a segment outside the outputs."""
    cdef Py_ssize_t k, at, last, width = task.width
    cdef int64_t row, start, n, size
    cdef wide_t *labels = <wide_t *> task.outputs[1]
    cdef wide_t *doc_ids = <wide_t *> task.outputs[2]
    cdef wide_t *position_ids = <wide_t *> task.outputs[3]
    cdef wide_t padding = <wide_t> task.padding
    cdef bint misfit = <int64_t> padding != task.padding
    cdef uint32_t bits = 0
    for k in range(task.n_segments):
        row, start, n, size = task.rows[k], task.columns[k], task.lengths[k], task.sizes[k]
        if row < 0 or row >= task.n_rows or start < 0 or n < 0 or n > size or start > width or size > width - start:
            return OUTSIDE
        at = row * width + start
        tokens = <const token_t *> task.addresses[k]
        if tokens == NULL:
            n = 0
        bits |= widen(tokens, n, input_ids + at)
        if n < size:
            bits |= <uint32_t> misfit << 31
            set_all(input_ids + at + n, size - n, padding)
        if labels != NULL:
            last = n - 1 if n > 0 else 0
            widen(tokens + 1, last, labels + at)
            set_all(labels + at + last, size - last, -100)
        if doc_ids != NULL:
            set_all(doc_ids + at, size, <wide_t> task.numbers[k])
        if position_ids != NULL:
            ramp(position_ids + at, size, 0)
    return bits >> 31


cdef int run(const token_t *tokens, Task *task) noexcept nogil:
    if task.output_type == INT64:
        return fill(tokens, <int64_t *> task.outputs[0], task)
    return fill(tokens, <int32_t *> task.outputs[0], task)


include "token_dispatch.pxi"


cdef int fill_outputs(
    const uint64_t[::1] addresses, const int64_t[::1] rows, const int64_t[::1] columns, const int64_t[::1] lengths,
    const int64_t[::1] sizes, const int64_t[::1] numbers, int64_t padding, like, tuple outputs
) except -1:
    """Fill the outputs, in the order of `Task`; return whether a token does not fit."""
    cdef Task task
    cdef Py_buffer views[N_OUTPUTS]
    cdef Py_ssize_t n = addresses.shape[0]
    cdef int k, status, n_held = 0, code = type_code_of(like)
    if not (rows.shape[0] == columns.shape[0] == lengths.shape[0] == sizes.shape[0] == numbers.shape[0] == n):
        raise ValueError("addresses, rows, columns, lengths, sizes and numbers must have one length")
    task.n_segments, task.padding = n, padding
    if n:
        task.addresses, task.rows, task.columns = &addresses[0], &rows[0], &columns[0]
        task.lengths, task.sizes, task.numbers = &lengths[0], &sizes[0], &numbers[0]
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
    return fill_outputs(addresses, rows, columns, lengths, lengths, rows, 0, like, (out,))


def fill_segments(
    const uint64_t[::1] addresses not None, const int64_t[::1] rows not None, const int64_t[::1] columns not None,
    const int64_t[::1] lengths not None, const int64_t[::1] sizes not None, const int64_t[::1] numbers not None,
    int64_t padding, like, input_ids not None, labels, doc_ids, position_ids
):
    """Write segments into the rows of up to four outputs, [n_rows, length], all int64 or all int32.

    See `fastpack.kernels.segments_np.fill_segments`.
    """
    return fill_outputs(
        addresses, rows, columns, lengths, sizes, numbers, padding, like, (input_ids, labels, doc_ids, position_ids)
    )


cdef inline Py_ssize_t upper_bound(
    const int64_t *values, Py_ssize_t n, Py_ssize_t step, int64_t value
) noexcept nogil:
    """Return the number of leading values, each `step` after the other, that are at most `value`."""
    cdef Py_ssize_t middle, low = 0, high = n
    while low < high:
        middle = (low + high) // 2
        if values[middle * step] <= value:
            low = middle + 1
        else:
            high = middle
    return low


cdef struct Documents:
    const int64_t *passes  # [n_passes, 3]
    Py_ssize_t n_passes
    const int64_t *starts
    const int64_t *ends
    Py_ssize_t n_entries


cdef bint find(Documents *documents, int64_t document, int64_t start, int64_t end, int64_t *first) noexcept nogil:
    """Set the first token of a segment; return False if it is not within its document."""
    cdef Py_ssize_t i = upper_bound(documents.passes, documents.n_passes, 3, document)
    cdef int64_t entry
    if i == documents.n_passes or document < 0:
        return False
    entry = document + documents.passes[3 * i + 1]
    if entry < 0 or entry >= documents.n_entries or start < 0 or end < start:
        return False
    first[0] = documents.passes[3 * i + 2] + documents.starts[entry] + start
    return end <= documents.ends[entry] - documents.starts[entry]


cdef inline void write_place(
    int64_t[:, ::1] placed, Py_ssize_t n, int64_t first, int64_t row, int64_t column, int64_t length, int64_t size,
    int64_t number
) noexcept nogil:
    placed[0, n], placed[1, n], placed[2, n], placed[3, n] = first, row, column, length
    placed[4, n], placed[5, n] = size, number


def place_segments(
    const int64_t[::1] row not None, const int64_t[::1] document not None, const int64_t[::1] start not None,
    const int64_t[::1] end not None, const int64_t[:, ::1] passes not None, const int64_t[::1] document_starts not None,
    const int64_t[::1] document_ends not None, int64_t n_rows, int64_t width, int64_t multiple,
    int64_t[:, ::1] placed not None
):
    """Place segments of documents in rows, one after another, and padding after the last one of a row.

    See `fastpack.kernels.segments_np.place_segments`.
    """
    cdef Documents documents
    cdef Py_ssize_t n = 0, k = 0, n_segments = row.shape[0]
    cdef int64_t length, size, first = 0, current = 0, used = 0, number = 0
    if placed.shape[0] != 6 or placed.shape[1] < n_segments + n_rows or not 1 <= multiple <= width:
        raise ValueError("placed must be int64 [6, segments + rows], and multiple 1 to width")
    if document.shape[0] != n_segments or start.shape[0] != n_segments or end.shape[0] != n_segments:
        raise ValueError("row, document, start and end must have one length")
    if passes.shape[1] != 3:
        raise ValueError("passes must be int64 [p, 3]")
    documents.n_passes, documents.passes = passes.shape[0], &passes[0, 0] if passes.shape[0] else NULL
    documents.n_entries = min(document_starts.shape[0], document_ends.shape[0])
    if documents.n_entries:
        documents.starts, documents.ends = &document_starts[0], &document_ends[0]
    with nogil:
        while current < n_rows:
            if k < n_segments and row[k] == current:
                length = end[k] - start[k]
                if not find(&documents, document[k], start[k], end[k], &first) or length > width - used:
                    break
                size = (length + multiple - 1) // multiple * multiple
                if size > width - used:
                    break
                write_place(placed, n, first, current, used, length, size, number)
                used, number = used + size, number + 1
                n += 1
                k += 1
                continue
            if k < n_segments and row[k] < current:
                break
            if used < width:
                write_place(placed, n, -1, current, used, 0, width - used, number)
                n += 1
            current, used, number = current + 1, 0, 0
    return n if current >= n_rows and k == n_segments else -1 - k


def locate_segments(
    const int64_t[::1] first not None, const int64_t[::1] lengths not None, const int64_t[::1] run_ends not None,
    const int64_t[::1] run_begins not None, const int64_t[::1] run_starts not None,
    const int64_t[::1] run_arrays not None, const uint64_t[::1] bases not None, int64_t token_size,
    uint64_t[::1] addresses not None
):
    """Write the address of each segment: lengths[k] tokens from token first[k] on. The address of token -1 is 0.

    See `fastpack.kernels.segments_np.locate_segments`.
    """
    cdef Py_ssize_t k = 0, run, n = first.shape[0], n_runs = run_ends.shape[0]
    cdef const int64_t *ends = &run_ends[0] if n_runs else NULL
    cdef int64_t array
    if lengths.shape[0] != n or addresses.shape[0] != n:
        raise ValueError("first, lengths and addresses must have one length")
    if run_begins.shape[0] != n_runs or run_starts.shape[0] != n_runs or run_arrays.shape[0] != n_runs:
        raise ValueError("the arrays of runs must have one length")
    with nogil:
        for k in range(n):
            if first[k] == -1:
                addresses[k] = 0
                continue
            run = upper_bound(ends, n_runs, 1, first[k])
            if first[k] < 0 or lengths[k] < 0 or run == n_runs or lengths[k] > run_ends[run] - first[k]:
                break
            array = run_arrays[run]
            if first[k] < run_begins[run] or array < 0 or array >= bases.shape[0] or bases[array] == 0:
                break
            addresses[k] = bases[array] + <uint64_t> (run_starts[run] + (first[k] - run_begins[run]) * token_size)
        else:
            k = n
    return k
