"""Which lines are certainly JSON: the Cython twin of `json_np`, in C, with AVX2 where the CPU has it."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "json_check.h" nogil:
    int fp_has_avx2()
    int fp_validate_rows(
        const uint8_t *data, int64_t n, const int64_t *rows, int64_t k, uint8_t *verdict, int simd
    )

cdef bint SIMD = fp_has_avx2()


def use_simd(bint wanted):
    """Let the AVX2 body run (where the CPU has it) or not; return whether it runs now. For tests."""
    global SIMD
    SIMD = wanted and fp_has_avx2()
    return SIMD


def validate_json_rows(const uint8_t[::1] data not None, const int64_t[:, ::1] rows not None,
                       uint8_t[::1] verdict not None):
    cdef int64_t n = data.shape[0]
    cdef int64_t k = rows.shape[0]
    cdef int are_inside
    cdef const uint8_t *first = &data[0] if n else <const uint8_t *> b""
    if rows.shape[1] != 2 or verdict.shape[0] != k:
        raise ValueError("rows must be [k, 2] and verdict [k]")
    if k == 0:
        return
    with nogil:
        are_inside = fp_validate_rows(first, n, &rows[0, 0], k, &verdict[0], SIMD)
    if not are_inside:
        raise ValueError(f"a row lies outside the {n} bytes of data")
