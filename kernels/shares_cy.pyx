"""The `shares` kernels in Cython."""

from libc.math cimport INFINITY, rint
from libc.stdint cimport int64_t, uint64_t

cdef uint64_t NODE = <uint64_t> 1 << 63
cdef uint64_t LAST = ~<uint64_t> 0
cdef enum:
    GOOD
    BAD_SIDE
    BAD_SHARE


cdef inline uint64_t splitmix(uint64_t value) noexcept nogil:
    value += <uint64_t> 0x9E3779B97F4A7C15u
    value = (value ^ (value >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9u
    value = (value ^ (value >> 27)) * <uint64_t> 0x94D049BB133111EBu
    return value ^ (value >> 31)


cdef Py_ssize_t take_smallest(double *sums, Py_ssize_t n, double *smallest) noexcept nogil:
    """Return the number of the smallest sum of the first n, and mark it as taken; -1 if there is none."""
    cdef Py_ssize_t i, found = -1
    smallest[0] = INFINITY
    for i in range(n):
        if 0 < sums[i] < smallest[0]:
            found = i
            smallest[0] = sums[i]
    if found >= 0:
        sums[found] = -1
    return found


cdef inline uint64_t side_of(const int64_t *sources, Py_ssize_t k, Py_ssize_t i) noexcept nogil:
    return <uint64_t> sources[i] if i < k else NODE + <uint64_t> (i - k)


def share_tree(
    const int64_t[::1] sources not None, double[::1] sums not None, uint64_t key, uint64_t[:, ::1] tree not None
):
    """Write the tree of k shares.

    See `fastpack.kernels.shares_np.share_tree`.
    """
    cdef Py_ssize_t row, few, many = -1, k = sources.shape[0]
    cdef double small, large, units
    if not k or sums.shape[0] != 2 * k - 1 or tree.shape[0] != k or tree.shape[1] != 4:
        raise ValueError("k sources need 2 k - 1 sums and a tree [k, 4]")
    with nogil:
        for row in range(k - 1):
            few = take_smallest(&sums[0], k + row, &small)
            many = take_smallest(&sums[0], k + row, &large)
            if few < 0 or many < 0:
                break
            units = rint(small / (small + large) * 18446744073709551616.0)
            tree[row, 0] = <uint64_t> min(9223372036854775808.0, max(2.0, units))
            tree[row, 1] = splitmix(key ^ <uint64_t> (k + row))
            tree[row, 2] = side_of(&sources[0], k, few)
            tree[row, 3] = side_of(&sources[0], k, many)
            sums[k + row] = small + large
        few = take_smallest(&sums[0], 2 * k - 1, &small)
        if few >= 0:
            tree[k - 1, 0] = tree[k - 1, 1] = tree[k - 1, 3] = 0
            tree[k - 1, 2] = side_of(&sources[0], k, few)
    if few < 0 or many < 0 < k - 1:
        raise ValueError("shares must be above 0 and finite")


cdef inline uint64_t upper_product(uint64_t value, uint64_t factor) noexcept nogil:
    """Return the upper 64 bits of value * factor; not every compiler has integers of 128 bits."""
    cdef uint64_t mask = 0xffffffffu, low = value & mask, high = value >> 32
    cdef uint64_t factor_low = factor & mask, factor_high = factor >> 32
    cdef uint64_t first = low * factor_high, second = high * factor_low
    cdef uint64_t carry = ((low * factor_low) >> 32) + (first & mask) + (second & mask)
    return high * factor_high + (first >> 32) + (second >> 32) + (carry >> 32)


cdef inline bint divide(
    uint64_t position, uint64_t units, uint64_t key, bint mixed, uint64_t *few_before
) noexcept nogil:
    """Return whether a position belongs to `few`; write how many of the positions before it do."""
    cdef uint64_t number = upper_product(position, units), rest = position * units
    cdef uint64_t before = rest / units
    cdef uint64_t length = before + (LAST - rest) / units + 1
    cdef uint64_t chosen = splitmix(number ^ key) % length if mixed else length >> 1
    few_before[0] = number + (before > chosen)
    return before == chosen


cdef inline int give(
    uint64_t side, Py_ssize_t row, uint64_t number, uint64_t *below, int64_t *counts, Py_ssize_t n_sources
) noexcept nogil:
    if side >= NODE + <uint64_t> row or <uint64_t> n_sources <= side < NODE:
        return BAD_SIDE
    if side < NODE:
        counts[side] = <int64_t> number
    else:
        below[side - NODE] = number
    return GOOD


cdef int count(
    const uint64_t[:, ::1] tree, bint mixed, uint64_t position, uint64_t *below, int64_t *counts, Py_ssize_t n_sources
) noexcept nogil:
    cdef Py_ssize_t row = tree.shape[0] - 1
    cdef uint64_t own, before
    cdef int fault = give(tree[row, 2], row, position, below, counts, n_sources)
    while row > 0 and fault == GOOD:
        row -= 1
        own = below[row]
        if tree[row, 0] < 2:
            return BAD_SHARE
        divide(own, tree[row, 0], tree[row, 1], mixed, &before)
        fault = give(tree[row, 2], row, before, below, counts, n_sources)
        if fault == GOOD:
            fault = give(tree[row, 3], row, own - before, below, counts, n_sources)
    return fault


def share_counts(
    const uint64_t[:, ::1] tree not None,
    bint mixed,
    const int64_t[::1] positions not None,
    uint64_t[::1] below not None,
    int64_t[:, ::1] counts not None,
):
    """Write how many of the positions before each of some positions each source has.

    See `fastpack.kernels.shares_np.share_counts`.
    """
    cdef Py_ssize_t i, k = tree.shape[0], n = positions.shape[0], n_sources = counts.shape[1]
    cdef int fault = GOOD
    if not k or tree.shape[1] != 4 or below.shape[0] != k or counts.shape[0] != n:
        raise ValueError("a tree [k, 4] of k > 0 rows, room for k numbers, and counts [n, sources] are needed")
    if n and not n_sources:
        fault = BAD_SIDE
    with nogil:
        for i in range(n):
            if fault != GOOD:
                break
            fault = count(tree, mixed, <uint64_t> positions[i], &below[0], &counts[i, 0], n_sources)
    check(fault)


def share_sources(
    const uint64_t[:, ::1] tree not None,
    bint mixed,
    const int64_t[::1] positions not None,
    int64_t[::1] sources not None,
    int64_t[::1] draws not None,
):
    """Write the source of each position, and how many positions before it have the same source.

    See `fastpack.kernels.shares_np.share_sources`.
    """
    cdef Py_ssize_t i, row, k = tree.shape[0], n = positions.shape[0]
    cdef uint64_t position, side, units, before
    cdef int fault = GOOD
    if not k or tree.shape[1] != 4 or sources.shape[0] != n or draws.shape[0] != n:
        raise ValueError("a tree [k, 4] of k > 0 rows, and arrays of one length, are needed")
    with nogil:
        for i in range(n):
            position = <uint64_t> positions[i]
            row = k - 1
            side = tree[row, 2]
            while side >= NODE:
                if side >= NODE + <uint64_t> row:
                    fault = BAD_SIDE
                    break
                row = <Py_ssize_t> (side - NODE)
                units = tree[row, 0]
                if units < 2:
                    fault = BAD_SHARE
                    break
                if divide(position, units, tree[row, 1], mixed, &before):
                    position = before
                    side = tree[row, 2]
                else:
                    position -= before
                    side = tree[row, 3]
            if fault != GOOD:
                break
            sources[i] = <int64_t> side
            draws[i] = <int64_t> position
    check(fault)


cdef object check(int fault):
    if fault == BAD_SIDE:
        raise ValueError("the tree has a side that is neither a source nor a row before it")
    if fault == BAD_SHARE:
        raise ValueError("the tree has a share below 2 units")
