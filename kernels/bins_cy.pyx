"""The `bins` kernels in Cython."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from "bits.h" nogil:
    int fp_ctzll(unsigned long long value) noexcept

cdef enum:
    OK = 0
    TOO_LONG = 1
    CHANGED = 2
    FEW_BINS = 3
    FEW_SIZES = 4

cdef uint32_t NONE = 0xFFFFFFFFu


cdef int raise_for(int code) except -1:
    """Raise the error of a loop that ended with `code`."""
    if code == TOO_LONG:
        raise ValueError("a length that is not below the capacity")
    if code == FEW_BINS:
        raise ValueError("bins must be as long as there are pieces")
    if code == FEW_SIZES:
        raise ValueError("more bins than sizes")
    if code == CHANGED:
        raise ValueError("an array changed meanwhile")
    return 0


cdef int64_t sort_all(
    const uint32_t[::1] lengths, int64_t *counts, Py_ssize_t capacity, uint32_t[::1] order, int *code
) noexcept nogil:
    cdef Py_ssize_t i, k, n = lengths.shape[0], n_order = order.shape[0]
    cdef int64_t n_pieces = 0, n_here, place, before = 0
    cdef uint32_t length
    for k in range(capacity):
        counts[k] = 0
    for i in range(n):
        length = lengths[i]
        if length >= <uint64_t> capacity:
            code[0] = TOO_LONG
            return 0
        counts[length] += 1
    if capacity:
        counts[0] = 0
    for k in range(capacity - 1, 0, -1):
        n_here = counts[k]
        counts[k] = n_pieces
        n_pieces += n_here
    for i in range(n):
        length = lengths[i]
        if length == 0 or length >= <uint64_t> capacity:
            continue
        place = counts[length]
        if place < 0 or place >= n_order:
            code[0] = CHANGED
            return 0
        order[place] = <uint32_t> i
        counts[length] = place + 1
    for k in range(capacity - 1, 0, -1):
        place = counts[k]
        counts[k] = place - before
        before = place
    return n_pieces


def sort_lengths(const uint32_t[::1] lengths not None, int64_t[::1] counts not None, uint32_t[::1] order not None):
    """Write the numbers of pieces by descending length, and how many pieces have each length; return their number.

    See `fastpack.kernels.bins_np.sort_lengths`.
    """
    cdef int code = OK
    cdef int64_t n_pieces
    if order.shape[0] < lengths.shape[0]:
        raise ValueError("order must be as long as lengths")
    with nogil:
        n_pieces = sort_all(lengths, &counts[0] if counts.shape[0] else NULL, counts.shape[0], order, &code)
    raise_for(code)
    return n_pieces


cdef Py_ssize_t find(const uint64_t *words, Py_ssize_t n_low, Py_ssize_t n_words, Py_ssize_t space) noexcept nogil:
    """Return the smallest space in the set that is at least `space`; -1 if there is none.

    The first `n_low` words have one bit per space, the others one bit per word.
    """
    cdef Py_ssize_t place = space >> 6, high
    cdef uint64_t word
    if place >= n_low:
        return -1
    word = words[place] & ((~<uint64_t> 0) << (space & 63))
    if word == 0:
        place += 1
        high = n_low + (place >> 6)
        if high >= n_words:
            return -1
        word = words[high] & ((~<uint64_t> 0) << (place & 63))
        while word == 0:
            high += 1
            if high >= n_words:
                return -1
            word = words[high]
        place = ((high - n_low) << 6) + fp_ctzll(word)
        if place >= n_low:
            return -1
        word = words[place]
        if word == 0:
            return -1
    return (place << 6) + fp_ctzll(word)


cdef Py_ssize_t fit_all(
    const int64_t[::1] counts, int64_t most, uint32_t *heads, uint32_t *tails, uint32_t[::1] links, uint64_t *words,
    Py_ssize_t n_low, Py_ssize_t n_words, uint32_t[::1] bins, uint32_t[::1] sizes, int *code,
) noexcept nogil:
    cdef Py_ssize_t capacity = counts.shape[0], length, space, left, chosen, last, place = 0, n_bins = 0
    cdef int64_t _k
    for length in range(capacity - 1, 0, -1):
        space = -1  # the one that the last piece left, if it is the smallest for the next
        for _k in range(counts[length]):
            if place >= bins.shape[0]:
                code[0] = FEW_BINS
                return 0
            if space < 0:
                space = find(words, n_low, n_words, length)
            if space < 0 or space >= capacity:
                if n_bins >= sizes.shape[0]:
                    code[0] = FEW_SIZES
                    return 0
                space, chosen = capacity, n_bins
                sizes[n_bins] = 0
                n_bins += 1
            else:
                chosen = heads[space]
                if chosen >= n_bins:
                    code[0] = CHANGED
                    return 0
                heads[space] = links[chosen]
                if heads[space] == NONE:
                    words[space >> 6] &= ~((<uint64_t> 1) << (space & 63))
                    if words[space >> 6] == 0:
                        words[n_low + (space >> 12)] &= ~((<uint64_t> 1) << ((space >> 6) & 63))
            bins[place] = <uint32_t> chosen
            place += 1
            sizes[chosen] += 1
            left = space - length
            if left > 0 and sizes[chosen] < most:
                links[chosen] = NONE
                if heads[left] == NONE:
                    heads[left] = <uint32_t> chosen
                    words[left >> 6] |= (<uint64_t> 1) << (left & 63)
                    words[n_low + (left >> 12)] |= (<uint64_t> 1) << ((left >> 6) & 63)
                else:
                    last = tails[left]
                    if last >= n_bins:
                        code[0] = CHANGED
                        return 0
                    links[last] = <uint32_t> chosen
                tails[left] = <uint32_t> chosen
                if left >= length:
                    space = left
                    continue
            if space == capacity or heads[space] == NONE:
                space = -1
    return n_bins


def best_fit(
    const int64_t[::1] counts not None, int64_t most, uint32_t[::1] queues not None, uint32_t[::1] links not None,
    uint64_t[::1] words not None, uint32_t[::1] bins not None, uint32_t[::1] sizes not None,
):
    """Write the bin of each piece, from the longest piece to the shortest; return the number of bins.

    See `fastpack.kernels.bins_np.best_fit`.
    """
    cdef Py_ssize_t i, n_bins, capacity = counts.shape[0], n_low = (capacity >> 6) + 1
    cdef Py_ssize_t n_words = n_low + (capacity >> 12) + 1
    cdef int code = OK
    if queues.shape[0] < 2 * capacity or links.shape[0] < sizes.shape[0] or words.shape[0] < n_words:
        raise ValueError("too little working space")
    if capacity == 0:
        return 0
    with nogil:
        for i in range(n_words):
            words[i] = 0
        for i in range(capacity):
            queues[i] = NONE
        n_bins = fit_all(
            counts, most, &queues[0], &queues[capacity], links, &words[0], n_low, n_words, bins, sizes, &code
        )
    raise_for(code)
    return n_bins


cdef Py_ssize_t cut_all(
    const uint32_t[::1] lengths, int64_t capacity, int64_t most, uint32_t[::1] rows, int *code
) noexcept nogil:
    cdef Py_ssize_t i, n_rows = 0
    cdef int64_t used = 0, left, n_documents = 0
    for i in range(lengths.shape[0]):
        left = lengths[i]
        while left:
            if n_rows >= rows.shape[0]:
                code[0] = FEW_SIZES
                return 0
            n_documents += 1
            if left < capacity - used:
                used += left
                left = 0
            else:
                left -= capacity - used
                used = capacity
            if used == capacity or n_documents >= most:
                rows[n_rows] = <uint32_t> used
                n_rows += 1
                used = n_documents = 0
    if used:
        if n_rows >= rows.shape[0]:
            code[0] = FEW_SIZES
            return 0
        rows[n_rows] = <uint32_t> used
        n_rows += 1
    return n_rows


def cut_stream(
    const uint32_t[::1] lengths not None, uint32_t capacity, int64_t most, uint32_t[::1] rows not None
):
    """Write the tokens of each row that the concatenated documents are cut into; return the number of rows.

    See `fastpack.kernels.bins_np.cut_stream`.
    """
    cdef Py_ssize_t n_rows
    cdef int code = OK
    if capacity < 1 or most < 1:
        raise ValueError("rows without tokens")
    with nogil:
        n_rows = cut_all(lengths, capacity, most, rows, &code)
    if code != OK:
        raise ValueError("more rows than rows has")
    return n_rows


cdef Py_ssize_t first_fit_all(
    const uint32_t[::1] lengths, const uint32_t[::1] order, uint32_t capacity, int64_t most, uint32_t *tree,
    Py_ssize_t half, uint32_t[::1] bins, uint32_t[::1] sizes, int *code,
) noexcept nogil:
    cdef Py_ssize_t i, k, chosen, n_bins = 0
    cdef uint32_t length, larger
    for i in range(2 * half):
        tree[i] = capacity
    for k in range(order.shape[0]):
        length = lengths[order[k]] if order[k] < lengths.shape[0] else 0
        if length < 1 or length > capacity:
            code[0] = TOO_LONG
            return 0
        i = 1
        while i < half:
            i = 2 * i + (tree[2 * i] < length)
        chosen = i - half
        if chosen >= sizes.shape[0] or tree[i] < length:
            code[0] = FEW_SIZES
            return 0
        if chosen >= n_bins:
            chosen = n_bins
            i = half + chosen
            sizes[chosen] = 0
            n_bins += 1
        bins[k] = <uint32_t> chosen
        sizes[chosen] += 1
        tree[i] = tree[i] - length if sizes[chosen] < most else 0
        while i > 1:
            i >>= 1
            larger = max(tree[2 * i], tree[2 * i + 1])
            if tree[i] == larger:
                break
            tree[i] = larger
    return n_bins


def first_fit(
    const uint32_t[::1] lengths not None, const uint32_t[::1] order not None, uint32_t capacity, int64_t most,
    uint32_t[::1] tree not None, uint32_t[::1] bins not None, uint32_t[::1] sizes not None,
):
    """Write the bin of each piece, the first one that has space for it, in the given order; return the number of bins.

    See `fastpack.kernels.bins_np.first_fit`.
    """
    cdef Py_ssize_t n_bins, half = tree.shape[0] // 2
    cdef int code = OK
    if (
        bins.shape[0] < order.shape[0] or half < sizes.shape[0] or half < 1 or half & (half - 1)
        or tree.shape[0] != 2 * half
    ):
        raise ValueError("bins or tree of the wrong length")
    with nogil:
        n_bins = first_fit_all(lengths, order, capacity, most, &tree[0], half, bins, sizes, &code)
    if code == TOO_LONG:
        raise ValueError("a length outside [1, capacity]")
    raise_for(code)
    return n_bins


def group_by_bin(
    const uint32_t[::1] order not None, const uint32_t[::1] bins not None, int64_t[::1] ends not None,
    uint32_t[::1] out not None,
):
    """Write the numbers of pieces bin by bin; within a bin in the order in which they came.

    See `fastpack.kernels.bins_np.group_by_bin`.
    """
    cdef Py_ssize_t k, n = order.shape[0]
    cdef uint32_t chosen
    cdef int64_t place
    if bins.shape[0] < n:
        raise ValueError("bins must be as long as order")
    with nogil:
        for k in range(n):
            chosen = bins[k]
            if chosen >= ends.shape[0]:
                break
            place = ends[chosen]
            if place < 0 or place >= out.shape[0]:
                break
            out[place] = order[k]
            ends[chosen] = place + 1
        else:
            k = n
    if k < n:
        raise ValueError("a bin beyond ends" if bins[k] >= ends.shape[0] else "a place outside out")
