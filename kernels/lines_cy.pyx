"""The `lines` kernels in Cython and C, with AVX2 if the CPU has it."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "lines_simd.h" nogil:
    ctypedef struct fp_lines:
        int64_t base
        int64_t line_start
        int64_t *rows
        int64_t n_rows
        int64_t capacity

    int fp_has_avx2()
    int64_t fp_index_lines(const uint8_t *data, int64_t n, fp_lines *lines, int simd)
    int64_t fp_count_newlines(const uint8_t *data, int64_t n, int simd)

cdef bint SIMD = fp_has_avx2()


def use_simd(bint wanted):
    """Allow or forbid AVX2; return whether it is used now. For tests."""
    global SIMD
    SIMD = wanted and fp_has_avx2()
    return SIMD


def count_newlines(const uint8_t[::1] data not None):
    """Return the number of newlines in `data`, uint8 [n].

    See `fastpack.kernels.lines_np.count_newlines`.
    """
    cdef int64_t n = data.shape[0]
    cdef int64_t count = 0
    if n:
        with nogil:
            count = fp_count_newlines(&data[0], n, SIMD)
    return count


def index_lines(const uint8_t[::1] data not None, int64_t base, int64_t line_start, int64_t[:, ::1] out not None):
    """Write the position and length of each line that ends in a window of a file.

    See `fastpack.kernels.lines_np.index_lines`.
    """
    cdef int64_t n = data.shape[0]
    cdef int64_t consumed = 0
    cdef fp_lines lines
    if out.shape[1] != 2:
        raise ValueError("out must have two columns: offset and length")
    lines.base, lines.line_start, lines.n_rows, lines.capacity = base, line_start, 0, out.shape[0]
    if n and lines.capacity:
        lines.rows = &out[0, 0]
        with nogil:
            consumed = fp_index_lines(&data[0], n, &lines, SIMD)
    return lines.n_rows, consumed, lines.line_start
