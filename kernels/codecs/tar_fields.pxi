# The fields of a tar header block, for tar_cy: numbers and sums.

cdef struct Slice:
    const uint8_t* data
    int64_t n_bytes  # -1: missing


cdef inline uint64_t load64(const uint8_t* p) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, p, 8)
    return le64toh(word)


cdef inline uint32_t load32(const uint8_t* p) noexcept nogil:
    cdef uint32_t word
    memcpy(&word, p, 4)
    return le32toh(word)


cdef inline Slice text_of(const uint8_t* field, int64_t n_bytes) noexcept nogil:
    """Cut the field at its first NUL."""
    cdef Slice text
    cdef const uint8_t* end = <const uint8_t*>memchr(field, 0, n_bytes)
    text.data = field
    text.n_bytes = n_bytes if end == NULL else end - field
    return text


cdef inline bint is_plain(const uint8_t* p, Py_ssize_t n_bytes) noexcept nogil:
    """Return whether a field of 8 or 12 bytes is empty, or octal digits and a NUL or a space, as usual."""
    cdef uint64_t last = load64(p + n_bytes - 8)
    if p[0] == 0:
        return True
    if n_bytes == 12 and (load32(p) & 0xF8F8F8F8u) != 0x30303030u:
        return False
    return (last & 0xDFF8F8F8F8F8F8F8ull) == 0x0030303030303030ull


cdef inline bint is_space(uint8_t byte) noexcept nogil:
    return byte == 32 or 9 <= byte <= 13


cdef bint take_number(const uint8_t* field, Py_ssize_t n_bytes, int64_t* number) noexcept nogil:
    """Read an octal or base-256 number (-1 if negative or beyond 63 bits); return False if it is not a number."""
    cdef Py_ssize_t i
    cdef Slice text
    cdef uint64_t value = 0
    if field[0] == 0x80 or field[0] == 0xFF:
        number[0] = -1
        for i in range(1, n_bytes):
            if value >> 55:
                return True
            value = value << 8 | field[i]
        if field[0] == 0x80:
            number[0] = <int64_t>value
        return True
    text = text_of(field, n_bytes)
    while text.n_bytes and is_space(text.data[0]):
        text.data += 1
        text.n_bytes -= 1
    while text.n_bytes and is_space(text.data[text.n_bytes - 1]):
        text.n_bytes -= 1
    for i in range(text.n_bytes):
        if text.data[i] & 0xF8 != 0x30:
            return False
        value = value << 3 | text.data[i] & 7
    number[0] = <int64_t>value
    return True


cdef inline int64_t sum_of(const uint8_t* block) noexcept nogil:
    """Sum 512 bytes, eight at a time in 16-bit lanes, which 64 bytes cannot overflow."""
    cdef uint64_t even = 0, odd = 0, word, lanes
    cdef int i
    for i in range(64):
        memcpy(&word, block + 8 * i, 8)
        even += word & 0x00FF00FF00FF00FFull
        odd += word >> 8 & 0x00FF00FF00FF00FFull
    lanes = even + odd
    return (lanes & 0xFFFF) + (lanes >> 16 & 0xFFFF) + (lanes >> 32 & 0xFFFF) + (lanes >> 48)


cdef inline int64_t sum_without_checksum(const uint8_t* block, int64_t total) noexcept nogil:
    """Sum the block as if its checksum field were spaces, of the `total` of all bytes."""
    cdef int i
    for i in range(148, 156):
        total -= block[i]
    return total + 256


cdef int64_t n_high_bytes(const uint8_t* block) noexcept nogil:
    """Count the bytes above 127 outside the checksum field: old writers summed them as negative."""
    cdef int64_t count = 0
    cdef int i
    for i in range(512):
        count += block[i] >> 7 if i < 148 or i >= 156 else 0
    return count


cdef inline int64_t padded(int64_t n_bytes) noexcept nogil:
    return (n_bytes + 511) & ~<int64_t>511
