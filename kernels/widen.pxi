# Widening of tokens to the type of the outputs. Include "dtypes.pxi" first.

cdef inline uint32_t widen(const token_t *tokens, Py_ssize_t n, wide_t *out) noexcept nogil:
    """Copy into the output's type; the top bit of the result is set if a token does not fit."""
    cdef Py_ssize_t i
    cdef uint32_t bits = 0
    for i in range(n):
        out[i] = <wide_t> tokens[i]
        if token_t is uint32_t and wide_t is int32_t:
            bits |= tokens[i]
        elif token_t is int64_t and wide_t is int32_t:
            bits |= <uint32_t> (<int64_t> out[i] != tokens[i]) << 31
    return bits
