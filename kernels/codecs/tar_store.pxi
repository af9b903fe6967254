# The outputs of a walk, for tar_cy.

cdef struct Store:
    int64_t* state
    int64_t* rows
    int64_t max_rows
    int64_t* samples
    int64_t max_samples
    uint8_t* text
    int64_t max_text
    uint8_t* parts
    int64_t max_part_bytes
    int64_t* part_ends
    int64_t max_parts


cdef int64_t part_number(Store* s, const uint8_t* part, int64_t n_bytes) noexcept nogil:
    """Find a field name in the table, starting after the last one found; -1: it is not in the table."""
    cdef int64_t n_parts = s.state[N_PARTS]
    cdef int64_t i = s.state[LAST_PART]
    cdef int64_t start, end, _
    for _ in range(n_parts):
        i = i + 1 if i + 1 < n_parts else 0
        start, end = s.part_ends[i - 1] if i else 0, s.part_ends[i]
        if (end - start == n_bytes and 0 <= start and end <= s.max_part_bytes
                and memcmp(s.parts + start, part, n_bytes) == 0):
            return i
    return -1


cdef bint keep(Store* s, Member* m) noexcept nogil:
    """Append a file's row if its name is `key.field`; False, without any change, if the outputs are full."""
    cdef int64_t n_key, n_part, part, start, end
    cdef int64_t* state = s.state
    cdef const uint8_t* part_name
    cdef bint is_new
    n_key = -1 if is_ignored(m.name) else key_bytes(m.name)
    if n_key < 0:
        return True
    part_name = m.name.data + n_key + 1
    n_part = m.name.n_bytes - n_key - 1
    part = part_number(s, part_name, n_part)
    start = s.part_ends[state[N_PARTS] - 1] if state[N_PARTS] else 0
    is_new = (state[KEY_END] - state[KEY_START] != n_key or state[KEY_END] < 0
              or memcmp(s.text + state[KEY_START], m.name.data, n_key) != 0)
    end = state[TEXT_END] + n_key
    if (state[N_ROWS] == s.max_rows
            or (part < 0 and (state[N_PARTS] == s.max_parts or start < 0 or n_part > s.max_part_bytes - start))
            or (is_new and (state[N_NEW] == s.max_samples or end > s.max_text))):
        return False
    if part < 0:
        part = state[N_PARTS]
        memcpy(s.parts + start, part_name, n_part)
        s.part_ends[part] = start + n_part
        state[N_PARTS] += 1
    if is_new:
        memcpy(s.text + state[TEXT_END], m.name.data, n_key)
        set_three(s.samples + 3 * state[N_NEW], m.start, state[TEXT_END], end)
        set_three(state + KEY_START, state[TEXT_END], end, end)
        state[N_NEW] += 1
        state[N_SAMPLES] += 1
    set_three(s.rows + 5 * state[N_ROWS], state[N_SAMPLES] - 1, part, m.data)
    s.rows[5 * state[N_ROWS] + 3], s.rows[5 * state[N_ROWS] + 4] = m.size, m.is_sparse
    state[LAST_PART] = part
    state[N_ROWS] += 1
    return True


cdef inline void set_three(int64_t* place, int64_t a, int64_t b, int64_t c) noexcept nogil:
    place[0], place[1], place[2] = a, b, c
