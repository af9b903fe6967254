# PAX records, for tar_cy.

cdef struct Records:
    Slice name
    Slice major
    Slice minor
    int name_rank  # by first appearance: of two names, and of two real sizes, the later one counts
    int path_rank
    int real_rank
    int size_rank
    int64_t real_size  # -1: none
    int64_t sparse_size
    int64_t size
    Slice path
    bint has_map


cdef inline bint is_keyword(Slice keyword, const char* wanted, int64_t n_bytes) noexcept nogil:
    return keyword.n_bytes == n_bytes and memcmp(keyword.data, wanted, n_bytes) == 0


cdef bint take_decimal(Slice value, int64_t* number) noexcept nogil:
    """Read up to 19 digits that fit 63 bits; False: they do not."""
    cdef int64_t i
    cdef uint64_t total = 0
    if value.n_bytes < 1 or value.n_bytes > 19:
        return False
    for i in range(value.n_bytes):
        if value.data[i] < 0x30 or value.data[i] > 0x39:
            return False
        total = total * 10 + (value.data[i] - 0x30)
    number[0] = <int64_t>total
    return total >> 63 == 0


cdef bint are_numbers(Slice value) noexcept nogil:
    """Return whether the value is digits separated by commas."""
    cdef int64_t i
    cdef bint in_number = False
    for i in range(value.n_bytes):
        if 0x30 <= value.data[i] <= 0x39:
            in_number = True
        elif value.data[i] == 0x2C and in_number:
            in_number = False
        else:
            return False
    return in_number


cdef bint take_record(const uint8_t* content, int64_t n_bytes, Slice* keyword, Slice* value) noexcept nogil:
    """Split the record at the start of `content`; its length includes the line feed after the value."""
    cdef int64_t i = 0, length = 0, equals
    while i < n_bytes and i < 20 and 0x30 <= content[i] <= 0x39:
        if length <= n_bytes:
            length = length * 10 + (content[i] - 0x30)
        i += 1
    if i == 0 or i == n_bytes or content[i] != 0x20 or length > n_bytes or length <= i + 1:
        return False
    equals = find(content, i + 1, length - 1, 0x3D)
    if equals <= i + 1 or content[length - 1] != 0x0A:
        return False
    keyword.data, keyword.n_bytes = content + i + 1, equals - i - 1
    value.data, value.n_bytes = content + equals + 1, length - 2 - equals
    return True


cdef Fault apply_record(Records* records, Slice keyword, Slice value, int rank) noexcept nogil:
    """Store a record; the rank is its number among the member's records, from 1."""
    cdef int64_t number = 0
    cdef bint is_sparse = keyword.n_bytes > 11 and memcmp(keyword.data, b"GNU.sparse.", 11) == 0
    if is_keyword(keyword, b"path", 4) or (is_sparse and is_keyword(keyword, b"GNU.sparse.name", 15)):
        if value.n_bytes > MAX_NAME_BYTES:
            return LONG_NAME
        if is_sparse:
            records.name, records.name_rank = value, records.name_rank or rank
        else:
            records.path, records.path_rank = value, records.path_rank or rank
    elif is_keyword(keyword, b"size", 4):
        return GOOD if take_decimal(value, &records.size) else RECORD_NUMBER
    elif is_sparse:
        return apply_sparse_record(records, keyword, value, rank)
    return GOOD


cdef Fault apply_sparse_record(Records* records, Slice keyword, Slice value, int rank) noexcept nogil:
    if is_keyword(keyword, b"GNU.sparse.realsize", 19):
        records.real_rank = records.real_rank or rank
        return GOOD if take_decimal(value, &records.real_size) else RECORD_NUMBER
    if is_keyword(keyword, b"GNU.sparse.size", 15):
        records.size_rank = records.size_rank or rank
        return GOOD if take_decimal(value, &records.sparse_size) else RECORD_NUMBER
    if is_keyword(keyword, b"GNU.sparse.major", 16):
        records.major = value
    elif is_keyword(keyword, b"GNU.sparse.minor", 16):
        records.minor = value
    elif is_keyword(keyword, b"GNU.sparse.map", 14):
        records.has_map = True
        return GOOD if are_numbers(value) else RECORD_NUMBER
    elif is_keyword(keyword, b"GNU.sparse.offset", 17) or is_keyword(keyword, b"GNU.sparse.numbytes", 19):
        return GOOD if are_numbers(value) else RECORD_NUMBER
    return GOOD


cdef bint is_global(Slice keyword) noexcept nogil:
    """Return whether a record may only occur in the header of a single member."""
    return (is_keyword(keyword, b"path", 4) or is_keyword(keyword, b"size", 4)
            or (keyword.n_bytes >= 11 and memcmp(keyword.data, b"GNU.sparse.", 11) == 0))


cdef void conclude(Group* group, Records* records) noexcept nogil:
    """Apply all records to the member."""
    cdef Slice path = records.path
    cdef bint is_older = records.has_map or records.size_rank > 0
    if group.name.n_bytes < 0 and (records.path_rank or records.name_rank):
        while path.n_bytes > 0 and path.data[path.n_bytes - 1] == 0x2F:
            path.n_bytes -= 1
        group.name = path if records.path_rank > records.name_rank else records.name
    if records.size >= 0:
        group.size = records.size
    if records.real_rank or records.size_rank:
        group.real_size = records.real_size if records.real_rank > records.size_rank else records.sparse_size
    group.is_sparse = is_older
    group.has_map_in_data = not is_older and is_keyword(records.major, b"1", 1) and is_keyword(records.minor, b"0", 1)
    group.is_sparse |= group.has_map_in_data
