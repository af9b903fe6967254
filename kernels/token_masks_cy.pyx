"""The `token_masks` kernel in Cython."""

include "dtypes.pxi"


cdef struct Rules:
    const int64_t *rows
    Py_ssize_t n
    Py_ssize_t n_rows
    Py_ssize_t length
    int64_t padding
    int64_t eod
    bint mask_eod


cdef bint mask(
    const Rules *rules, wide_t *tokens, wide_t *labels, float *loss_mask, wide_t *position_ids
) noexcept nogil:
    """Return False for a row outside the outputs."""
    cdef Py_ssize_t i, k, start, opened
    cdef int64_t padding = rules.padding, eod = rules.eod
    cdef bint good, mask_eod = rules.mask_eod
    for k in range(rules.n):
        if rules.rows[k] < 0 or rules.rows[k] >= rules.n_rows:
            return False
        start = rules.rows[k] * rules.length
        if position_ids != NULL:
            opened = start
            for i in range(start, start + rules.length):
                position_ids[i] = <wide_t> (i - opened)
                if tokens[i] == eod:
                    opened = i + 1
        for i in range(start, start + rules.length):
            good = (labels[i] != padding) & (not (mask_eod & (tokens[i] == eod)))
            loss_mask[i] = <float> good
            tokens[i] = 0 if tokens[i] == padding else tokens[i]
            labels[i] = 0 if labels[i] == padding else labels[i]
    return True


def mask_tokens(
    const int64_t[::1] rows not None,
    int64_t padding,
    int64_t eod,
    bint mask_eod,
    tokens not None,
    labels not None,
    float[:, ::1] loss_mask not None,
    position_ids,
):
    """Write the loss mask of some rows, 0 or 1, and their position_ids; replace padding in tokens and labels by 0.

    See `fastpack.kernels.token_masks_np.mask_tokens`.
    """
    cdef int32_t[:, ::1] tokens_32, labels_32, position_ids_32 = None
    cdef int64_t[:, ::1] tokens_64, labels_64, position_ids_64 = None
    cdef bint good
    cdef Rules rules
    shape = (loss_mask.shape[0], loss_mask.shape[1])
    if tokens.shape != shape or labels.shape != shape or (position_ids is not None and position_ids.shape != shape):
        raise ValueError("outputs must have one shape")
    if rows.shape[0] == 0 or loss_mask.shape[0] == 0 or loss_mask.shape[1] == 0:
        if rows.shape[0] and loss_mask.shape[0] == 0:
            raise ValueError("a row outside the outputs")
        return
    rules = Rules(&rows[0], rows.shape[0], loss_mask.shape[0], loss_mask.shape[1], padding, eod, mask_eod)
    if type_code_of(tokens) == INT32:
        tokens_32, labels_32, position_ids_32 = tokens, labels, position_ids
        with nogil:
            good = mask(
                &rules, &tokens_32[0, 0], &labels_32[0, 0], &loss_mask[0, 0],
                NULL if position_ids_32 is None else &position_ids_32[0, 0]
            )
    else:
        tokens_64, labels_64, position_ids_64 = tokens, labels, position_ids
        with nogil:
            good = mask(
                &rules, &tokens_64[0, 0], &labels_64[0, 0], &loss_mask[0, 0],
                NULL if position_ids_64 is None else &position_ids_64[0, 0]
            )
    if not good:
        raise ValueError("a row outside the outputs")
