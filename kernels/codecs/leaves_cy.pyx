"""The `leaves` codec in Cython."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

include "btree_constants.pxi"

cdef int[10] INT_BYTES = [-1, 1, 2, 3, 4, 6, 8, -1, 0, 0]  # by serial type


cdef inline const uint8_t* get_varint(const uint8_t* p, const uint8_t* end, uint64_t* number) noexcept nogil:
    """Read a varint at `p`; return its end, NULL if that is beyond `end`."""
    cdef int i
    cdef uint64_t found = 0
    for i in range(9):
        if p >= end:
            return NULL
        if i == 8:
            number[0] = found << 8 | p[0]
            return p + 1
        found = found << 7 | (p[0] & 0x7F)
        p += 1
        if (p - 1)[0] < 0x80:
            break
    number[0] = found
    return p


cdef inline int64_t get_int(const uint8_t* p, int n_bytes) noexcept nogil:
    """Read a signed big-endian integer."""
    cdef int i
    cdef uint64_t number = <uint64_t>-1 if p[0] >= 0x80 else 0
    for i in range(n_bytes):
        number = number << 8 | p[i]
    return <int64_t>number


cdef inline const uint8_t* read_header(const uint8_t* p, const uint8_t* page_end, const uint8_t** types,
                                       const uint8_t** body) noexcept nogil:
    """Find the serial types and the body of the cell at `p`; return the end of the record, or NULL."""
    cdef uint64_t n_bytes, rowid, n_header
    p = get_varint(p, page_end, &n_bytes)
    if p == NULL:
        return NULL
    p = get_varint(p, page_end, &rowid)
    if p == NULL or n_bytes > MAX_LOCAL_TABLE or n_bytes > <uint64_t>(page_end - p):
        return NULL
    types[0] = get_varint(p, page_end, &n_header)
    if types[0] == NULL or n_header > n_bytes:
        return NULL
    body[0] = p + n_header
    return p + n_bytes


cdef int read_record(const uint8_t* base, const uint8_t* p, const uint8_t* page_end, int64_t text_column,
                     int64_t* row) noexcept nogil:
    """Read the fields of the record in the cell at `p`; return -1 for other fields."""
    cdef const uint8_t* types = NULL
    cdef const uint8_t* body = NULL
    cdef const uint8_t* header_end
    cdef const uint8_t* end = read_header(p, page_end, &types, &body)
    cdef uint64_t kind, n_bytes
    cdef int column
    if end == NULL:
        return -1
    header_end = body
    for column in range(N_FIELDS):
        types = get_varint(types, header_end, &kind)
        if types == NULL:
            return -1
        if column == text_column:
            if kind < 13 or kind % 2 == 0:
                return -1
            n_bytes = (kind - 13) // 2
            row[LENGTH] = <int64_t>n_bytes
        elif kind > 9 or INT_BYTES[kind] < 0:
            return -1
        else:
            n_bytes = INT_BYTES[kind]
        if n_bytes > <uint64_t>(end - body):
            return -1
        if column == text_column:
            row[column] = body - base
        elif n_bytes:
            row[column] = get_int(body, <int>n_bytes)
        else:
            row[column] = <int64_t>kind - 8
        body += n_bytes
    return 0 if types == header_end and body == end else -1


cdef struct Recent:  # the texts that were new most recently
    const uint8_t* texts[8]
    int64_t lengths[8]
    int64_t rows[8]
    int64_t n


cdef inline int64_t first_like(Recent* recent, const uint8_t* text, int64_t length, int64_t row) noexcept nogil:
    """Return the row of a recent equal text; otherwise `row`, and remember its text."""
    cdef int64_t i
    for i in range(min(recent.n, N_RECENT)):
        if recent.lengths[i] == length and not memcmp(recent.texts[i], text, <size_t>length):
            return recent.rows[i]
    i = recent.n % N_RECENT
    recent.texts[i], recent.lengths[i], recent.rows[i] = text, length, row
    recent.n += 1
    return row


cdef int64_t read_pages(const uint8_t* base, int64_t n_pages, const int64_t* pages, int64_t n, int64_t text_column,
                        int64_t* out, int64_t capacity) noexcept nogil:
    cdef Recent recent
    cdef const uint8_t* page
    cdef int64_t[N_COLUMNS] row
    cdef int64_t i, column, cell, number, at, n_cells, n_rows = 0
    recent.n = 0
    for i in range(n):
        number = pages[i]
        if not 1 <= number <= n_pages:
            return -1
        page = base + (number - 1) * PAGE_BYTES
        n_cells = page[3] << 8 | page[4]
        if page[0] != TABLE_LEAF or LEAF_HEADER_BYTES + 2 * n_cells > PAGE_BYTES or n_cells > capacity - n_rows:
            return -1
        for cell in range(n_cells):
            at = page[LEAF_HEADER_BYTES + 2 * cell] << 8 | page[LEAF_HEADER_BYTES + 2 * cell + 1]
            if at >= PAGE_BYTES or read_record(base, page + at, page + PAGE_BYTES, text_column, row):
                return -1
            row[FIRST] = first_like(&recent, base + row[text_column], row[LENGTH], n_rows)
            for column in range(N_COLUMNS):
                out[n_rows * N_COLUMNS + column] = row[column]
            n_rows += 1
    return n_rows


def read_leaves(const uint8_t[::1] data not None, const int64_t[::1] pages not None, int64_t text_column,
                int64_t[:, ::1] rows not None):
    """Write a row for each record on leaf pages of a table; return how many, or -1 for unsupported pages.

    See `fastpack.kernels.codecs.leaves_np.read_leaves`.
    """
    cdef int64_t n_rows, n_pages = data.shape[0] // PAGE_BYTES
    if rows.shape[1] != N_COLUMNS or not 0 <= text_column < N_FIELDS:
        raise ValueError(f"rows of {rows.shape[1]} columns with the text in {text_column}, expected {N_COLUMNS}")
    if pages.shape[0] == 0:
        return 0
    if n_pages == 0:
        return -1
    with nogil:
        n_rows = read_pages(&data[0], n_pages, &pages[0], pages.shape[0], text_column,
                            &rows[0, 0] if rows.shape[0] else NULL, rows.shape[0])
    return n_rows
