# Sparse files, for tar_cy: the start of the data after their maps.

cdef Fault take_sparse_header(Walk* w, const uint8_t* block, int64_t* data, int64_t* real_size) noexcept nogil:
    """Advance past the map of an old GNU sparse file, including the header before `data`."""
    cdef int64_t pos = data[0] - 512
    cdef bint extended = block[482] != 0
    cdef int i
    cdef Fault fault
    for i in range(8):
        fault = check_number(w, block, pos, 386 + 12 * i, 12)
        if fault != GOOD:
            return fault
    fault = take_size(w, block, pos, 483, real_size)
    while fault == GOOD and extended:
        pos = data[0]
        fault = take_block(w, pos, &block)
        if fault != GOOD:
            return fault
        for i in range(42):
            fault = check_number(w, block, pos, 12 * i, 12)
            if fault != GOOD:
                return fault
        extended = block[504] != 0
        data[0] = pos + 512
    return fault


cdef Fault skip_map(Walk* w, int64_t* data, int64_t end) noexcept nogil:
    """Advance past the map at the start of a PAX 1.0 sparse file: a count, twice as many numbers, one per line."""
    cdef int64_t pos = data[0], n_lines = 1, number = 0
    cdef int n_digits = 0
    cdef bint is_count = True
    cdef const uint8_t* block = NULL
    cdef uint8_t byte
    cdef Fault fault
    while n_lines:
        if not pos - data[0] & 511:
            if pos >= end:
                return refuse(w, SPARSE_MAP, pos, 0, NULL, 0)
            fault = take(w, pos, 512, &block)
            if fault != GOOD:
                return fault
        byte = block[pos - data[0] & 511]
        pos += 1
        if 0x30 <= byte <= 0x39 and n_digits < MAX_MAP_DIGITS:
            number, n_digits = 10 * number + (byte - 0x30), n_digits + 1
            continue
        if byte != 0x0A or n_digits == 0:
            return refuse(w, SPARSE_MAP, pos - 1, 0, block + (pos - 1 - data[0] & 511), 1)
        n_lines = 2 * number if is_count else n_lines - 1
        is_count, number, n_digits = False, 0, 0
    data[0] += padded(pos - data[0])
    return GOOD
