"""The `json` codec in Cython and C, with AVX2 if the CPU has it."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "json_check.h" nogil:
    int fp_has_avx2()
    int fp_validate_rows(
        const uint8_t *data, int64_t n, const int64_t *rows, int64_t k, uint8_t *verdict, int simd
    )

cdef bint SIMD = fp_has_avx2()


def use_simd(bint wanted):
    """Allow or forbid AVX2; return whether it is used now. For tests."""
    global SIMD
    SIMD = wanted and fp_has_avx2()
    return SIMD


def validate_json_rows(const uint8_t[::1] data not None, const int64_t[:, ::1] rows not None,
                       uint8_t[::1] verdict not None):
    """Write 1 for each line that `json.loads(bytes)` certainly accepts, 0 for lines that it must decide.

    See `fastpack.kernels.codecs.json_np.validate_json_rows`.
    """
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
