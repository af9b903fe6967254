# The fast path of pickled_index_decoder_cy: read rows as the C pickler writes them, with unaligned loads.
# It stops at the first other opcode.

cdef inline uint64_t load64(const uint8_t* p) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, p, 8)
    return le64toh(word)


cdef inline uint32_t load32(const uint8_t* p) noexcept nogil:
    cdef uint32_t word
    memcpy(&word, p, 4)
    return le32toh(word)


cdef inline uint16_t load16(const uint8_t* p) noexcept nogil:
    cdef uint16_t word
    memcpy(&word, p, 2)
    return le16toh(word)


cdef inline const uint8_t* lane_int(const uint8_t* p, int64_t* number) noexcept nogil:
    """Read the integer at `p`, where 10 bytes are readable; return its end, NULL for another opcode."""
    cdef uint64_t word = load64(p)
    cdef uint8_t opcode = word & 0xFF
    cdef uint8_t n_bytes
    if opcode == 0x4D:
        number[0] = (word >> 8) & 0xFFFF
        return p + 3
    if opcode == 0x4A:
        number[0] = <int32_t>(word >> 8)
        return p + 5
    if opcode == 0x4B:
        number[0] = (word >> 8) & 0xFF
        return p + 2
    if opcode != 0x8A:
        return NULL
    n_bytes = (word >> 8) & 0xFF
    # The two usual widths are explicit: the branch predictor then knows the next address before the load is done.
    if n_bytes == 5:
        number[0] = (<int64_t>(word << 8)) >> 24
        return p + 7
    if n_bytes == 6:
        number[0] = (<int64_t>word) >> 16
        return p + 8
    if n_bytes == 0 or n_bytes > 8:
        return NULL
    number[0] = (<int64_t>(load64(p + 2) << (64 - 8 * n_bytes))) >> (64 - 8 * n_bytes)
    return p + 2 + n_bytes


cdef const uint8_t* lane_row(const uint8_t* p, int64_t n_memo, int64_t* pair) noexcept nogil:
    """Read the row at `p`, whose memo number is `n_memo`; return its end, NULL for anything else."""
    cdef uint64_t tail
    p = lane_int(p, &pair[0])
    if p == NULL:
        return NULL
    p = lane_int(p, &pair[1])
    if p == NULL:
        return NULL
    tail = load64(p)
    if (tail & 0xFFFF) == 0x9486:
        return p + 2
    if (tail & 0xFFFF) == 0x7286 and <uint32_t>(tail >> 16) == n_memo:
        return p + 6
    return NULL


cdef inline const uint8_t* lane_tail(const uint8_t* p, int64_t* number) noexcept nogil:
    """Read a length of 1 or 2 bytes at `p`, TUPLE2 and MEMOIZE; return the end, NULL for anything else."""
    cdef uint64_t word = load64(p)
    if (word & <uint64_t>0xFFFF0000FF) == <uint64_t>0x948600004D:
        number[0] = (word >> 8) & 0xFFFF
        return p + 5
    if (word & <uint64_t>0xFFFF00FF) == <uint64_t>0x9486004B:
        number[0] = (word >> 8) & 0xFF
        return p + 4
    return NULL


cdef const uint8_t* take_usual(const uint8_t* p, Py_ssize_t n_rows, int64_t** rows, uint64_t* bits) noexcept nogil:
    """Read rows with an offset of 5 or 4 bytes and a length of 2 or 1, until another row or `n_rows` rows.

    Nearly all rows are like this, and three comparisons identify them. The counters are local to stay in registers.
    """
    cdef int64_t* out = rows[0]
    cdef uint64_t seen = bits[0]
    cdef uint64_t word
    cdef int64_t first, second = 0
    cdef const uint8_t* q
    while n_rows > 0:
        word = load64(p)
        if (word & 0xFFFF) == 0x058A:
            first = <int64_t>(word << 8) >> 24
            q = lane_tail(p + 7, &second)
        elif (word & 0xFF) == 0x4A:
            first = <int32_t>(word >> 8)
            q = lane_tail(p + 5, &second)
        else:
            break
        if q == NULL:
            break
        p = q
        out[0] = first
        out[1] = second
        seen |= <uint64_t>(first | second)
        out += 2
        n_rows -= 1
    rows[0] = out
    bits[0] = seen
    return p


cdef void take_lane(Machine* m) noexcept nogil:
    """Read whole rows while they have the opcodes of an index, and the end of frame and data is far enough away."""
    cdef const uint8_t* p = m.data + m.pos
    cdef Py_ssize_t limit = m.frame_end if m.pos < m.frame_end else m.n_bytes
    cdef const uint8_t* last = m.data + limit - LANE_BYTES
    cdef const uint8_t* q
    cdef int64_t* out = m.rows + 2 * m.n_rows
    cdef int64_t* end = m.rows + 2 * m.capacity
    if limit - m.pos < LANE_BYTES:
        return
    while p <= last and out < end:
        p = take_usual(p, min((last - p) // USUAL_BYTES + 1, (end - out) // 2), &out, &m.bits)
        if p > last or out == end:
            break
        q = lane_row(p, (out - m.rows) // 2 + 1, out)
        if q == NULL:
            break
        p = q
        m.bits |= <uint64_t>(out[0] | out[1])
        out += 2
    m.pending += (out - m.rows) // 2 - m.n_rows
    m.n_rows = (out - m.rows) // 2
    m.n_memo = m.n_rows + 1
    m.pos = p - m.data
