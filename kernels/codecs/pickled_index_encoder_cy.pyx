"""The `pickled_index_encoder` codec in Cython."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from "byte_order.h" nogil:
    uint64_t htole64(uint64_t)

cdef extern from "bits.h" nogil:
    int clzll "fp_clzll"(unsigned long long) noexcept

cdef enum:
    BATCH_ROWS = 1000
    FRAME_BYTES = 65536
    FRAME_HEADER_BYTES = 9
    FRAME_ROOM = FRAME_BYTES + 128
    MAX_INTS_BYTES = 22  # two integers of 10 bytes, TUPLE2, MEMOIZE


cdef inline uint8_t* put_int(uint8_t* p, int64_t number) noexcept nogil:
    """Write an integer at `p`, where 10 bytes are writable; return its end."""
    cdef uint64_t word
    cdef int wide, n_bytes
    if 0 <= number < (<int64_t>1 << 31):
        # Without branches, as the widths of lengths are random. Opcode 4b, 4d or 4a, then 1, 2 or 4 bytes.
        wide = (number > 0xFF) + (number > 0xFFFF)
        word = htole64((<uint64_t>number << 8) | ((0x4A4D4B >> (8 * wide)) & 0xFF))
        memcpy(p, &word, 8)
        return p + ((0x050302 >> (8 * wide)) & 0xFF)
    if -(<int64_t>1 << 31) <= number < 0:
        word = htole64((<uint64_t><uint32_t>number << 8) | 0x4A)
        memcpy(p, &word, 8)
        return p + 5
    n_bytes = (64 - clzll(<uint64_t>(number ^ (number >> 63)))) // 8 + 1
    p[0] = 0x8A
    p[1] = n_bytes
    word = htole64(<uint64_t>number)
    memcpy(p + 2, &word, 8)
    return p + 2 + n_bytes


# A length below 2^31, TUPLE2 and MEMOIZE, by the width of the length: 4b, 4d or 4a, then 1, 2 or 4 bytes.
cdef uint64_t[3] SHORT_LENGTH = [0x9486004B, 0x948600004D, 0x9486000000004A]
cdef uint8_t[3] SHORT_LENGTH_BYTES = [4, 5, 7]


cdef uint8_t* put_rows(uint8_t* p, const int64_t* row, int64_t n_rows) noexcept nogil:
    """Write rows without checking frames; 24 bytes are writable at the last one. Return the end."""
    cdef const int64_t* end = row + 2 * n_rows
    cdef uint64_t word, opcode, low, high
    cdef int wide, shift, n_bytes
    while row < end:
        # The offsets of a file keep their width for long: a loop per width takes 2.5 ns a row instead of 6.6.
        if row[0] < <int64_t>1 << 31:
            low, high, opcode, shift, n_bytes = 65536, <uint64_t>1 << 31, 0x4A, 8, 5
        elif row[0] < <int64_t>1 << 39:
            low, high, opcode, shift, n_bytes = <uint64_t>1 << 31, <uint64_t>1 << 39, 0x058A, 16, 7
        else:
            low, high, opcode, shift, n_bytes = <uint64_t>1 << 39, <uint64_t>1 << 47, 0x068A, 16, 8
        while row < end and <uint64_t>row[0] - low < high - low and <uint64_t>row[1] < <uint64_t>1 << 31:
            word = htole64(<uint64_t>row[0] << shift | opcode)
            memcpy(p, &word, 8)
            wide = (row[1] > 0xFF) + (row[1] > 0xFFFF)
            word = htole64(<uint64_t>row[1] << 8 | SHORT_LENGTH[wide])
            memcpy(p + n_bytes, &word, 8)
            p += n_bytes + SHORT_LENGTH_BYTES[wide]
            row += 2
        if row < end:
            p = put_int(put_int(p, row[0]), row[1])
            p[0] = 0x86
            p[1] = 0x94
            p += 2
            row += 2
    return p


cdef inline uint8_t* before_object(uint8_t* p, uint8_t** frame) noexcept nogil:
    """Close the frame if it is long enough, and reserve the header of the next one."""
    cdef int64_t length = p - frame[0] - FRAME_HEADER_BYTES
    cdef uint64_t word = htole64(<uint64_t>length)
    if length < FRAME_BYTES:
        return p
    frame[0][0] = 0x95
    memcpy(frame[0] + 1, &word, 8)
    frame[0] = p
    return p + FRAME_HEADER_BYTES


def encode_rows(const int64_t[:, ::1] rows not None, int64_t[::1] state not None, uint8_t[::1] out not None):
    """Append the rows of an index to a pickle; return how many were taken.

    See `fastpack.kernels.codecs.pickled_index_encoder_np.encode_rows`.
    """
    if rows.shape[1] != 2 or state.shape[0] != 3 or out.shape[0] < FRAME_ROOM + FRAME_BYTES:
        raise ValueError("encode_rows needs rows of 2, a state of 3 and room for two frames")
    cdef int64_t n_rows = state[0], frame_at = state[1], end_at = state[2]
    if not (0 <= n_rows and 0 <= frame_at <= end_at <= out.shape[0] - 64):
        raise ValueError("encode_rows: the state does not fit the buffer")
    cdef uint8_t* frame = &out[0] + frame_at
    cdef uint8_t* p = &out[0] + end_at
    cdef uint8_t* stop = &out[0] + out.shape[0] - FRAME_ROOM
    cdef const int64_t* row = &rows[0, 0] if rows.shape[0] else NULL
    cdef const int64_t* end = row + 2 * rows.shape[0]
    cdef int64_t n_sure
    with nogil:
        while row < end and frame <= stop:
            if n_rows % BATCH_ROWS == 0:
                p[0] = 0x28
                p += 1
            # So many rows fit in this frame and batch whatever their width, so that no check per row is needed.
            n_sure = (FRAME_BYTES - 1 - 10 - (p - frame - FRAME_HEADER_BYTES)) // MAX_INTS_BYTES
            n_sure = min(n_sure, BATCH_ROWS - n_rows % BATCH_ROWS, (end - row) // 2)
            if n_sure > 0:
                n_rows += n_sure
                p = put_rows(p, row, n_sure)
                row += 2 * n_sure
            else:
                p = before_object(p, &frame)
                p = before_object(put_int(p, row[0]), &frame)
                p = put_int(p, row[1])
                p[0] = 0x86
                p[1] = 0x94
                p += 2
                row += 2
                n_rows += 1
            if n_rows % BATCH_ROWS == 0:
                p[0] = 0x65
                p += 1
    state[0], state[1], state[2] = n_rows, frame - &out[0], p - &out[0]
    return (row - &rows[0, 0]) // 2 if rows.shape[0] else 0
