"""The `btree` codec in Cython."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset


cdef extern from "byte_order.h" nogil:
    uint16_t htobe16(uint16_t)
    uint32_t htobe32(uint32_t)
    uint64_t htobe64(uint64_t)

cdef extern from "bits.h" nogil:
    int clzll "fp_clzll"(unsigned long long) noexcept

include "btree_constants.pxi"

cdef enum:
    LAST_SHORT_TYPE = 57  # length of the longest text whose serial type is one byte
    HEADER_BYTES = 32  # maximum of a record here: 1, MAX_FIELDS, and 8 more for the length of a text

# Serial types of integers, and their sizes, by (number of bits without the sign) // 8.
cdef uint8_t[8] INT_TYPE = [1, 2, 3, 4, 5, 5, 6, 6]
cdef uint8_t[8] INT_BYTES = [1, 2, 3, 4, 6, 6, 8, 8]


cdef struct Rows:
    const int64_t* at
    int64_t width
    int64_t n_rows
    int64_t[MAX_FIELDS] columns
    int64_t n_columns
    const int64_t* bounds
    int64_t n_texts
    const uint8_t* data
    int64_t n_data


cdef inline uint8_t* put_varint(uint8_t* p, uint64_t number) noexcept nogil:
    """Write a varint at `p`, where 9 bytes are writable; return its end."""
    cdef int n_bytes, i
    if number < 0x80:
        p[0] = <uint8_t>number
        return p + 1
    if number < 0x4000:
        p[0] = <uint8_t>(0x80 | number >> 7)
        p[1] = <uint8_t>(number & 0x7F)
        return p + 2
    if number < 0x200000:
        p[0] = <uint8_t>(0x80 | number >> 14)
        p[1] = <uint8_t>(0x80 | number >> 7 & 0x7F)
        p[2] = <uint8_t>(number & 0x7F)
        return p + 3
    if number >> 56:
        p[8] = <uint8_t>number
        number >>= 8
        for i in range(7, -1, -1):
            p[i] = <uint8_t>(0x80 | number & 0x7F)
            number >>= 7
        return p + 9
    n_bytes = (70 - clzll(number)) // 7
    p[n_bytes - 1] = <uint8_t>(number & 0x7F)
    for i in range(n_bytes - 2, -1, -1):
        number >>= 7
        p[i] = <uint8_t>(0x80 | number & 0x7F)
    return p + n_bytes


cdef inline int int_type(int64_t value, int* n_bytes) noexcept nogil:
    """Return the serial type of an integer, and its size in bytes."""
    cdef int wide
    if <uint64_t>value <= 1:
        n_bytes[0] = 0
        return 8 + <int>value
    wide = (63 - clzll(<uint64_t>(value ^ (value >> 63)) | 1)) + (<uint64_t>(value ^ (value >> 63)) != 0)
    wide >>= 3
    n_bytes[0] = INT_BYTES[wide]
    return INT_TYPE[wide]


cdef inline uint8_t* put_int(uint8_t* p, int64_t value, int n_bytes) noexcept nogil:
    """Write an integer of 0 to 8 bytes at `p`, where 8 are writable; return its end."""
    cdef uint64_t word = htobe64(<uint64_t>value << ((64 - 8 * n_bytes) & 63))
    memcpy(p, &word, 8)
    return p + n_bytes


cdef uint8_t* put_cell(
    uint8_t* p, const Rows* rows, int64_t row, const uint8_t* text, int64_t n_text, bint is_table
) noexcept nogil:
    """Write the cell of a row at `p`, where CELL_ROOM bytes are writable; return its end, NULL if too large."""
    cdef const int64_t* values = rows.at + row * rows.width
    cdef uint8_t[HEADER_BYTES] header
    cdef int64_t[MAX_FIELDS] number
    cdef int[MAX_FIELDS] n_bytes
    cdef uint8_t* type_end = header + 1
    cdef int64_t n_payload = n_text, i
    cdef int64_t n_fields = rows.n_columns + (not is_table)
    for i in range(n_fields):
        if i < rows.n_columns and rows.columns[i] == TEXT:
            type_end = put_varint(type_end, <uint64_t>(2 * n_text + 13))
            n_bytes[i] = -1
            continue
        number[i] = values[rows.columns[i]] if i < rows.n_columns else row + 1
        type_end[0] = <uint8_t>int_type(number[i], &n_bytes[i])
        n_payload += n_bytes[i]
        type_end += 1
    header[0] = <uint8_t>(type_end - header)
    n_payload += type_end - header
    if n_payload > (MAX_LOCAL_TABLE if is_table else MAX_LOCAL_INDEX):
        return NULL
    p = put_varint(p, <uint64_t>n_payload)
    if is_table:
        p = put_varint(p, <uint64_t>(row + 1))
    memcpy(p, header, HEADER_BYTES)
    p += type_end - header
    for i in range(n_fields):
        if n_bytes[i] >= 0:
            p = put_int(p, number[i], n_bytes[i])
        else:
            memcpy(p, text, <size_t>n_text)
            p += n_text
    return p


cdef inline void copy_text(uint8_t* p, const uint8_t* text, int64_t n_bytes, const uint8_t* end) noexcept nogil:
    """Copy a text to `p`, where 32 more bytes are writable; the source buffer ends at `end`."""
    if n_bytes <= 16 and end - text >= 16:
        memcpy(p, text, 16)
    elif n_bytes <= 32 and end - text >= 32:
        memcpy(p, text, 32)
    else:
        memcpy(p, text, <size_t>n_bytes)


cdef inline uint8_t* put_short_cell(
    uint8_t* p, const int64_t* values, const int64_t* columns, int64_t n_columns, int64_t row, const uint8_t* text,
    int64_t n_text, const uint8_t* data_end, bint is_table,
) noexcept nogil:
    """As put_cell, for payloads below 128 bytes: in one pass, which takes half the time."""
    cdef uint8_t* head
    cdef uint8_t* body
    cdef uint8_t* cell = p
    cdef int64_t i
    cdef int n_bytes
    p += 1
    if is_table:
        p = put_varint(p, <uint64_t>(row + 1))
    head = p
    body = p + 2 + n_columns - is_table + (n_text > LAST_SHORT_TYPE)
    head[0] = <uint8_t>(body - head)
    head += 1
    for i in range(n_columns):
        if columns[i] == TEXT:
            head = put_varint(head, <uint64_t>(2 * n_text + 13))
            copy_text(body, text, n_text, data_end)
            body += n_text
        else:
            head[0] = <uint8_t>int_type(values[columns[i]], &n_bytes)
            head += 1
            body = put_int(body, values[columns[i]], n_bytes)
    if not is_table:
        head[0] = <uint8_t>int_type(row + 1, &n_bytes)
        body = put_int(body, row + 1, n_bytes)
    cell[0] = <uint8_t>(body - p)
    return body


cdef int take_columns(Rows* rows, const int64_t[::1] columns) except -1:
    """Check the columns and copy them to private memory; return whether one is TEXT."""
    cdef int64_t n_texts = 0, i, column
    if columns.shape[0] >= MAX_FIELDS:
        raise ValueError(f"{columns.shape[0]} columns, fewer than {MAX_FIELDS} are possible")
    for i in range(columns.shape[0]):
        column = columns[i]
        if column < TEXT or column >= rows.width:
            raise ValueError(f"column {column} of rows that have {rows.width}")
        rows.columns[i] = column
        n_texts += column == TEXT
    if n_texts > 1:
        raise ValueError(f"{n_texts} columns are texts, one is possible")
    return n_texts


cdef inline bint find_text(const Rows* rows, int64_t number, const uint8_t** text, int64_t* n_bytes) noexcept nogil:
    """Find a text; return False if it is outside the data."""
    cdef int64_t start, stop
    if number < 0 or number >= rows.n_texts:
        return False
    start, stop = rows.bounds[number], rows.bounds[number + 1]
    text[0] = rows.data + start
    n_bytes[0] = stop - start
    return 0 <= start <= stop <= rows.n_data


def encode_cells(
    int kind,
    const int64_t[:, ::1] rows not None,
    const int64_t[::1] order not None,
    const int64_t[::1] columns not None,
    const int64_t[::1] texts not None,
    const int64_t[::1] bounds not None,
    const uint8_t[::1] data not None,
    int64_t[::1] state not None,
    uint8_t[::1] cells not None,
    int64_t[::1] ends not None,
):
    """Encode rows as cells of leaf pages; return how many were taken.

    See `fastpack.kernels.codecs.btree_np.encode_cells`.
    """
    cdef Rows source
    cdef int64_t n = order.shape[0], n_taken = 0, room = ends.shape[0], n_bytes = cells.shape[0]
    cdef int64_t n_text = 0, row, n_filled = state[0], n_cells = state[1]
    # A payload has the header length, a type per field (two bytes for the text), 8 bytes per number, and the text.
    cdef int64_t longest_short = 127 - 2 - 9 * (columns.shape[0] + 1)
    cdef bint too_large = False, outside = False, has_text, is_table = kind == TABLE_LEAF
    cdef const uint8_t* text = NULL
    cdef uint8_t* end
    cdef uint8_t* stop
    source.width, source.n_rows, source.n_columns = rows.shape[1], rows.shape[0], columns.shape[0]
    has_text = take_columns(&source, columns)
    if has_text and texts.shape[0] != n:
        raise ValueError(f"{columns.shape[0]} columns, {texts.shape[0]} texts of {n} rows")
    if state.shape[0] != 3 or n_filled < 0 or n_cells < 0:
        raise ValueError("the state does not fit the arrays")
    if n_bytes - n_filled < CELL_ROOM or n_cells >= room or not n:
        state[2] = 0
        return 0
    source.at = &rows[0, 0] if rows.shape[0] and rows.shape[1] else NULL
    source.bounds, source.n_texts = &bounds[0] if has_text and bounds.shape[0] else NULL, bounds.shape[0] - 1
    source.data, source.n_data = &data[0] if data.shape[0] else NULL, data.shape[0]
    end = &cells[0] + n_filled
    with nogil:
        while n_taken < n and n_cells < room and &cells[0] + n_bytes - end >= CELL_ROOM:
            row = order[n_taken]
            outside = (row < 0 or row >= source.n_rows
                       or (has_text and not find_text(&source, texts[n_taken], &text, &n_text)))
            if outside:
                break
            if n_text <= longest_short:
                stop = put_short_cell(end, source.at + row * source.width, source.columns, source.n_columns, row,
                                      text, n_text, source.data + source.n_data, is_table)
            else:
                stop = put_cell(end, &source, row, text, n_text, is_table)
                too_large = stop == NULL
                if too_large:
                    break
            end = stop
            ends[n_cells] = end - &cells[0]
            n_cells += 1
            n_taken += 1
    if outside:
        raise ValueError(f"row {n_taken} of the order, or its text, lies outside the arrays")
    state[0], state[1], state[2] = end - &cells[0], n_cells, too_large
    return n_taken


cdef struct Cells:
    const uint8_t* at
    int64_t n_bytes
    const int64_t* ends
    int64_t n


cdef inline int64_t begin_of(const Cells* cells, int64_t i) noexcept nogil:
    return cells.ends[i - 1] if i else 0


cdef int64_t last_on_page(const Cells* cells, int64_t first, int64_t room) noexcept nogil:
    """Return one past the last cell that fits on a page starting with `first`."""
    cdef int64_t begin = begin_of(cells, first), stop = first
    while stop < cells.n and 2 * (stop + 1 - first) + cells.ends[stop] - begin <= room:
        stop += 1
    return stop


cdef bint put_page(
    uint8_t* page, int kind, const Cells* cells, int64_t first, int64_t stop, uint32_t right,
) noexcept nogil:
    """Write a page with cells [first, stop); return False if they are out of bounds or too large for a page."""
    cdef int64_t begin = begin_of(cells, first), end = begin_of(cells, stop), i
    cdef int64_t n_bytes = end - begin, top = PAGE_BYTES - n_bytes
    cdef uint16_t short_word
    cdef uint32_t word = htobe32(right)
    cdef uint8_t* p = page + LEAF_HEADER_BYTES
    if stop < first or not 0 <= begin <= end <= cells.n_bytes:
        return False
    if 2 * (stop - first) + n_bytes > PAGE_BYTES - INTERIOR_HEADER_BYTES + 4 * (kind > TABLE_INTERIOR):
        return False
    memset(page, 0, LEAF_HEADER_BYTES)
    page[0] = <uint8_t>kind
    short_word = htobe16(<uint16_t>(stop - first))
    memcpy(page + 3, &short_word, 2)
    short_word = htobe16(<uint16_t>top)
    memcpy(page + 5, &short_word, 2)
    if kind <= TABLE_INTERIOR:
        memcpy(p, &word, 4)
        p += 4
    for i in range(first, stop):
        short_word = htobe16(<uint16_t>(top + begin_of(cells, i) - begin))
        memcpy(p, &short_word, 2)
        p += 2
    memset(p, 0, <size_t>(page + top - p))
    memcpy(page + top, cells.at + begin, <size_t>n_bytes)
    return True


cdef uint8_t* put_parent(
    uint8_t* p, int kind, const Cells* cells, int64_t divider, int64_t page, int64_t rowid,
) noexcept nogil:
    """Write the parent cell of a page; return its end, NULL if the divider is out of bounds."""
    cdef uint32_t word = htobe32(<uint32_t>page)
    cdef int64_t begin, end
    memcpy(p, &word, 4)
    if kind == TABLE_LEAF:
        return put_varint(p + 4, <uint64_t>rowid)
    begin = begin_of(cells, divider) + (4 if kind <= TABLE_INTERIOR else 0)
    end = cells.ends[divider]
    if not 0 <= begin <= end <= cells.n_bytes or end - begin > MAX_PARENT_BYTES - 4:
        return NULL
    memcpy(p + 4, cells.at + begin, <size_t>(end - begin))
    return p + 4 + (end - begin)


cdef inline uint32_t child_of(const Cells* cells, int64_t i) noexcept nogil:
    cdef uint32_t word = 0
    cdef int64_t begin = begin_of(cells, i)
    if 0 <= begin <= cells.n_bytes - 4:  # else `put_parent` returns NULL
        memcpy(&word, cells.at + begin, 4)
    return htobe32(word)


def pack_cells(
    int kind,
    const uint8_t[::1] cells not None,
    const int64_t[::1] ends not None,
    bint is_last,
    int64_t right,
    int64_t first_page,
    int64_t first_rowid,
    int64_t[::1] state not None,
    uint8_t[::1] pages not None,
    uint8_t[::1] parents not None,
    int64_t[::1] parent_ends not None,
):
    """Pack cells into b-tree pages, as many as fit into each; return the number of pages.

    See `fastpack.kernels.codecs.btree_np.pack_cells`.
    """
    cdef Cells source = Cells(NULL, cells.shape[0], NULL, ends.shape[0])
    cdef bint is_interior = kind <= TABLE_INTERIOR, divides = kind != TABLE_LEAF, fits = True
    cdef int64_t room = PAGE_BYTES - (INTERIOR_HEADER_BYTES if is_interior else LEAF_HEADER_BYTES)
    cdef int64_t first = 0, stop, n_pages = 0, max_pages = pages.shape[0] // PAGE_BYTES
    cdef uint32_t child
    cdef uint8_t* parent
    if parent_ends.shape[0] < max_pages or parents.shape[0] < MAX_PARENT_BYTES * max_pages:
        raise ValueError(f"{parent_ends.shape[0]} ends and {parents.shape[0]} bytes for {max_pages} pages' parents")
    if state.shape[0] != 2:
        raise ValueError("a state of 2 numbers is needed")
    source.at = &cells[0] if cells.shape[0] else NULL
    source.ends = &ends[0] if source.n else NULL
    parent = &parents[0] if max_pages else NULL
    with nogil:
        while n_pages < max_pages:
            stop = last_on_page(&source, first, room)
            if stop + divides >= source.n:
                if not is_last:
                    break
                if stop < source.n:
                    stop -= divides
            child = <uint32_t>right
            fits = stop >= first
            if fits and stop < source.n:
                if is_interior:
                    child = child_of(&source, stop)
                parent = put_parent(parent, kind, &source, stop, first_page + n_pages, first_rowid + stop - 1)
                fits = parent != NULL
                if fits:
                    parent_ends[n_pages] = parent - &parents[0]
            fits = fits and put_page(&pages[PAGE_BYTES * n_pages], kind, &source, first, stop, child)
            if not fits:
                break
            n_pages += 1
            if stop >= source.n:
                first = source.n
                break
            first = stop + divides
    if not fits:
        raise ValueError(f"the cells of page {n_pages} do not fit their ends or the page")
    state[0], state[1] = first, parent - &parents[0] if max_pages else 0
    return n_pages
