"""The `documents` kernels in Cython."""

from cpython.buffer cimport PyBUF_CONTIG_RO

include "dtypes.pxi"
include "eos_blocks.pxi"


cdef void number(const token_t *tokens, Py_ssize_t n, int64_t eos, int64_t *out) noexcept nogil:
    cdef Py_ssize_t i, stop, start = 0
    cdef token_t narrow = <token_t> eos
    cdef bint present = <int64_t> narrow == eos  # an EOS outside the dtype's range never occurs
    cdef int64_t document = 0
    while start < n:
        stop = min(start + <Py_ssize_t> BLOCK, n)
        if present and has(tokens + start, stop - start, narrow):
            for i in range(start, stop):
                out[i] = document
                document += tokens[i] == narrow
        else:
            for i in range(start, stop):
                out[i] = document
        start = stop


cdef void mask(const token_t *tokens, Py_ssize_t n, int64_t eos, int64_t *out) noexcept nogil:
    cdef Py_ssize_t i
    cdef token_t narrow = <token_t> eos
    cdef bint present = <int64_t> narrow == eos
    for i in range(n):
        out[i] = -100 if present and tokens[i] == narrow else <int64_t> tokens[i + 1]


cdef struct Task:
    Py_ssize_t n
    int64_t eos
    int64_t *out
    bint masking


cdef int run(const token_t *tokens, Task *task) noexcept nogil:
    if task.masking:
        mask(tokens, task.n, task.eos, task.out)
    else:
        number(tokens, task.n, task.eos, task.out)
    return 0


include "token_dispatch.pxi"


cdef checked(tokens, Py_ssize_t n, int64_t eos, int64_t[::1] out, bint masking):
    cdef Py_buffer view
    cdef Task task
    cdef int status
    if out.shape[0] != n:
        raise ValueError(f"out has {out.shape[0]} entries, {n} are needed")
    if n == 0:
        return
    task.n, task.eos, task.out, task.masking = n, eos, &out[0], masking
    PyObject_GetBuffer(tokens, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT)
    if view.len // view.itemsize < n + masking:
        PyBuffer_Release(&view)
        raise ValueError(f"tokens must be [{n + masking}]")
    with nogil:
        status = run_typed(type_code(&view), view.buf, &task)
    PyBuffer_Release(&view)
    if status == UNKNOWN_TOKENS:
        raise TypeError(f"no kernel for tokens of dtype {tokens.dtype}")


def doc_ids(tokens not None, int64_t eos, int64_t[::1] out not None):
    """Write the document number of each token: the number of EOS tokens before it.

    See `fastpack.kernels.documents_np.doc_ids`.
    """
    checked(tokens, len(tokens), eos, out, False)


def mask_labels(tokens not None, int64_t eos, int64_t[::1] out not None):
    """Write the labels of a window: the next token, or -100 after an EOS token.

    See `fastpack.kernels.documents_np.mask_labels`.
    """
    checked(tokens, len(tokens) - 1, eos, out, True)


cdef Py_ssize_t count(const wide_t[:, ::1] position_ids, Py_ssize_t *longest) noexcept nogil:
    """Return the number of bounds. The position of a document's last token is its length: one read per document.

    A position beyond its column would lead out of the row: then return 0, and `longest` is the token's index.
    """
    cdef Py_ssize_t row, end, position, needed = 1
    longest[0] = 0
    for row in range(position_ids.shape[0]):
        end = position_ids.shape[1]
        while end > 0:
            position = position_ids[row, end - 1]
            if position < 0 or position >= end:
                longest[0] = row * position_ids.shape[1] + end - 1
                return 0
            longest[0] = max(longest[0], position + 1)
            end -= position + 1
            needed += 1
    return needed


cdef Py_ssize_t bounds(const wide_t[:, ::1] position_ids, int32_t *out, Py_ssize_t needed) noexcept nogil:
    """Write the `needed` bounds; return -1, or the index of a token that changed since they were counted.

    Only out[0:needed] is written, whatever the positions have become.
    """
    cdef Py_ssize_t row, end, position, k = needed - 1, length = position_ids.shape[1]
    out[0] = 0
    for row in range(position_ids.shape[0] - 1, -1, -1):
        end = length
        while end > 0:
            position = position_ids[row, end - 1]
            if position < 0 or position >= end or k < 1:
                return row * length + end - 1
            out[k] = <int32_t> (row * length + end)
            end -= position + 1
            k -= 1
    return -1 if k == 0 else 0


cdef Py_ssize_t count_and_write(
    const wide_t[:, ::1] position_ids, int32_t *out, Py_ssize_t room, Py_ssize_t *longest
) noexcept nogil:
    cdef Py_ssize_t changed, needed = count(position_ids, longest)
    if 0 < needed <= room:
        changed = bounds(position_ids, out, needed)
        if changed >= 0:
            longest[0] = changed
            return 0
    return needed


def cu_seqlens(position_ids not None, int32_t[::1] out not None):
    """Write the cumulative document lengths of a batch, all rows concatenated, with a leading 0.

    See `fastpack.kernels.documents_np.cu_seqlens`.
    """
    cdef const int64_t[:, ::1] wide
    cdef const int32_t[:, ::1] narrow
    cdef int32_t *first = &out[0] if out.shape[0] else NULL
    cdef Py_ssize_t needed, longest
    if type_code_of(position_ids) == INT64:
        wide = position_ids
        with nogil:
            needed = count_and_write(wide, first, out.shape[0], &longest)
    else:
        narrow = position_ids
        with nogil:
            needed = count_and_write(narrow, first, out.shape[0], &longest)
    if 0 < needed < out.shape[0]:
        out[needed:] = out[needed - 1]
    return needed, longest
