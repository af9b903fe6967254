# Search for EOS in blocks of tokens. Include "dtypes.pxi" first.

cdef enum:
    BLOCK = 128  # tokens tested for EOS at once


cdef inline bint has(const token_t *tokens, Py_ssize_t n, token_t eos) noexcept nogil:
    # The accumulator is as narrow as the tokens: a wider one would halve the vector width.
    cdef Py_ssize_t i
    cdef token_t hit = 0
    for i in range(n):
        hit |= <token_t> (tokens[i] == eos)
    return hit != 0
