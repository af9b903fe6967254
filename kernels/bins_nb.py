"""The `bins` kernels in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit, trailing_zeros

NONE = np.uint32(0xFFFFFFFF)
_trailing_zeros = trailing_zeros()


@jit
def sort_lengths(lengths, counts, order):
    """Write the numbers of pieces by descending length, and how many pieces have each length; return their number.

    See `fastpack.kernels.bins_np.sort_lengths`.
    """
    if len(order) < len(lengths):
        raise ValueError("order must be as long as lengths")
    counts[:] = 0
    for i in range(len(lengths)):
        if lengths[i] >= len(counts):
            raise ValueError("a length that is not below the capacity")
        counts[lengths[i]] += 1
    if len(counts):
        counts[0] = 0
    n_pieces = np.int64(0)
    for k in range(len(counts) - 1, 0, -1):
        n_here = counts[k]
        counts[k] = n_pieces
        n_pieces += n_here
    for i in range(len(lengths)):
        length = np.int64(lengths[i])
        if length == 0 or length >= len(counts):
            continue
        place = counts[length]
        if place < 0 or place >= len(order):
            raise ValueError("lengths changed meanwhile")
        order[place] = i
        counts[length] = place + 1
    before = np.int64(0)
    for k in range(len(counts) - 1, 0, -1):
        end = counts[k]
        counts[k] = end - before
        before = end
    return n_pieces


@jit
def _find(words, n_low, space):
    """Return the smallest space in the set that is at least `space`; -1 if there is none."""
    place = space >> 6
    if place >= n_low:
        return np.int64(-1)
    word = words[place] & (~np.uint64(0) << np.uint64(space & 63))
    if word == 0:
        place += 1
        high = n_low + (place >> 6)
        if high >= len(words):
            return np.int64(-1)
        word = words[high] & (~np.uint64(0) << np.uint64(place & 63))
        while word == 0:
            high += 1
            if high >= len(words):
                return np.int64(-1)
            word = words[high]
        place = ((high - n_low) << 6) + np.int64(_trailing_zeros(word))
        if place >= n_low:
            return np.int64(-1)
        word = words[place]
        if word == 0:
            return np.int64(-1)
    return (place << 6) + np.int64(_trailing_zeros(word))


@jit
def best_fit(counts, most, queues, links, words, bins, sizes):
    """Write the bin of each piece, from the longest piece to the shortest; return the number of bins.

    See `fastpack.kernels.bins_np.best_fit`.
    """
    capacity = len(counts)
    n_low = (capacity >> 6) + 1
    if len(queues) < 2 * capacity or len(links) < len(sizes) or len(words) < n_low + (capacity >> 12) + 1:
        raise ValueError("too little working space")
    heads, tails = queues[:capacity], queues[capacity : 2 * capacity]
    words = words[: n_low + (capacity >> 12) + 1]
    words[:] = 0
    heads[:] = NONE
    one = np.uint64(1)
    n_bins, place = np.int64(0), np.int64(0)
    for length in range(capacity - 1, 0, -1):
        space = np.int64(-1)  # the one that the last piece left, if it is the smallest for the next
        for _ in range(counts[length]):
            if place >= len(bins):
                raise ValueError("bins must be as long as there are pieces")
            if space < 0:
                space = _find(words, n_low, length)
            if space < 0 or space >= capacity:
                if n_bins >= len(sizes):
                    raise ValueError("more bins than sizes")
                space, chosen = np.int64(capacity), n_bins
                sizes[n_bins] = 0
                n_bins += 1
            else:
                chosen = np.int64(heads[space])
                if chosen >= n_bins:
                    raise ValueError("the working space changed meanwhile")
                heads[space] = links[chosen]
                if heads[space] == NONE:
                    words[space >> 6] &= ~(one << np.uint64(space & 63))
                    if words[space >> 6] == 0:
                        words[n_low + (space >> 12)] &= ~(one << np.uint64((space >> 6) & 63))
            bins[place] = chosen
            place += 1
            sizes[chosen] += np.uint32(1)
            left = space - length
            if left > 0 and sizes[chosen] < most:
                links[chosen] = NONE
                if heads[left] == NONE:
                    heads[left] = chosen
                    words[left >> 6] |= one << np.uint64(left & 63)
                    words[n_low + (left >> 12)] |= one << np.uint64((left >> 6) & 63)
                else:
                    last = np.int64(tails[left])
                    if last >= n_bins:
                        raise ValueError("the working space changed meanwhile")
                    links[last] = chosen
                tails[left] = chosen
                if left >= length:
                    space = left
                    continue
            if space == capacity or heads[space] == NONE:
                space = np.int64(-1)
    return n_bins


@jit
def first_fit(lengths, order, capacity, most, tree, bins, sizes):
    """Write the bin of each piece, the first one that has space for it, in the given order; return the number of bins.

    See `fastpack.kernels.bins_np.first_fit`.
    """
    half = len(tree) // 2
    if len(bins) < len(order) or half < len(sizes) or half < 1 or half & (half - 1) or len(tree) != 2 * half:
        raise ValueError("bins or tree of the wrong length")
    tree[:] = capacity
    n_bins = np.int64(0)
    for k in range(len(order)):
        number = np.int64(order[k])
        length = np.uint32(lengths[number]) if number < len(lengths) else np.uint32(0)
        if length < 1 or length > capacity:
            raise ValueError("a length outside [1, capacity]")
        i = np.int64(1)
        while i < half:
            i = 2 * i + np.int64(tree[2 * i] < length)
        chosen = i - half
        if chosen >= len(sizes) or tree[i] < length:
            raise ValueError("more bins than sizes")
        if chosen >= n_bins:
            chosen = n_bins
            i = half + chosen
            sizes[chosen] = 0
            n_bins += 1
        bins[k] = chosen
        sizes[chosen] += np.uint32(1)
        tree[i] = tree[i] - length if sizes[chosen] < most else np.uint32(0)
        while i > 1:
            i >>= 1
            larger = max(tree[2 * i], tree[2 * i + 1])
            if tree[i] == larger:
                break
            tree[i] = larger
    return n_bins


@jit
def cut_stream(lengths, capacity, most, rows):
    """Write the tokens of each row that the concatenated documents are cut into; return the number of rows.

    See `fastpack.kernels.bins_np.cut_stream`.
    """
    if capacity < 1 or most < 1:
        raise ValueError("rows without tokens")
    n_rows, used, n_documents = np.int64(0), np.int64(0), np.int64(0)
    for i in range(len(lengths)):
        left = np.int64(lengths[i])
        while left:
            if n_rows >= len(rows):
                raise ValueError("more rows than rows has")
            n_documents += 1
            taken = min(left, np.int64(capacity) - used)
            used += taken
            left -= taken
            if used == capacity or n_documents >= most:
                rows[n_rows] = used
                n_rows += 1
                used, n_documents = np.int64(0), np.int64(0)
    if used:
        if n_rows >= len(rows):
            raise ValueError("more rows than rows has")
        rows[n_rows] = used
        n_rows += 1
    return n_rows


@jit
def group_by_bin(order, bins, ends, out):
    """Write the numbers of pieces bin by bin; within a bin in the order in which they came.

    See `fastpack.kernels.bins_np.group_by_bin`.
    """
    if len(bins) < len(order):
        raise ValueError("bins must be as long as order")
    for k in range(len(order)):
        chosen = np.int64(bins[k])
        if chosen >= len(ends):
            raise ValueError("a bin beyond ends")
        place = ends[chosen]
        if place < 0 or place >= len(out):
            raise ValueError("a place outside out")
        out[place] = order[k]
        ends[chosen] = place + 1


def compile_all(_token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile every kernel; the arguments do not matter here."""
    counts, numbers = np.zeros(2, np.int64), np.zeros(8, np.uint32)
    sort_lengths(np.ones(1, np.uint32), counts, numbers)
    best_fit(counts, 2, numbers, np.zeros(1, np.uint32), np.zeros(2, np.uint64), np.zeros(1, np.uint32), numbers[:1])
    cut_stream(np.ones(1, np.uint32), 2, 2, np.zeros(1, np.uint32))
    one, order = np.ones(1, np.uint32), np.zeros(1, np.uint32)
    first_fit(one, order, 2, 2, np.zeros(2, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32))
    group_by_bin(order, order, np.zeros(1, np.int64), np.zeros(1, np.uint32))
