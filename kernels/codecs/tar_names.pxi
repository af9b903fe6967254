# Names of members, for tar_cy: ignored names, and the end of a key.

cdef inline int64_t rfind(const uint8_t* data, int64_t end, uint8_t byte) noexcept nogil:
    """Find the last `byte` in data[:end]; -1: there is none."""
    while end > 0:
        end -= 1
        if data[end] == byte:
            return end
    return -1


cdef inline int64_t find(const uint8_t* data, int64_t start, int64_t end, uint8_t byte) noexcept nogil:
    """Find the first `byte` in data[start:end]; -1: there is none."""
    cdef const uint8_t* place
    if start >= end:
        return -1
    place = <const uint8_t*>memchr(data + start, byte, end - start)
    return -1 if place == NULL else place - data


cdef bint is_ignored(Slice name) noexcept nogil:
    """Return whether the name starts with a component __x__; a line feed may follow it, as with Python's $."""
    cdef int64_t end
    if name.n_bytes < 4 or name.data[0] != 0x5F or name.data[1] != 0x5F:
        return False
    end = find(name.data, 2, name.n_bytes, 0x2F)
    if end < 0:
        end = name.n_bytes
        if ends_with_underscores(name.data, end):
            return True
        end -= name.data[end - 1] == 0x0A
    return ends_with_underscores(name.data, end)


cdef inline bint ends_with_underscores(const uint8_t* data, int64_t end) noexcept nogil:
    return end >= 4 and data[end - 1] == 0x5F and data[end - 2] == 0x5F


cdef int64_t key_bytes(Slice name) noexcept nogil:
    """Find the dot between key and field name; -1: the name has no such dot.

    It is the first dot after the last slash. Between the key's directories (up to any slash, but none after a line
    feed) and it there must be a nonempty text without a dot: "d/.x" has the key "d/", "d.e/.x" has none.
    """
    cdef int64_t slash = rfind(name.data, name.n_bytes, 0x2F)
    cdef int64_t dot = find(name.data, slash + 1, name.n_bytes, 0x2E)
    cdef int64_t dot_before, line_feed
    if dot <= 0:
        return -1
    dot_before = rfind(name.data, dot, 0x2E)
    if dot_before < 0:
        return dot
    line_feed = find(name.data, 0, dot - 1, 0x0A)
    if find(name.data, dot_before + 1, dot - 1 if line_feed < 0 else line_feed, 0x2F) >= 0:
        return dot
    return -1
