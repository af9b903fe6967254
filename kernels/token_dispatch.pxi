# Dispatch by token dtype: the including module defines `struct Task` and `int run(const token_t *tokens, Task *task)`.

cdef enum:
    UNKNOWN_TOKENS = -1  # no kernel for the dtype


cdef int run_typed(int code, const void *tokens, Task *task) noexcept nogil:
    """Return the result of `run` for tokens of this type code; UNKNOWN_TOKENS for an unsupported one."""
    if code == UINT8:
        return run(<const uint8_t *> tokens, task)
    if code == UINT16:
        return run(<const uint16_t *> tokens, task)
    if code == UINT32:
        return run(<const uint32_t *> tokens, task)
    if code == INT8:
        return run(<const int8_t *> tokens, task)
    if code == INT16:
        return run(<const int16_t *> tokens, task)
    if code == INT32:
        return run(<const int32_t *> tokens, task)
    if code == INT64:
        return run(<const int64_t *> tokens, task)
    return UNKNOWN_TOKENS
