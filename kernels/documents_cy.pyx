"""The `documents` kernels in Cython: one token dtype at a time, chosen by the caller's array."""

from cpython.buffer cimport PyBUF_CONTIG_RO, PyBUF_FORMAT, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t

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
    BLOCK = 128  # tokens looked at together for EOS


cdef inline bint has(const token_t *tokens, Py_ssize_t n, token_t eos) noexcept nogil:
    # The accumulator is as narrow as the tokens: a wider one would halve the vector width again and again.
    cdef Py_ssize_t i
    cdef token_t hit = 0
    for i in range(n):
        hit |= <token_t> (tokens[i] == eos)
    return hit != 0


cdef void number(const token_t *tokens, Py_ssize_t n, int64_t eos, int64_t *out) noexcept nogil:
    cdef Py_ssize_t i, stop, start = 0
    cdef token_t narrow = <token_t> eos
    cdef bint present = <int64_t> narrow == eos  # an EOS beyond the dtype's range is nowhere
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
    """Number or mask by the token's type, a struct format character; false for a type no kernel was compiled for."""
    cdef char code = tokens.format[0] if tokens.format[1] == 0 else 0
    if code == b"B":
        typed(<const uint8_t *> tokens.buf, n, eos, out, masking)
    elif code == b"H":
        typed(<const uint16_t *> tokens.buf, n, eos, out, masking)
    elif code == b"I":
        typed(<const uint32_t *> tokens.buf, n, eos, out, masking)
    elif code == b"b":
        typed(<const int8_t *> tokens.buf, n, eos, out, masking)
    elif code == b"h":
        typed(<const int16_t *> tokens.buf, n, eos, out, masking)
    elif code == b"i":
        typed(<const int32_t *> tokens.buf, n, eos, out, masking)
    elif tokens.itemsize == 8 and (code == b"l" or code == b"q"):
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
    with nogil:
        known = run(&view, n, eos, &out[0], masking)
    PyBuffer_Release(&view)
    if not known:
        raise TypeError(f"no kernel for tokens of dtype {tokens.dtype}")


def doc_ids(tokens not None, int64_t eos, int64_t[::1] out not None):
    checked(tokens, len(tokens), eos, out, False)


def mask_labels(tokens not None, int64_t eos, int64_t[::1] out not None):
    checked(tokens, len(tokens) - 1, eos, out, True)


cdef Py_ssize_t count(const number_t[:, ::1] position_ids, Py_ssize_t *longest) noexcept nogil:
    """How many bounds there are. The last token of a document says how long it is: one look a document, from behind."""
    cdef Py_ssize_t row, end, n_tokens, needed = 1
    longest[0] = 0
    for row in range(position_ids.shape[0]):
        end = position_ids.shape[1]
        while end > 0:
            n_tokens = position_ids[row, end - 1] + 1
            longest[0] = max(longest[0], n_tokens)
            end -= n_tokens
            needed += 1
    return needed


cdef void bounds(const number_t[:, ::1] position_ids, int32_t *out, Py_ssize_t needed) noexcept nogil:
    cdef Py_ssize_t row, end, k = needed - 1, length = position_ids.shape[1]
    out[0] = 0
    for row in range(position_ids.shape[0] - 1, -1, -1):
        end = length
        while end > 0:
            out[k] = <int32_t> (row * length + end)
            end -= position_ids[row, end - 1] + 1
            k -= 1


def cu_seqlens(position_ids not None, int32_t[::1] out not None):
    cdef const int64_t[:, ::1] wide
    cdef const int32_t[:, ::1] narrow
    cdef Py_ssize_t needed, longest
    if position_ids.dtype.itemsize == 8:
        wide = position_ids
        needed = count(wide, &longest)
        if needed <= out.shape[0]:
            bounds(wide, &out[0], needed)
    else:
        narrow = position_ids
        needed = count(narrow, &longest)
        if needed <= out.shape[0]:
            bounds(narrow, &out[0], needed)
    if needed < out.shape[0]:
        out[needed:] = out[needed - 1]
    return needed, longest
