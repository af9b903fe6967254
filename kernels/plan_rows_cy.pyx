"""The `plan_rows` kernel in Cython."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    BLOCK = 64
    LARGEST = 255
    OTHERWISE = -1


cdef bint full_row(
    int64_t row, int64_t capacity, const uint8_t[::1] full, const int64_t[::1] full_sums, int64_t[:, ::1] out,
    Py_ssize_t done,
) noexcept nogil:
    """Write the segment of a row that one document fills; return whether it is valid."""
    cdef Py_ssize_t low = 0, high = full_sums.shape[0], middle, document
    cdef int64_t number, count
    while low < high:
        middle = (low + high) >> 1
        if full_sums[middle] <= row:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return False
    number = row - full_sums[low - 1]
    for document in range(BLOCK * (low - 1), min(BLOCK * low, full.shape[0])):
        count = full[document]
        if count == LARGEST or number < 0:
            return False
        if number < count:
            out[1, done], out[2, done], out[3, done] = document, number * capacity, (number + 1) * capacity
            return True
        number -= count
    return False


cdef bint other_row(
    Py_ssize_t position, int64_t start, int64_t end, int64_t capacity, const uint8_t[::1] full,
    const uint8_t[::1] pieces, int length_bits, Py_ssize_t width, int64_t[:, ::1] out, Py_ssize_t done,
) noexcept nogil:
    """Write the segments of pieces [start, end); return whether they are valid."""
    cdef int64_t place, document, length, count, left = capacity
    cdef uint64_t piece, mask = ((<uint64_t> 1) << length_bits) - 1
    cdef Py_ssize_t k
    for place in range(start, end):
        piece = 0
        for k in range(width):
            piece |= (<uint64_t> pieces[place * width + k]) << (8 * k)
        document, length = <int64_t> (piece >> length_bits), <int64_t> (piece & mask)
        left -= length
        if document < 0 or document >= full.shape[0] or length == 0 or left < 0:
            return False
        count = full[document]
        if count == LARGEST:
            return False
        out[0, done], out[1, done] = position, document
        out[2, done], out[3, done] = count * capacity, count * capacity + length
        done += 1
    return True


cdef Py_ssize_t read_all(
    const int64_t[::1] rows, int64_t capacity, const uint8_t[::1] full, const int64_t[::1] full_sums,
    const uint8_t[::1] sizes, const int64_t[::1] size_sums, const uint8_t[::1] pieces, int length_bits,
    Py_ssize_t width, int64_t[:, ::1] out,
) noexcept nogil:
    cdef Py_ssize_t position, k, done = 0
    cdef int64_t n_full = 0, n_pieces = pieces.shape[0] // width, row, other, start, end
    cdef bint valid
    if full_sums.shape[0]:
        n_full = full_sums[full_sums.shape[0] - 1]
        for k in range(BLOCK * (full_sums.shape[0] - 1), full.shape[0]):
            n_full += full[k]
    for position in range(rows.shape[0]):
        row = rows[position]
        start, end = 0, 1
        if row < 0 or row >= n_full:
            other = row - n_full
            if row < 0 or other >= sizes.shape[0] or other // BLOCK >= size_sums.shape[0]:
                return OTHERWISE
            end = size_sums[other // BLOCK]
            for k in range(other // BLOCK * BLOCK, other + 1):
                if sizes[k] == LARGEST:
                    return OTHERWISE
                start = end
                end += sizes[k]
            if start < 0 or end > n_pieces or start >= end:
                return OTHERWISE
        if done + (end - start) > out.shape[1]:
            return -1 - done - (end - start)
        if row < n_full:
            out[0, done] = position
            valid = full_row(row, capacity, full, full_sums, out, done)
        else:
            valid = other_row(position, start, end, capacity, full, pieces, length_bits, width, out, done)
        if not valid:
            return OTHERWISE
        done += end - start
    return done


def read_rows(
    const int64_t[::1] rows not None, int64_t capacity, const uint8_t[::1] full not None,
    const int64_t[::1] full_sums not None, const uint8_t[::1] sizes not None, const int64_t[::1] size_sums not None,
    const uint8_t[::1] pieces not None, int length_bits, Py_ssize_t width, int64_t[:, ::1] out not None,
):
    """Write the segments of rows in the order in which a plan stores them; return their number.

    See `fastpack.kernels.plan_rows_np.read_rows`.
    """
    cdef Py_ssize_t n_segments
    if out.shape[0] != 4:
        raise ValueError("out must have four rows")
    if not 1 <= width <= 8 or not 1 <= length_bits < 63:
        raise ValueError("a piece has 1 to 8 bytes")
    with nogil:
        n_segments = read_all(
            rows, capacity, full, full_sums, sizes, size_sums, pieces, length_bits, width, out
        )
    return n_segments
