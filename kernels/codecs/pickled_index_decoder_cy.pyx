"""The `pickled_index_decoder` codec in Cython: the same machine, with a fast path for the rows of a batch."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy, memset

import numpy as np

from fastpack.kernels.codecs.pickled_index_errors import syntax_error


cdef extern from "byte_order.h" nogil:
    uint16_t le16toh(uint16_t)
    uint32_t le32toh(uint32_t)
    uint64_t le64toh(uint64_t)

include "pickled_index_constants.pxi"

cdef enum:
    MAX_DECIMAL_BYTES = 24
    USUAL_BYTES = 12  # bytes of a row with an offset of 5 bytes and a length of 2
    LANE_BYTES = 28  # a row is 26 bytes at most, and its last 8-byte load starts at 20
    FIRST_ROWS = 4096

cdef enum Kind:
    LIST_CELL = 0
    ROW_CELL = 1
    INT_CELL = 2

cdef struct Machine:
    const uint8_t* data
    Py_ssize_t n_bytes
    Py_ssize_t start
    Py_ssize_t pos
    Py_ssize_t frame_end
    int64_t* rows
    int64_t n_rows
    int64_t capacity
    uint64_t bits
    int64_t pending
    int has_list
    int marks
    int n_ints
    int64_t ints[2]
    # While memo[0] is the list and memo[i] is row i - 1, as picklers number them, kinds is NULL and only n_memo counts.
    int64_t n_memo
    int64_t memo_capacity
    uint8_t* kinds
    int64_t* cells  # the value of an integer, or the number of a row
    bint stopped


include "pickled_index_lane.pxi"


cdef inline Fault take(Machine* m, Py_ssize_t n_bytes, const uint8_t** argument) noexcept nogil:
    """Return a pointer to the next bytes of the opcode's argument."""
    if n_bytes > m.n_bytes - m.pos:
        return TRUNCATED
    if m.start < m.frame_end < m.pos + n_bytes:
        return STRADDLE
    argument[0] = m.data + m.pos
    m.pos += n_bytes
    return GOOD


cdef Fault take_unsigned(Machine* m, Py_ssize_t n_bytes, int64_t* number) noexcept nogil:
    cdef const uint8_t* argument
    cdef Fault fault = take(m, n_bytes, &argument)
    if fault == GOOD:
        number[0] = argument[0] if n_bytes == 1 else load16(argument) if n_bytes == 2 else load32(argument)
    return fault


cdef Fault take_signed(Machine* m, Py_ssize_t n_bytes, int64_t* number) noexcept nogil:
    """Read a two's complement integer of 0 to 8 bytes."""
    cdef const uint8_t* argument
    cdef uint64_t word = 0
    cdef Py_ssize_t i
    cdef Fault fault = take(m, n_bytes, &argument)
    if fault == GOOD:
        for i in range(n_bytes):
            word |= <uint64_t>argument[i] << (8 * i)
        if n_bytes and argument[n_bytes - 1] & 0x80 and n_bytes < 8:
            word |= ~<uint64_t>0 << (8 * n_bytes)
        number[0] = <int64_t>word
    return fault


cdef Fault take_decimal(Machine* m, bint with_l, Fault too_long, int64_t* number) noexcept nogil:
    """Read digits without leading zeros, an L if `with_l`, and a line feed."""
    cdef Py_ssize_t window = min(m.n_bytes - m.pos, <Py_ssize_t>MAX_DECIMAL_BYTES)
    cdef const uint8_t* line = m.data + m.pos
    cdef const uint8_t* line_feed = <const uint8_t*>memchr(line, 0x0A, window)
    cdef Py_ssize_t n_digits, i
    cdef bint negative
    cdef uint64_t magnitude = 0
    cdef Fault fault
    if line_feed == NULL:
        return TRUNCATED if window < MAX_DECIMAL_BYTES else DECIMAL
    fault = take(m, line_feed - line + 1, &line)
    if fault != GOOD:
        return fault
    n_digits = line_feed - line - with_l
    if n_digits < 0 or (with_l and line[n_digits] != 0x4C):
        return DECIMAL
    negative = n_digits > 0 and line[0] == 0x2D
    line += negative
    n_digits -= negative
    if n_digits == 0 or (line[0] == 0x30 and (negative or n_digits > 1)):
        return DECIMAL
    for i in range(n_digits):
        if line[i] < 0x30 or line[i] > 0x39:
            return DECIMAL
    if n_digits > 19:
        return too_long
    for i in range(n_digits):
        magnitude = magnitude * 10 + (line[i] - 0x30)
    if magnitude > (<uint64_t>1 << 63) - (not negative):
        return too_long
    number[0] = <int64_t>(0 - magnitude if negative else magnitude)
    return GOOD


cdef Fault take_frame(Machine* m) noexcept nogil:
    cdef const uint8_t* argument
    cdef uint64_t length
    cdef Fault fault
    if m.start < m.frame_end:
        return FRAME_PLACE
    fault = take(m, 8, &argument)
    if fault != GOOD:
        return fault
    length = load64(argument)
    if length > <uint64_t>(m.n_bytes - m.pos):
        return FRAME_LENGTH
    m.frame_end = m.pos + <Py_ssize_t>length
    return GOOD


cdef Fault take_protocol(Machine* m) noexcept nogil:
    cdef const uint8_t* argument
    cdef Fault fault = take(m, 1, &argument)
    if fault != GOOD:
        return fault
    if m.start != 0:
        return PROTOCOL_PLACE
    return GOOD if argument[0] <= 5 else PROTOCOL


cdef Fault push_int(Machine* m, int64_t number) noexcept nogil:
    if not (m.marks > 0 or (m.has_list and m.pending == 0)) or m.n_ints == 2:
        return GRAMMAR
    m.ints[m.n_ints] = number
    m.n_ints += 1
    return GOOD


cdef Fault push_row(Machine* m, int64_t first, int64_t second) noexcept nogil:
    if m.n_rows == m.capacity:
        return FULL
    m.rows[2 * m.n_rows] = first
    m.rows[2 * m.n_rows + 1] = second
    m.bits |= first | second
    m.n_rows += 1
    m.pending += 1
    m.n_ints = 0
    return GOOD


cdef Fault tuple_from_mark(Machine* m) noexcept nogil:
    cdef Fault fault
    if m.n_ints != 2 or not (m.marks == 2 or (m.marks == 1 and m.pending == 0 and m.has_list)):
        return GRAMMAR
    fault = push_row(m, m.ints[0], m.ints[1])
    if fault == GOOD:
        m.marks -= 1
    return fault


cdef Fault put(Machine* m, int64_t number) noexcept nogil:
    """Store the top of the stack in the memo."""
    cdef Kind kind
    cdef int64_t cell
    if m.n_ints:
        kind, cell = INT_CELL, m.ints[m.n_ints - 1]
    elif m.pending and m.marks < 2:
        kind, cell = ROW_CELL, m.n_rows - 1
    elif m.has_list and m.marks == 0:
        kind, cell = LIST_CELL, -1
    else:
        return GRAMMAR
    if number < 0 or number > m.n_memo:
        return MEMO_PUT
    if m.kinds == NULL and number == m.n_memo and kind != INT_CELL and cell == number - 1:
        m.n_memo += 1
        return GOOD
    if m.kinds == NULL or m.n_memo == m.memo_capacity:
        if not spell_memo_out(m):
            return MEMORY
    m.kinds[number] = kind
    m.cells[number] = cell
    if number == m.n_memo:
        m.n_memo += 1
    return GOOD


cdef bint spell_memo_out(Machine* m) noexcept nogil:
    """Grow the memo's arrays, and fill them if only the count was kept; return False if out of memory."""
    cdef int64_t i
    cdef bint implied = m.kinds == NULL
    cdef int64_t capacity = m.n_memo + (m.n_memo >> 1) + 64
    cdef void* kinds = realloc(m.kinds, capacity)
    if kinds == NULL:
        return False
    m.kinds = <uint8_t*>kinds
    cdef void* cells = realloc(m.cells, capacity * sizeof(int64_t))
    if cells == NULL:
        return False
    m.cells = <int64_t*>cells
    m.memo_capacity = capacity
    if implied:
        for i in range(m.n_memo):
            m.kinds[i] = ROW_CELL if i else LIST_CELL
            m.cells[i] = i - 1
    return True


cdef Fault get(Machine* m, int64_t number) noexcept nogil:
    """Push a memo entry; the list itself cannot be an element of itself."""
    cdef Kind kind
    cdef int64_t cell
    if number < 0 or number >= m.n_memo:
        return MEMO_GET
    if m.kinds == NULL:
        kind, cell = ROW_CELL if number else LIST_CELL, number - 1
    else:
        kind, cell = <Kind>m.kinds[number], m.cells[number]
    if kind == LIST_CELL:
        return MEMO_GET
    if kind == INT_CELL:
        return push_int(m, cell)
    if m.n_ints or not (m.marks == 1 or (m.marks == 0 and m.has_list and m.pending == 0)):
        return GRAMMAR
    return push_row(m, m.rows[2 * cell], m.rows[2 * cell + 1])


cdef Fault take_int(Machine* m, uint8_t opcode) noexcept nogil:
    """Execute an opcode that pushes an integer."""
    cdef int64_t number = 0
    cdef Fault fault
    if opcode == 0x4B:
        fault = take_unsigned(m, 1, &number)
    elif opcode == 0x4D:
        fault = take_unsigned(m, 2, &number)
    elif opcode == 0x4A:
        fault = take_signed(m, 4, &number)
    elif opcode == 0x49:
        fault = take_decimal(m, False, INT_RANGE, &number)
    elif opcode == 0x4C:
        fault = take_decimal(m, True, INT_RANGE, &number)
    else:
        fault = take_unsigned(m, 1, &number) if opcode == 0x8A else take_signed(m, 4, &number)
        if fault == GOOD:
            fault = take_signed(m, number, &number) if 0 <= number <= 8 else INT_SIZE
    return push_int(m, number) if fault == GOOD else fault


cdef Fault take_memo(Machine* m, uint8_t opcode) noexcept nogil:
    """Execute an opcode that stores into the memo or reads from it."""
    cdef int64_t number = m.n_memo
    cdef Fault fault = GOOD
    cdef bint puts = opcode in (0x94, 0x71, 0x72, 0x70)
    if opcode in (0x71, 0x68):
        fault = take_unsigned(m, 1, &number)
    elif opcode in (0x72, 0x6A):
        fault = take_unsigned(m, 4, &number)
    elif opcode != 0x94:
        fault = take_decimal(m, False, MEMO_PUT if puts else MEMO_GET, &number)
    if fault != GOOD:
        return fault
    return put(m, number) if puts else get(m, number)


cdef Fault take_shape(Machine* m, uint8_t opcode) noexcept nogil:
    """Execute an opcode without argument that changes the stack; GRAMMAR if the stack does not allow it."""
    cdef bint idle = m.marks == 0 and m.pending == 0 and m.n_ints == 0
    if opcode == 0x86:  # TUPLE2
        return push_row(m, m.ints[0], m.ints[1]) if m.n_ints == 2 and m.marks < 2 else GRAMMAR
    if opcode == 0x74:  # TUPLE
        return tuple_from_mark(m)
    if opcode == 0x2E:  # STOP
        if not (m.has_list and idle):
            return GRAMMAR
        m.stopped = m.pos >= m.frame_end
        return GOOD if m.stopped else STOP_PLACE
    if m.n_ints:
        return GRAMMAR
    if opcode == 0x28 and (m.marks == 1 or idle):  # MARK
        m.marks += 1
    elif opcode == 0x61 and m.marks == 0 and m.pending == 1:  # APPEND
        m.pending = 0
    elif opcode == 0x65 and m.marks == 1 and m.has_list:  # APPENDS
        m.marks, m.pending = 0, 0
    elif opcode == 0x5D and m.marks == 0 and not m.has_list:  # EMPTY_LIST
        m.has_list = True
    elif opcode == 0x6C and m.marks == 1 and not m.has_list:  # LIST
        m.has_list, m.marks, m.pending = True, 0, 0
    else:
        return GRAMMAR
    return GOOD


cdef Fault step(Machine* m) noexcept nogil:
    """Execute the opcode at m.start."""
    cdef uint8_t opcode
    m.start = m.pos
    if m.start == m.n_bytes:
        return END
    opcode = m.data[m.pos]
    m.pos += 1
    if opcode in (0x4B, 0x4D, 0x4A, 0x8A, 0x8B, 0x49, 0x4C):
        return take_int(m, opcode)
    if opcode in (0x94, 0x71, 0x72, 0x70, 0x68, 0x6A, 0x67):
        return take_memo(m, opcode)
    if opcode in (0x86, 0x74, 0x28, 0x61, 0x65, 0x5D, 0x6C, 0x2E):
        return take_shape(m, opcode)
    if opcode == 0x95:
        return take_frame(m)
    if opcode == 0x80:
        return take_protocol(m)
    return OPCODE


cdef Fault run(Machine* m, bint lane) noexcept nogil:
    """Execute opcodes until the list is complete, an error occurs, or the rows are full at m.start."""
    cdef Fault fault = GOOD
    while fault == GOOD and not m.stopped:
        if lane and m.marks == 1 and m.n_ints == 0 and m.has_list and m.kinds == NULL and m.n_memo == m.n_rows + 1:
            take_lane(m)
        fault = step(m)
    return fault


def decode_index(const uint8_t[::1] data not None):
    """Decode the pickled list of integer pairs at the start of `data`, uint8 [n].

    See `fastpack.kernels.codecs.pickled_index_decoder_np.decode_index`.
    """
    return _decode(data, True)


def decode_index_strictly(const uint8_t[::1] data not None):
    """Decode as `decode_index`, but without the fast path; the tests compare the two."""
    return _decode(data, False)


cdef object grown(object rows, Py_ssize_t capacity):
    """Grow `rows`: by copying while they are few, else by remapping, which copies nothing."""
    if rows.shape[0] <= FIRST_ROWS:
        larger = np.empty((capacity, 2), np.int64)
        larger[:rows.shape[0]] = rows
        return larger
    rows.resize((capacity, 2), refcheck=False)
    return rows


cdef tuple _decode(const uint8_t[::1] data, bint lane):
    cdef Machine m
    cdef Fault fault = FULL
    memset(&m, 0, sizeof(Machine))
    m.n_bytes = data.shape[0]
    # A row of a usual file has 6 bytes or more; unused pages of `out` are never accessed. But start small, as a damaged
    # header may point at gigabytes that are not an index.
    cdef Py_ssize_t usual = m.n_bytes // 6 + 1
    m.capacity = min(usual, <Py_ssize_t>FIRST_ROWS)
    out = np.empty((m.capacity, 2), np.int64)
    if m.n_bytes:
        m.data = &data[0]
    try:
        while fault == FULL:
            m.rows = <int64_t*><uintptr_t>out.ctypes.data  # no memoryview: it would forbid the resize
            with nogil:
                fault = run(&m, lane)
            if fault == FULL:
                m.pos = m.start
                out = grown(out, max(usual, m.capacity + (m.capacity >> 2) + 64))
                m.capacity = out.shape[0]
    finally:
        free(m.kinds)
        free(m.cells)
    if fault == MEMORY:
        raise MemoryError
    if fault != GOOD:
        raise syntax_error(fault, m.start, data[m.start] if m.start < m.n_bytes else None)
    out.resize((m.n_rows, 2), refcheck=False)
    return out, m.pos, <int64_t>m.bits
