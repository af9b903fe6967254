"""The `batches` kernels in Cython."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

include "dtypes.pxi"

ctypedef fused token_t:
    uint8_t
    uint16_t
    uint32_t
    int8_t
    int16_t
    int32_t
    int64_t

ctypedef fused out_t:
    int32_t
    int64_t

cdef enum:
    BLOCK = 128  # tokens tested for EOS at once
    UNKNOWN = -1  # status: no kernel for the dtype
    OUTSIDE = -2  # status: a row outside the outputs


cdef inline uint32_t widen(const token_t *tokens, Py_ssize_t n, out_t *out) noexcept nogil:
    """Copy into the output's type; the top bit of the result is set if a token does not fit."""
    cdef Py_ssize_t i
    cdef uint32_t bits = 0
    for i in range(n):
        out[i] = <out_t> tokens[i]
        if token_t is uint32_t and out_t is int32_t:
            bits |= tokens[i]
        elif token_t is int64_t and out_t is int32_t:
            bits |= <uint32_t> (<int64_t> out[i] != tokens[i]) << 31
    return bits


cdef inline bint has(const token_t *tokens, Py_ssize_t n, token_t eos) noexcept nogil:
    # The accumulator is as narrow as the tokens: a wider one would halve the vector width.
    cdef Py_ssize_t i
    cdef token_t hit = 0
    for i in range(n):
        hit |= <token_t> (tokens[i] == eos)
    return hit != 0


cdef inline void mark(
    const token_t *tokens, Py_ssize_t n, token_t eos, out_t *labels, out_t *doc_ids
) noexcept nogil:
    """Write the doc_ids of a row, and -100 over the labels after an EOS."""
    cdef Py_ssize_t i, stop, start = 0
    cdef out_t document = 0
    while start < n:
        stop = min(start + <Py_ssize_t> BLOCK, n)
        if has(tokens + start, stop - start, eos):
            for i in range(start, stop):
                doc_ids[i] = document
                if tokens[i] == eos:
                    labels[i] = -100
                    document += 1
        else:
            for i in range(start, stop):
                doc_ids[i] = document
        start = stop


cdef inline void number(
    out_t *doc_ids, out_t *position_ids, Py_ssize_t start, Py_ssize_t stop, out_t document, Py_ssize_t opened
) noexcept nogil:
    """Number tokens [start, stop) of a row; their document started at token `opened`."""
    cdef Py_ssize_t i
    for i in range(start, stop):
        doc_ids[i] = document
    for i in range(start, stop):
        position_ids[i] = <out_t> (i - opened)


cdef inline void mark_and_place(
    const token_t *tokens, Py_ssize_t n, token_t eos, out_t *labels, out_t *doc_ids, out_t *position_ids
) noexcept nogil:
    """As `mark`, and write the position_ids of the row."""
    cdef Py_ssize_t i, stop, written, opened = 0, start = 0
    cdef out_t document = 0
    while start < n:
        stop = min(start + <Py_ssize_t> BLOCK, n)
        written = start
        if has(tokens + start, stop - start, eos):
            for i in range(start, stop):
                if tokens[i] == eos:
                    number(doc_ids, position_ids, written, i + 1, document, opened)
                    labels[i] = -100
                    document += 1
                    opened = written = i + 1
        number(doc_ids, position_ids, written, stop, document, opened)
        start = stop


cdef int packed(
    const token_t *like, const uint64_t[::1] addresses, const int64_t[::1] rows, int64_t eos,
    out_t[:, ::1] input_ids, out_t[:, ::1] labels, out_t[:, ::1] doc_ids
) noexcept nogil:
    cdef Py_ssize_t k, row, n = input_ids.shape[1]
    cdef token_t narrow = <token_t> eos
    cdef bint present = <int64_t> narrow == eos
    cdef uint32_t bits = 0
    if n == 0:
        return 0  # windows of one token: rows have no first element
    for k in range(addresses.shape[0]):
        like = <const token_t *> addresses[k]
        row = rows[k]
        if row < 0 or row >= input_ids.shape[0]:
            return OUTSIDE
        bits |= widen(like, n, &input_ids[row, 0])
        bits |= widen(like + 1, n, &labels[row, 0])
        if present:
            mark(like, n, narrow, &labels[row, 0], &doc_ids[row, 0])
        else:
            doc_ids[row, :] = 0
    return bits >> 31


cdef int documents(
    const token_t *like, const uint64_t[::1] addresses, const int64_t[::1] rows, int64_t eos,
    out_t[:, ::1] input_ids, out_t[:, ::1] labels, out_t[:, ::1] doc_ids, out_t[:, ::1] position_ids
) noexcept nogil:
    cdef Py_ssize_t i, k, row, n = input_ids.shape[1]
    cdef token_t narrow = <token_t> eos
    cdef bint present = <int64_t> narrow == eos
    cdef uint32_t bits = 0
    if n == 0:
        return 0  # windows of one token: rows have no first element
    for k in range(addresses.shape[0]):
        like = <const token_t *> addresses[k]
        row = rows[k]
        if row < 0 or row >= input_ids.shape[0]:
            return OUTSIDE
        bits |= widen(like, n, &input_ids[row, 0])
        bits |= widen(like + 1, n, &labels[row, 0])
        if present:
            mark_and_place(like, n, narrow, &labels[row, 0], &doc_ids[row, 0], &position_ids[row, 0])
        else:
            doc_ids[row, :] = 0
            for i in range(n):
                position_ids[row, i] = <out_t> i
    return bits >> 31


cdef int plain(
    const token_t *like, const uint64_t[::1] addresses, const int64_t[::1] rows,
    out_t[:, ::1] input_ids, out_t[:, ::1] labels
) noexcept nogil:
    cdef Py_ssize_t k, row, n = input_ids.shape[1]
    cdef uint32_t bits = 0
    if n == 0:
        return 0  # windows of one token: rows have no first element
    for k in range(addresses.shape[0]):
        like = <const token_t *> addresses[k]
        row = rows[k]
        if row < 0 or row >= input_ids.shape[0]:
            return OUTSIDE
        bits |= widen(like, n, &input_ids[row, 0])
        bits |= widen(like + 1, n, &labels[row, 0])
    return bits >> 31


cdef int tokens(
    const token_t *like, const uint64_t[::1] addresses, const int64_t[::1] rows, out_t[:, ::1] out
) noexcept nogil:
    cdef Py_ssize_t k, row, n = out.shape[1]
    cdef uint32_t bits = 0
    if n == 0:
        return 0  # windows of one token: rows have no first element
    for k in range(addresses.shape[0]):
        row = rows[k]
        if row < 0 or row >= out.shape[0]:
            return OUTSIDE
        bits |= widen(<const token_t *> addresses[k], n, &out[row, 0])
    return bits >> 31


cdef int packed_any(
    int code, const uint64_t[::1] addresses, const int64_t[::1] rows, int64_t eos,
    out_t[:, ::1] input_ids, out_t[:, ::1] labels, out_t[:, ::1] doc_ids
) noexcept nogil:
    if code == UINT8:
        return packed(<const uint8_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids)
    if code == UINT16:
        return packed(<const uint16_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids)
    if code == UINT32:
        return packed(<const uint32_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids)
    if code == INT8:
        return packed(<const int8_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids)
    if code == INT16:
        return packed(<const int16_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids)
    if code == INT32:
        return packed(<const int32_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids)
    if code == INT64:
        return packed(<const int64_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids)
    return UNKNOWN


cdef int documents_any(
    int code, const uint64_t[::1] addresses, const int64_t[::1] rows, int64_t eos,
    out_t[:, ::1] input_ids, out_t[:, ::1] labels, out_t[:, ::1] doc_ids, out_t[:, ::1] position_ids
) noexcept nogil:
    if code == UINT8:
        return documents(<const uint8_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids, position_ids)
    if code == UINT16:
        return documents(<const uint16_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids, position_ids)
    if code == UINT32:
        return documents(<const uint32_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids, position_ids)
    if code == INT8:
        return documents(<const int8_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids, position_ids)
    if code == INT16:
        return documents(<const int16_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids, position_ids)
    if code == INT32:
        return documents(<const int32_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids, position_ids)
    if code == INT64:
        return documents(<const int64_t *> NULL, addresses, rows, eos, input_ids, labels, doc_ids, position_ids)
    return UNKNOWN


cdef int plain_any(
    int code, const uint64_t[::1] addresses, const int64_t[::1] rows, out_t[:, ::1] input_ids, out_t[:, ::1] labels
) noexcept nogil:
    if code == UINT8:
        return plain(<const uint8_t *> NULL, addresses, rows, input_ids, labels)
    if code == UINT16:
        return plain(<const uint16_t *> NULL, addresses, rows, input_ids, labels)
    if code == UINT32:
        return plain(<const uint32_t *> NULL, addresses, rows, input_ids, labels)
    if code == INT8:
        return plain(<const int8_t *> NULL, addresses, rows, input_ids, labels)
    if code == INT16:
        return plain(<const int16_t *> NULL, addresses, rows, input_ids, labels)
    if code == INT32:
        return plain(<const int32_t *> NULL, addresses, rows, input_ids, labels)
    if code == INT64:
        return plain(<const int64_t *> NULL, addresses, rows, input_ids, labels)
    return UNKNOWN


cdef int tokens_any(
    int code, const uint64_t[::1] addresses, const int64_t[::1] rows, out_t[:, ::1] out
) noexcept nogil:
    if code == UINT8:
        return tokens(<const uint8_t *> NULL, addresses, rows, out)
    if code == UINT16:
        return tokens(<const uint16_t *> NULL, addresses, rows, out)
    if code == UINT32:
        return tokens(<const uint32_t *> NULL, addresses, rows, out)
    if code == INT8:
        return tokens(<const int8_t *> NULL, addresses, rows, out)
    if code == INT16:
        return tokens(<const int16_t *> NULL, addresses, rows, out)
    if code == INT32:
        return tokens(<const int32_t *> NULL, addresses, rows, out)
    if code == INT64:
        return tokens(<const int64_t *> NULL, addresses, rows, out)
    return UNKNOWN


cdef int checked(int status, like) except -3:
    if status == UNKNOWN:
        raise TypeError(f"no kernel for tokens of dtype {like.dtype}")
    if status == OUTSIDE:
        raise ValueError("a row outside the outputs")
    return status


cdef int check_shapes(const uint64_t[::1] addresses, const int64_t[::1] rows, first, tuple others) except -1:
    """Raise ValueError if a loop would read or write beyond an array."""
    if addresses.shape[0] != rows.shape[0]:
        raise ValueError("addresses and rows must have one length")
    for other in others:
        if other.shape != first.shape:
            raise ValueError("outputs must have one shape")
    return 0


def fill_packed(
    const uint64_t[::1] addresses not None, const int64_t[::1] rows not None, like, int64_t eos,
    input_ids, labels, doc_ids
):
    """Write input_ids, labels (-100 after EOS) and doc_ids of windows of length + 1 tokens.

    See `fastpack.kernels.batches_np.fill_packed`.
    """
    cdef int code = type_code_of(like), status
    cdef int64_t[:, ::1] input_64, labels_64, doc_64
    cdef int32_t[:, ::1] input_32, labels_32, doc_32
    check_shapes(addresses, rows, input_ids, (labels, doc_ids))
    if type_code_of(input_ids) == INT64:
        input_64, labels_64, doc_64 = input_ids, labels, doc_ids
        with nogil:
            status = packed_any(code, addresses, rows, eos, input_64, labels_64, doc_64)
    else:
        input_32, labels_32, doc_32 = input_ids, labels, doc_ids
        with nogil:
            status = packed_any(code, addresses, rows, eos, input_32, labels_32, doc_32)
    return checked(status, like)


def fill_documents(
    const uint64_t[::1] addresses not None, const int64_t[::1] rows not None, like, int64_t eos,
    input_ids, labels, doc_ids, position_ids
):
    """Write input_ids, labels (-100 after EOS), doc_ids and position_ids of windows of length + 1 tokens.

    See `fastpack.kernels.batches_np.fill_documents`.
    """
    cdef int code = type_code_of(like), status
    cdef int64_t[:, ::1] input_64, labels_64, doc_64, position_64
    cdef int32_t[:, ::1] input_32, labels_32, doc_32, position_32
    check_shapes(addresses, rows, input_ids, (labels, doc_ids, position_ids))
    if type_code_of(input_ids) == INT64:
        input_64, labels_64, doc_64, position_64 = input_ids, labels, doc_ids, position_ids
        with nogil:
            status = documents_any(code, addresses, rows, eos, input_64, labels_64, doc_64, position_64)
    else:
        input_32, labels_32, doc_32, position_32 = input_ids, labels, doc_ids, position_ids
        with nogil:
            status = documents_any(code, addresses, rows, eos, input_32, labels_32, doc_32, position_32)
    return checked(status, like)


def fill_plain(const uint64_t[::1] addresses not None, const int64_t[::1] rows not None, like, input_ids, labels):
    """Write input_ids and labels of windows of length + 1 tokens, without document boundaries.

    See `fastpack.kernels.batches_np.fill_plain`.
    """
    cdef int code = type_code_of(like), status
    cdef int64_t[:, ::1] input_64, labels_64
    cdef int32_t[:, ::1] input_32, labels_32
    check_shapes(addresses, rows, input_ids, (labels,))
    if type_code_of(input_ids) == INT64:
        input_64, labels_64 = input_ids, labels
        with nogil:
            status = plain_any(code, addresses, rows, input_64, labels_64)
    else:
        input_32, labels_32 = input_ids, labels
        with nogil:
            status = plain_any(code, addresses, rows, input_32, labels_32)
    return checked(status, like)


def fill_tokens(const uint64_t[::1] addresses not None, const int64_t[::1] rows not None, like, out):
    """Write windows of `length` tokens into the rows of `out`, [n_rows, length], int64 or int32.

    See `fastpack.kernels.batches_np.fill_tokens`.
    """
    cdef int code = type_code_of(like), status
    cdef int64_t[:, ::1] out_64
    cdef int32_t[:, ::1] out_32
    check_shapes(addresses, rows, out, ())
    if type_code_of(out) == INT64:
        out_64 = out
        with nogil:
            status = tokens_any(code, addresses, rows, out_64)
    else:
        out_32 = out
        with nogil:
            status = tokens_any(code, addresses, rows, out_32)
    return checked(status, like)
