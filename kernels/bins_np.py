"""Packing pieces of documents into bins of one size. The specification, in NumPy.

A piece has a length in tokens, 1 <= length < capacity; the capacity of a bin is the length of a row. Best fit
decreasing is optimised as in "Fewer Truncations Improve Language Modeling" (arXiv 2404.10830): bins are queued by
their remaining space.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from itertools import repeat

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.uint32]
Counts = npt.NDArray[np.int64]


def sort_lengths(lengths: Numbers, counts: Counts, order: Numbers) -> int:
    """Write the numbers of pieces by descending length, and how many pieces have each length; return their number.

    lengths: uint32 [n], below len(counts); documents of length 0 are left out. counts: int64 [capacity]. order: uint32
    [n]; numbers of equal lengths ascend. Raises ValueError for a length that is too large.
    """
    if len(order) < len(lengths):
        raise ValueError("order must be as long as lengths")
    if len(lengths) and int(lengths.max()) >= len(counts):
        raise ValueError("a length that is not below the capacity")
    counts[:] = np.bincount(lengths, minlength=len(counts))
    counts[0] = 0
    numbers = np.flatnonzero(lengths)
    order[: len(numbers)] = numbers[np.argsort(-lengths[numbers].astype(np.int64), kind="stable")]
    return len(numbers)


def best_fit(
    counts: Counts,
    most: int,
    queues: Numbers,
    links: Numbers,
    words: npt.NDArray[np.uint64],
    bins: Numbers,
    sizes: Numbers,
) -> int:
    """Write the bin of each piece, from the longest piece to the shortest; return the number of bins.

    A piece goes to the bin with the smallest remaining space that holds it. Among these, the bin that has had this
    space for the longest time is taken. If there is none, the piece opens the next bin.

    counts: int64 [capacity], as `sort_lengths` writes it. most: of pieces in a bin. bins: uint32 [n_pieces].
    sizes: the number of pieces of each bin, uint32, at least as many as there are bins. Of working space, the compiled
    implementations need queues, uint32 [2 * capacity], links, uint32, as many as sizes, and words, uint64 [capacity //
    64 + capacity // 4096 + 2]. Raises ValueError if an array is too short.
    """
    capacity = len(counts)
    if len(queues) < 2 * capacity or len(links) < len(sizes) or len(words) < capacity // 64 + capacity // 4096 + 2:
        raise ValueError("too little working space")
    if int(counts.sum()) > len(bins) or (counts < 0).any():
        raise ValueError("bins must be as long as there are pieces")
    waiting: dict[int, deque[int]] = {}
    spaces: list[int] = []  # keys of `waiting`, ascending
    n_bins = place = 0
    for length in range(capacity - 1, 0, -1):
        for _ in repeat(None, int(counts[length])):
            at = bisect_left(spaces, length)
            if at < len(spaces):
                space = spaces[at]
                chosen = waiting[space].popleft()
                if not waiting[space]:
                    del waiting[space], spaces[at]
            else:
                if n_bins == len(sizes):
                    raise ValueError("more bins than sizes")
                space, chosen = capacity, n_bins
                sizes[n_bins] = 0
                n_bins += 1
            bins[place] = chosen
            place += 1
            sizes[chosen] += 1
            left = space - length
            if left and sizes[chosen] < most:
                if left not in waiting:
                    waiting[left] = deque()
                    insort(spaces, left)
                waiting[left].append(chosen)
    return n_bins


def first_fit(
    lengths: Numbers, order: Numbers, capacity: int, most: int, tree: Numbers, bins: Numbers, sizes: Numbers
) -> int:
    """Write the bin of each piece, the first one that has space for it, in the given order; return the number of bins.

    lengths: uint32 [n]. order: numbers of pieces, uint32 [n_pieces]. most: of pieces in a bin. bins: uint32 [n_pieces].
    sizes: the number of pieces of each bin, uint32, at least as many as there are bins. tree: working space, uint32
    [2 * p] with a power of two p >= len(sizes). Raises ValueError for a length outside [1, capacity], and if an array
    is too short.
    """
    half = len(tree) // 2
    if len(bins) < len(order) or half < len(sizes) or half < 1 or half & (half - 1) or len(tree) != 2 * half:
        raise ValueError("bins or tree of the wrong length")
    spaces = tree[: len(sizes)]
    spaces[:] = capacity
    n_bins = 0
    for place, number in enumerate(order.tolist()):
        if number >= len(lengths) or not 1 <= lengths[number] <= capacity:
            raise ValueError("a length outside [1, capacity]")
        fits = spaces[: n_bins + 1] >= lengths[number]
        chosen = int(fits.argmax()) if len(fits) and fits.any() else n_bins
        if chosen == n_bins:
            if n_bins == len(sizes):
                raise ValueError("more bins than sizes")
            sizes[n_bins] = 0
            n_bins += 1
        bins[place] = chosen
        sizes[chosen] += 1
        spaces[chosen] = spaces[chosen] - lengths[number] if sizes[chosen] < most else 0
    return n_bins


def cut_stream(lengths: Numbers, capacity: int, most: int, rows: Numbers) -> int:
    """Write the tokens of each row that the concatenated documents are cut into; return the number of rows.

    A row ends after `capacity` tokens, or with the end of its document number `most`. lengths: uint32 [n]. rows:
    uint32, at least as many as there are rows. Raises ValueError if there are more.
    """
    if capacity < 1 or most < 1:
        raise ValueError("rows without tokens")
    found = []
    used = n_documents = 0
    for length in lengths[lengths > 0].tolist():
        left = length
        while left:
            n_documents += 1
            taken = min(left, capacity - used)
            used += taken
            left -= taken
            if used == capacity or n_documents == most:
                found.append(used)
                used = n_documents = 0
    found += [used] if used else []
    if len(found) > len(rows):
        raise ValueError("more rows than rows has")
    rows[: len(found)] = found
    return len(found)


def group_by_bin(order: Numbers, bins: Numbers, ends: Counts, out: Numbers) -> None:
    """Write the numbers of pieces bin by bin; within a bin in the order in which they came.

    order: numbers of pieces, uint32 [n]. bins: the bin of each, uint32 [n]. ends: where each bin starts in `out`,
    int64 [n_bins]; it is overwritten with where each ends. out: uint32 [n]. Raises ValueError for a bin or a place
    outside the arrays.
    """
    if len(bins) < len(order):
        raise ValueError("bins must be as long as order")
    bins = bins[: len(order)]
    if len(bins) and int(bins.max()) >= len(ends):
        raise ValueError("a bin beyond ends")
    sizes = np.bincount(bins, minlength=len(ends))
    if (ends < 0).any() or (ends + sizes > len(out)).any():
        raise ValueError("a place outside out")
    by_bin = np.argsort(bins, kind="stable")
    grouped = bins[by_bin]
    firsts = np.cumsum(sizes) - sizes
    out[ends[grouped] + np.arange(len(order)) - firsts[grouped]] = order[by_bin]
    ends += sizes
