"""The `stream_rows` kernel in Cython."""

from libc.stdint cimport int64_t, uint32_t

cdef enum:
    BLOCK = 64

cdef int64_t LARGEST = 0xFFFFFFFF  # stands for a count that is stored elsewhere
cdef int64_t LARGEST_COUNT = <int64_t> 1 << 56  # exclusive

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


cdef int64_t count_of(const uint32_t *narrow, Column *column, int64_t item) noexcept nogil:
    """Return the count of an item, -1 if the column is damaged."""
    cdef int64_t count
    cdef Py_ssize_t middle, low = 0, high = column.n_wide
    if item < 0 or item >= column.n_items:
        return -1
    count = narrow[item]
    if count < LARGEST:
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
    return count if LARGEST <= count < LARGEST_COUNT else -1


cdef int64_t locate(const uint32_t *narrow, Column *column, int64_t unit, int64_t *place) noexcept nogil:
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

    See `fastpack.kernels.stream_rows_np.stream_segments`.
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
