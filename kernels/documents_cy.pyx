"""The `documents` kernels in Cython."""

from cpython.buffer cimport PyBUF_CONTIG_RO, PyBUF_FORMAT, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t

include "dtypes.pxi"

ctypedef fused token_t:
    uint8_t
    uint16_t
    uint32_t
    int8_t
    int16_t
    int32_t
    int64_t

ctypedef fused number_t:
    int32_t
    int64_t

cdef enum:
    BLOCK = 128  # tokens tested for EOS at once


cdef inline bint has(const token_t *tokens, Py_ssize_t n, token_t eos) noexcept nogil:
    # The accumulator is as narrow as the tokens: a wider one would halve the vector width.
    cdef Py_ssize_t i
    cdef token_t hit = 0
    for i in range(n):
        hit |= <token_t> (tokens[i] == eos)
    return hit != 0


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


cdef inline void typed(const token_t *tokens, Py_ssize_t n, int64_t eos, int64_t *out, bint masking) noexcept nogil:
    if masking:
        mask(tokens, n, eos, out)
    else:
        number(tokens, n, eos, out)


cdef bint run(Py_buffer *tokens, Py_ssize_t n, int64_t eos, int64_t *out, bint masking) noexcept nogil:
    """Number or mask, dispatched by dtype; return False for an unsupported dtype."""
    cdef int code = type_code(tokens)
    if code == UINT8:
        typed(<const uint8_t *> tokens.buf, n, eos, out, masking)
    elif code == UINT16:
        typed(<const uint16_t *> tokens.buf, n, eos, out, masking)
    elif code == UINT32:
        typed(<const uint32_t *> tokens.buf, n, eos, out, masking)
    elif code == INT8:
        typed(<const int8_t *> tokens.buf, n, eos, out, masking)
    elif code == INT16:
        typed(<const int16_t *> tokens.buf, n, eos, out, masking)
    elif code == INT32:
        typed(<const int32_t *> tokens.buf, n, eos, out, masking)
    elif code == INT64:
        typed(<const int64_t *> tokens.buf, n, eos, out, masking)
    else:
        return False
    return True


cdef checked(tokens, Py_ssize_t n, int64_t eos, int64_t[::1] out, bint masking):
    cdef Py_buffer view
    cdef bint known = True
    if out.shape[0] != n:
        raise ValueError(f"out has {out.shape[0]} entries, {n} are needed")
    if n == 0:
        return
    PyObject_GetBuffer(tokens, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT)
    if view.len // view.itemsize < n + masking:
        PyBuffer_Release(&view)
        raise ValueError(f"tokens must be [{n + masking}]")
    with nogil:
        known = run(&view, n, eos, &out[0], masking)
    PyBuffer_Release(&view)
    if not known:
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


cdef Py_ssize_t count(const number_t[:, ::1] position_ids, Py_ssize_t *longest) noexcept nogil:
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


cdef Py_ssize_t bounds(const number_t[:, ::1] position_ids, int32_t *out, Py_ssize_t needed) noexcept nogil:
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
    const number_t[:, ::1] position_ids, int32_t *out, Py_ssize_t room, Py_ssize_t *longest
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
