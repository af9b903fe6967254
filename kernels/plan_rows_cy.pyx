"""The `plan_rows` kernels in Cython."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef enum:
    BLOCK = 64

cdef int64_t LARGEST_SUM = <int64_t> 1 << 62  # exclusive
cdef int64_t LARGEST_COUNT = <int64_t> 1 << 56  # exclusive

ctypedef fused count_t:
    uint8_t
    uint32_t


cdef struct Column:
    const int64_t *sums
    Py_ssize_t n_sums
    const int64_t *wide
    Py_ssize_t n_wide  # pairs
    Py_ssize_t n_items


cdef Column column_of(Py_ssize_t n_items, const int64_t[::1] sums, const int64_t[::1] wide) noexcept:
    cdef Column column
    column.n_items, column.n_sums, column.n_wide = n_items, sums.shape[0], wide.shape[0] // 2
    column.sums = &sums[0] if sums.shape[0] else NULL
    column.wide = &wide[0] if wide.shape[0] else NULL
    return column


cdef int64_t count_of(const count_t *narrow, Column *column, int64_t item) noexcept nogil:
    """Return the count of an item, -1 if the column is damaged."""
    cdef int64_t count, largest = <count_t> -1
    cdef Py_ssize_t middle, low = 0, high = column.n_wide
    if item < 0 or item >= column.n_items:
        return -1
    count = narrow[item]
    if count < largest:
        return count
    while low < high:
        middle = (low + high) // 2
        if column.wide[2 * middle] < item:
            low = middle + 1
        else:
            high = middle
    if low >= column.n_wide or column.wide[2 * low] != item:
        return -1
    count = column.wide[2 * low + 1]
    return count if largest <= count < LARGEST_COUNT else -1


cdef int64_t first_of(const count_t *narrow, Column *column, int64_t item) noexcept nogil:
    """Return the first unit of an item, -1 if the column is damaged."""
    cdef int64_t first, count, other, block = item // BLOCK
    if item < 0 or block >= column.n_sums or column.sums[block] < 0 or column.sums[block] >= LARGEST_SUM:
        return -1
    first = column.sums[block]
    for other in range(block * BLOCK, item):
        count = count_of(narrow, column, other)
        if count < 0:
            return -1
        first += count
    return first


cdef int64_t locate(const count_t *narrow, Column *column, int64_t unit, int64_t *place) noexcept nogil:
    """Return the item of a unit, and set the number of the unit in it; -1 if the column is damaged."""
    cdef Py_ssize_t middle, low = 0, high = column.n_sums
    cdef int64_t item, count, block
    while low < high:
        middle = (low + high) // 2
        if column.sums[middle] <= unit:
            low = middle + 1
        else:
            high = middle
    block = low - 1
    if block < 0 or column.sums[block] < 0:
        return -1
    place[0] = unit - column.sums[block]
    for item in range(block * BLOCK, min((block + 1) * BLOCK, column.n_items)):
        count = count_of(narrow, column, item)
        if count < 0 or place[0] < 0:
            return -1
        if place[0] < count:
            return item
        place[0] -= count
    return -1


cdef struct Output:
    int64_t *row
    int64_t *document
    int64_t *start
    int64_t *end
    Py_ssize_t room
    Py_ssize_t n


cdef inline void append(Output *out, int64_t row, int64_t document, int64_t start, int64_t end) noexcept nogil:
    if out.n < out.room:
        out.row[out.n], out.document[out.n], out.start[out.n], out.end[out.n] = row, document, start, end
    out.n += 1


cdef Output output_of(int64_t[::1] row, int64_t[::1] document, int64_t[::1] start, int64_t[::1] end) noexcept:
    cdef Output out
    out.n, out.room = 0, min(row.shape[0], document.shape[0], start.shape[0], end.shape[0])
    if out.room:
        out.row, out.document, out.start, out.end = &row[0], &document[0], &start[0], &end[0]
    return out


cdef bint add_bin(
    int64_t position, int64_t first, int64_t count, const uint8_t *pieces, int piece_bytes, int length_bits,
    const uint8_t *full, Column *documents, int64_t seq_length, Output *out
) noexcept nogil:
    """Append the pieces of one row; return whether they are sound."""
    cdef int64_t at, item, length, whole, left = seq_length, mask = (<int64_t> 1 << length_bits) - 1
    cdef int64_t value
    cdef int byte
    for at in range(first, first + count):
        value = 0
        for byte in range(piece_bytes):
            value |= <int64_t> pieces[at * piece_bytes + byte] << (8 * byte)
        item, length = value >> length_bits, value & mask
        whole = count_of(full, documents, item)
        left -= length
        if whole < 0 or whole >= LARGEST_SUM // seq_length - 1 or length <= 0 or left < 0:
            return False
        append(out, position, item, whole * seq_length, whole * seq_length + length)
    return True


def bin_segments(
    const int64_t[::1] stored not None, int64_t n_full_rows, int64_t seq_length, const uint8_t[::1] full not None,
    const int64_t[::1] full_sums not None, const int64_t[::1] full_wide not None, const uint8_t[::1] counts not None,
    const int64_t[::1] counts_sums not None, const int64_t[::1] counts_wide not None,
    const uint8_t[::1] pieces not None, int piece_bytes, int length_bits, int64_t[::1] row not None,
    int64_t[::1] document not None, int64_t[::1] start not None, int64_t[::1] end not None
):
    """Write the segments of rows of a plan of bins: position in `stored`, document, first token, end token.

    See `fastpack.kernels.plan_rows_np.bin_segments`.
    """
    cdef Column documents = column_of(full.shape[0], full_sums, full_wide)
    cdef Column rows = column_of(counts.shape[0], counts_sums, counts_wide)
    cdef Output out = output_of(row, document, start, end)
    cdef const uint8_t *wholes = &full[0] if full.shape[0] else NULL
    cdef const uint8_t *narrow = &counts[0] if counts.shape[0] else NULL
    cdef const uint8_t *data = &pieces[0] if pieces.shape[0] else NULL
    cdef Py_ssize_t k, n_pieces = pieces.shape[0] // piece_bytes
    cdef int64_t item, place = 0, first, count
    with nogil:
        for k in range(stored.shape[0]):
            if stored[k] < n_full_rows:
                item = locate(wholes, &documents, stored[k], &place)
                if item < 0 or place >= LARGEST_SUM // seq_length - 1:
                    out.n = -1
                    break
                append(&out, k, item, place * seq_length, (place + 1) * seq_length)
                continue
            first = first_of(narrow, &rows, stored[k] - n_full_rows)
            count = count_of(narrow, &rows, stored[k] - n_full_rows)
            if first < 0 or count <= 0 or first > n_pieces - count or not add_bin(
                k, first, count, data, piece_bytes, length_bits, wholes, &documents, seq_length, &out
            ):
                out.n = -1
                break
    return out.n


cdef bint add_span(
    int64_t position, int64_t first, int64_t stop, const uint32_t *used, Column *documents, int64_t seq_length,
    Output *out
) noexcept nogil:
    """Append the segments of the tokens [first, stop); return whether they are sound."""
    cdef int64_t count, length, place = 0, left = stop - first
    cdef int64_t item
    if first < 0 or left <= 0 or left > seq_length:
        return False
    item = locate(used, documents, first, &place)
    if item < 0:
        return False
    while left > 0:
        count = count_of(used, documents, item)
        if count < 0:
            return False
        length = min(count - place, left)
        if length > 0:
            append(out, position, item, place, place + length)
        left -= length
        item, place = item + 1, 0
    return True


def stream_segments(
    const int64_t[::1] first not None, const int64_t[::1] stop not None, int64_t seq_length,
    const uint32_t[::1] used not None, const int64_t[::1] used_sums not None, const int64_t[::1] used_wide not None,
    int64_t[::1] row not None, int64_t[::1] document not None, int64_t[::1] start not None, int64_t[::1] end not None
):
    """Write the segments of the tokens [first[k], stop[k]) of concatenated documents.

    See `fastpack.kernels.plan_rows_np.stream_segments`.
    """
    cdef Column documents = column_of(used.shape[0], used_sums, used_wide)
    cdef Output out = output_of(row, document, start, end)
    cdef const uint32_t *narrow = &used[0] if used.shape[0] else NULL
    cdef Py_ssize_t k
    if stop.shape[0] != first.shape[0]:
        raise ValueError("first and stop must have one length")
    with nogil:
        for k in range(first.shape[0]):
            if not add_span(k, first[k], stop[k], narrow, &documents, seq_length, &out):
                out.n = -1
                break
    return out.n
