"""The `sample_parts` kernels in Cython."""

from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from "prefetch.h" nogil:
    void FP_PREFETCH(const void *address, int write) noexcept

cdef enum:
    OUTSIDE = -1  # status: a document outside [0, n)
    # Documents between the prefetch of a length and its use: memory latency otherwise dominates.
    AHEAD = 32


cdef struct Order:
    const int32_t *documents
    Py_ssize_t n_documents
    const int64_t *starts
    const int64_t *ends
    uint64_t n
    Py_ssize_t block


cdef int check(
    Py_ssize_t n_documents, Py_ssize_t n_starts, Py_ssize_t n_ends, Py_ssize_t block, Py_ssize_t n_blocks
) except -1:
    if block < 1 or n_starts != n_ends or n_blocks != (n_documents + block - 1) // block:
        raise ValueError("starts and ends must have one length, and every block of documents an end")
    return 0


cdef bint add_blocks(const Order *order, int64_t *out) noexcept nogil:
    """Write the ends of the blocks; return False for a document outside [0, n)."""
    cdef Py_ssize_t i, n_blocks = 0, until = order.block
    cdef int64_t end = 0
    cdef uint64_t document
    for i in range(order.n_documents):
        if i + AHEAD < order.n_documents:
            document = <uint64_t> order.documents[i + AHEAD]
            if document < order.n:
                FP_PREFETCH(order.starts + document, 0)
                FP_PREFETCH(order.ends + document, 0)
        if i == until:
            out[n_blocks] = end
            n_blocks += 1
            until += order.block
        document = <uint64_t> order.documents[i]
        if document >= order.n:
            return False
        end += order.ends[document] - order.starts[document]
    if order.n_documents:
        out[n_blocks] = end
    return True


def part_blocks(
    const int32_t[::1] documents not None,
    const int64_t[::1] starts not None,
    const int64_t[::1] ends not None,
    Py_ssize_t block,
    int64_t[::1] out not None,
):
    """Write the end of each block of `block` documents in the sequence of all documents, in tokens.

    See `fastpack.kernels.sample_parts_np.part_blocks`.
    """
    cdef Order order
    cdef bint good
    check(documents.shape[0], starts.shape[0], ends.shape[0], block, out.shape[0])
    if documents.shape[0] == 0:
        return
    order = Order(&documents[0], documents.shape[0], &starts[0], &ends[0], starts.shape[0], block)
    with nogil:
        good = add_blocks(&order, &out[0])
    if not good:
        raise ValueError("a document outside [0, n)")


cdef Py_ssize_t first_block(const int64_t *block_ends, Py_ssize_t n_blocks, int64_t target) noexcept nogil:
    """Return the number of the first block that ends at or after `target`."""
    cdef Py_ssize_t middle, low = 0, high = n_blocks
    while low < high:
        middle = (low + high) // 2
        if block_ends[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low


cdef Py_ssize_t add_parts(
    const Order *order, const int64_t *block_ends, Py_ssize_t n_blocks, int64_t position, int64_t length, int64_t extra,
    int64_t sample, int64_t *n_tokens, int64_t *out, Py_ssize_t n_out, Py_ssize_t n_parts
) noexcept nogil:
    """Write the parts of a sample as far as `out` has room; return the number of all parts, or OUTSIDE."""
    cdef Py_ssize_t i = 0
    cdef int64_t before = 0, left = length, size, taken, offset  # before: tokens before the document
    cdef uint64_t document
    cdef bint searching = position > 0
    if searching:
        i = first_block(block_ends, n_blocks, position + extra)
        before = block_ends[i - 1] if i else 0
        i *= order.block
    while i < order.n_documents:
        document = <uint64_t> order.documents[i]
        if document >= order.n:
            return OUTSIDE
        i += 1
        size = order.ends[document] - order.starts[document]
        if searching and before + size < position + extra:
            before += size
            continue
        searching = False
        offset = position - before
        before = position
        taken = min(size - offset, left)
        if n_parts < n_out:
            out[n_parts] = sample
            out[n_out + n_parts] = length - left
            out[2 * n_out + n_parts] = order.starts[document] + offset
            out[3 * n_out + n_parts] = taken
        n_parts += 1
        left -= taken
        if left <= 0:
            break
    n_tokens[0] = length - left
    return n_parts


def sample_parts(
    const int64_t[::1] positions not None,
    int64_t length,
    int64_t extra,
    const int32_t[::1] documents not None,
    const int64_t[::1] starts not None,
    const int64_t[::1] ends not None,
    Py_ssize_t block,
    const int64_t[::1] block_ends not None,
    int64_t[::1] sizes not None,
    int64_t[:, ::1] out not None,
):
    """Write the parts of documents that samples consist of, and return their number.

    See `fastpack.kernels.sample_parts_np.sample_parts`.
    """
    cdef Order order
    cdef Py_ssize_t k, n_parts = 0
    check(documents.shape[0], starts.shape[0], ends.shape[0], block, block_ends.shape[0])
    if sizes.shape[0] != positions.shape[0] or out.shape[0] != 4:
        raise ValueError("sizes must be as long as positions, and out have 4 rows")
    if documents.shape[0] == 0:
        sizes[:] = 0
        return 0
    order = Order(&documents[0], documents.shape[0], &starts[0], &ends[0], starts.shape[0], block)
    with nogil:
        for k in range(positions.shape[0]):
            n_parts = add_parts(
                &order, &block_ends[0], block_ends.shape[0], positions[k], length, extra, k, &sizes[k],
                &out[0, 0] if out.shape[1] else NULL, out.shape[1], n_parts
            )
            if n_parts == OUTSIDE:
                break
    if n_parts == OUTSIDE:
        raise ValueError("a document outside [0, n)")
    return n_parts
