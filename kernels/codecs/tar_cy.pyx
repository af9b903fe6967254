"""The `tar` codec in Cython: the same rules, with a fast path through usual header blocks."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from fastpack.kernels.codecs.tar_errors import syntax_error


cdef extern from "byte_order.h" nogil:
    uint32_t le32toh(uint32_t)
    uint64_t le64toh(uint64_t)

include "tar_constants.pxi"

cdef enum:
    SHOWN_BYTES = 25  # of data in an error

cdef enum:  # kinds of extended headers
    SEEN_LONG_NAME = 1
    SEEN_LONG_LINK = 2
    SEEN_RECORDS = 4

# Fields of a header block that hold numbers: where each starts, and its length.
cdef int* NUMBERS = [100, 108, 116, 136, 329, 337]
cdef int* N_NUMBER_BYTES = [8, 8, 8, 12, 8, 8]


include "tar_fields.pxi"
include "tar_names.pxi"


cdef struct Group:  # what the extended headers before a member's own header say about it
    int64_t start
    int seen
    Slice name
    int64_t size  # -1: unknown; likewise real_size
    int64_t real_size
    bint is_sparse
    bint has_map_in_data

cdef struct Member:
    Slice name
    bint is_file
    bint is_sparse
    int64_t start
    int64_t data
    int64_t size
    int64_t end

cdef struct Walk:
    const uint8_t* window
    int64_t base
    int64_t n_window
    int64_t n_file
    int64_t start  # of the member's first header
    int64_t wanted
    int64_t at  # offset, number and bytes of a fault
    int64_t number
    Slice found
    uint8_t joined[256]  # a prefix, a slash, a name

include "tar_records.pxi"


cdef inline Fault refuse(Walk* w, Fault fault, int64_t at, int64_t number, const uint8_t* found,
                         int64_t n_found) noexcept nogil:
    w.at, w.number = at, number
    w.found.data, w.found.n_bytes = found, min(n_found, SHOWN_BYTES)
    return fault


cdef inline Fault take(Walk* w, int64_t pos, int64_t n_bytes, const uint8_t** content) noexcept nogil:
    """Return a pointer to bytes of a header; the file contains them all."""
    if pos + n_bytes - w.start > MAX_GROUP_BYTES:
        return refuse(w, LONG_GROUP, w.start, MAX_GROUP_BYTES, NULL, 0)
    if pos + n_bytes - w.base > w.n_window:
        w.wanted = pos + n_bytes - w.start
        return WINDOW
    content[0] = w.window + (pos - w.base)
    return GOOD


cdef inline Fault take_block(Walk* w, int64_t pos, const uint8_t** block) noexcept nogil:
    if pos + 512 > w.n_file:
        return refuse(w, SHORT_HEADER, pos, w.n_file - pos, NULL, 0)
    return take(w, pos, 512, block)


cdef inline Fault take_size(Walk* w, const uint8_t* block, int64_t pos, int at, int64_t* size) noexcept nogil:
    if not take_number(block + at, 12, size):
        return refuse(w, NUMBER, pos + at, 0, block + at, 12)
    return GOOD if size[0] >= 0 else refuse(w, SIZE, pos + at, 0, block + at, 12)


cdef inline Fault check_number(Walk* w, const uint8_t* block, int64_t pos, int at, int n_bytes) noexcept nogil:
    cdef int64_t number
    if is_plain(block + at, n_bytes) or take_number(block + at, n_bytes, &number):
        return GOOD
    return refuse(w, NUMBER, pos + at, 0, block + at, n_bytes)


cdef Fault check_header(Walk* w, const uint8_t* block, int64_t pos, int64_t total, int64_t* size) noexcept nogil:
    """Check the header's sum and numbers; its bytes sum to `total`."""
    cdef int64_t stated, wanted
    cdef Fault fault = GOOD
    cdef int i
    if not take_number(block + 148, 8, &stated):
        return refuse(w, NUMBER, pos + 148, 0, block + 148, 8)
    wanted = sum_without_checksum(block, total)
    if stated != wanted and (stated < 0 or stated != wanted - 256 * n_high_bytes(block)):
        return refuse(w, CHECKSUM, pos, wanted, block + 148, 8)
    for i in range(6):
        fault = check_number(w, block, pos, NUMBERS[i], N_NUMBER_BYTES[i])
        if fault != GOOD:
            return fault
        if i == 2:  # the size is the next field
            fault = take_size(w, block, pos, 124, size)
            if fault != GOOD:
                return fault
    return GOOD


cdef Fault take_records(Walk* w, Group* group, const uint8_t* content, int64_t size, int64_t data,
                        bint in_global) noexcept nogil:
    """Process the PAX records in `size` bytes of content, at offset `data` of the file."""
    cdef Records records
    cdef Slice keyword, value
    cdef int64_t at = 0
    cdef int rank = 0
    cdef Fault fault
    memset(&records, 0, sizeof(Records))
    records.size = records.major.n_bytes = records.minor.n_bytes = -1
    while at < size and content[at] != 0:
        if not take_record(content + at, size - at, &keyword, &value):
            return refuse(w, RECORD, data + at, 0, content + at, size - at)
        if in_global and is_global(keyword):
            return refuse(w, GLOBAL_RECORD, data + at, 0, keyword.data, keyword.n_bytes)
        rank += 1
        fault = apply_record(&records, keyword, value, rank)
        if fault != GOOD:
            return refuse(w, fault, data + (value.data - content), value.n_bytes, value.data, value.n_bytes)
        at = value.data - content + value.n_bytes + 1
    if at == size and size & 511 and content[size] != 0:
        return refuse(w, PADDING, data + size, 0, content + size, padded(size) - size)
    if not in_global:
        conclude(group, &records)
    return GOOD


cdef Fault take_long_name(Walk* w, Group* group, const uint8_t* content, int64_t size, int64_t data,
                          bint is_link) noexcept nogil:
    cdef Slice name = text_of(content, padded(size))
    if name.n_bytes > size:
        return refuse(w, PADDING, data + size, 0, content + size, name.n_bytes - size)
    if not is_link and group.name.n_bytes < 0:
        group.name = name
    return GOOD


cdef Fault take_extension(Walk* w, Group* group, const uint8_t* block, int64_t* pos, int64_t size) noexcept nogil:
    """Process an extended header, and advance past it."""
    cdef uint8_t kind = block[156]
    cdef int64_t data = pos[0] + 512
    cdef bint is_name = kind == 0x4C or kind == 0x4B
    cdef const uint8_t* content
    cdef Fault fault
    cdef int seen = SEEN_LONG_NAME if kind == 0x4C else SEEN_LONG_LINK if is_name else SEEN_RECORDS
    if kind != 0x67:
        if group.seen & seen:
            return refuse(w, TWICE, pos[0] + 156, 0, block + 156, 1)
        group.seen |= seen
        group.start = pos[0] if group.start < 0 else group.start
    if size > (MAX_NAME_BYTES if is_name else MAX_RECORDS_BYTES):
        return refuse(w, LONG_NAME if is_name else LONG_RECORDS, pos[0] + 124, size, NULL, 0)
    if padded(size) > w.n_file - data:
        return refuse(w, DATA_END, data, w.n_file - data, NULL, 0)
    fault = take(w, data, padded(size), &content)
    if fault != GOOD:
        return fault
    pos[0] = data + padded(size)
    if is_name:
        return take_long_name(w, group, content, size, data, kind == 0x4B)
    return take_records(w, group, content, size, data, kind == 0x67)


include "tar_sparse.pxi"


cdef Slice full_name(Walk* w, const uint8_t* block, Slice name) noexcept nogil:
    cdef Slice prefix = text_of(block + 345, 155)
    if block[156] == 0x53 or prefix.n_bytes == 0:
        return name
    memcpy(w.joined, prefix.data, prefix.n_bytes)
    w.joined[prefix.n_bytes] = 0x2F
    memcpy(w.joined + prefix.n_bytes + 1, name.data, name.n_bytes)
    prefix.data, prefix.n_bytes = w.joined, prefix.n_bytes + 1 + name.n_bytes
    return prefix


cdef Fault take_member(Walk* w, Group* group, const uint8_t* block, int64_t pos, int64_t size, int64_t n_before,
                       int64_t max_members, Member* m) noexcept nogil:
    cdef uint8_t kind = block[156]
    cdef Slice name = text_of(block, 100)
    cdef int64_t packed, header_size
    cdef Fault fault
    if kind == 0 and name.n_bytes and name.data[name.n_bytes - 1] == 0x2F:
        kind = 0x35  # V7 knows directories by their names
    m.name = group.name if group.name.n_bytes >= 0 else full_name(w, block, name)
    m.data = pos + 512
    if kind == 0x53:
        fault = take_sparse_header(w, block, &m.data, &header_size)
        if fault != GOOD:
            return fault
        if group.real_size < 0:
            group.real_size = header_size
    if group.real_size >= 0 and kind != 0x53 and not group.is_sparse:
        return refuse(w, REAL_SIZE, pos, 0, NULL, 0)
    if group.size >= 0:
        if group.real_size >= 0 or group.has_map_in_data:
            return refuse(w, SPARSE_SIZE, pos, 0, NULL, 0)
        size = group.size
    packed = 0 if 0x31 <= kind <= 0x36 else size  # links, devices, directories, pipes: their size field is ignored
    if packed > w.n_file - m.data or padded(packed) > w.n_file - m.data:
        return refuse(w, DATA_END, m.data, w.n_file - m.data, NULL, 0)
    m.end = m.data + padded(packed)
    if group.has_map_in_data:
        fault = skip_map(w, &m.data, m.data + packed)
        if fault != GOOD:
            return fault
    if n_before >= max_members:
        return refuse(w, MEMBERS, w.start, n_before, NULL, 0)
    m.is_sparse = group.is_sparse or kind == 0x53
    m.is_file = kind == 0x30 or kind == 0 or kind == 0x37 or kind == 0x53
    m.start = pos if group.start < 0 else group.start
    m.size = size if group.real_size < 0 else group.real_size
    return GOOD


cdef Fault next_member(Walk* w, int64_t pos, int64_t n_before, int64_t max_members, Member* m) noexcept nogil:
    """Read the headers of the member at `pos`; END at the end of the archive."""
    cdef Group group
    cdef const uint8_t* block
    cdef int64_t total, size
    cdef Fault fault
    memset(&group, 0, sizeof(Group))
    group.start = group.name.n_bytes = group.size = group.real_size = -1
    w.start = pos
    while True:
        if pos == w.n_file and group.start < 0:
            return END
        fault = take_block(w, pos, &block)
        if fault != GOOD:
            return fault
        total = sum_of(block)
        if total == 0:
            return refuse(w, ORPHAN, pos, 0, NULL, 0) if group.start >= 0 else END
        fault = check_header(w, block, pos, total, &size)
        if fault == GOOD:
            if block[156] not in (0x4C, 0x4B, 0x78, 0x58, 0x67):
                return take_member(w, &group, block, pos, size, n_before, max_members, m)
            fault = take_extension(w, &group, block, &pos, size)
        if fault != GOOD:
            return fault
        if group.start < 0:  # global records belong to no member
            w.start = pos


include "tar_store.pxi"


cdef Fault run(Walk* w, Store* s) noexcept nogil:
    cdef Member m
    cdef int64_t* state = s.state
    cdef Fault fault
    while True:
        fault = next_member(w, state[POSITION], state[N_MEMBERS], state[MAX_MEMBERS], &m)
        state[POSITION] = w.start
        if fault != GOOD:
            return fault
        if m.is_file and not keep(s, &m):
            return FULL
        state[N_MEMBERS] += 1
        state[POSITION] = m.end


cdef int check_store(const uint8_t[::1] window, int64_t base, int64_t n_file_bytes, const int64_t* state,
                     int64_t[:, ::1] rows, int64_t[:, ::1] samples, uint8_t[::1] text, uint8_t[::1] parts,
                     int64_t[::1] part_ends) except -1:
    """Raise ValueError for arrays and counts with which the walk would read or write out of bounds."""
    if not (rows.shape[0] and samples.shape[0] and part_ends.shape[0] and text.shape[0] and parts.shape[0]):
        raise ValueError("the outputs have no capacity for a row")
    if not (0 <= base <= state[POSITION] <= n_file_bytes and window.shape[0] <= n_file_bytes - base):
        raise ValueError("the window does not fit the file or starts after the position")
    if not (0 <= state[N_ROWS] <= rows.shape[0] and 0 <= state[N_NEW] <= samples.shape[0]
            and 0 <= state[N_PARTS] <= part_ends.shape[0] and 0 <= state[TEXT_END] <= text.shape[0]
            and -1 <= state[KEY_END] <= text.shape[0] and 0 <= state[KEY_START]
            and state[KEY_START] <= max(state[KEY_END], 0) and 0 <= state[LAST_PART] <= part_ends.shape[0]
            and (state[N_PARTS] == 0 or 0 <= part_ends[state[N_PARTS] - 1] <= parts.shape[0])):
        raise ValueError("the state does not fit the arrays")
    return 0


def walk_tar(const uint8_t[::1] window not None, int64_t base, int64_t n_file_bytes, int64_t[::1] state not None,
             int64_t[:, ::1] rows not None, int64_t[:, ::1] samples not None, uint8_t[::1] text not None,
             uint8_t[::1] parts not None, int64_t[::1] part_ends not None):
    """Walk the members of a tar from state[POSITION] on; return why the walk stopped, an `Outcome`.

    See `fastpack.kernels.codecs.tar_np.walk_tar`.
    """
    cdef Walk w
    cdef Store s
    cdef Fault fault
    cdef int64_t[N_STATE] own  # a checked copy, which cannot change during the walk
    if rows.shape[1] != 5 or samples.shape[1] != 3 or state.shape[0] != N_STATE:
        raise ValueError("rows must have 5 columns, samples 3, and the state 12 entries")
    memcpy(own, &state[0], sizeof(own))
    check_store(window, base, n_file_bytes, own, rows, samples, text, parts, part_ends)
    memset(&w, 0, sizeof(Walk))
    w.window = &window[0] if window.shape[0] else NULL
    w.base, w.n_window, w.n_file = base, window.shape[0], n_file_bytes
    s.state, s.rows, s.samples, s.part_ends = own, &rows[0, 0], &samples[0, 0], &part_ends[0]
    s.text, s.parts = &text[0], &parts[0]
    s.max_rows, s.max_samples, s.max_parts = rows.shape[0], samples.shape[0], part_ends.shape[0]
    s.max_text, s.max_part_bytes = text.shape[0], parts.shape[0]
    with nogil:
        fault = run(&w, &s)
    if fault == WINDOW:
        own[WANTED] = w.wanted
    memcpy(&state[0], own, sizeof(own))
    if fault <= GOOD:
        return 0 if fault == END else 1 if fault == WINDOW else 2
    raise syntax_error(fault, w.at, w.number, w.found.data[:w.found.n_bytes] if w.found.n_bytes else b"")
