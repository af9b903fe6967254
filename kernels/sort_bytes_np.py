"""Sort byte strings, and check the order of integer rows: the specification of the `sort_bytes` kernels, in Python.

Text t is data[bounds[t]:bounds[t + 1]]. A text that is a prefix of another comes before it, as with memcmp.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt


def sort_texts(
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    work: npt.NDArray[np.int64],  # noqa: ARG001
    order: npt.NDArray[np.int64],
) -> bool:
    """Write the numbers of the texts in sorted order, of equal texts the lower first; return whether any are equal.

    work: int64 [5 * len(order) + 2], scratch memory for the compiled implementations. Sorting is faster the longer the
    runs that are already in order. Raises ValueError for a text outside `data`.
    """
    raw = data.tobytes()
    places = bounds.tolist()
    if any(not 0 <= start <= end <= len(raw) for start, end in pairwise(places)):
        raise ValueError("a text outside the data")
    texts = [raw[start:end] for start, end in pairwise(places)]
    order[:] = sorted(range(len(texts)), key=texts.__getitem__)
    return len(set(texts)) < len(texts)


def sort_within(
    rows: npt.NDArray[np.int64],
    first: int,
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    work: npt.NDArray[np.int64],  # noqa: ARG001
    order: npt.NDArray[np.int64],
) -> int:
    """Write row numbers from `first` on, each group sorted by text; return how many.

    A group is a run of rows with the same first two columns. The last column is the number of the row's text. Rows with
    equal texts keep their order. Only whole groups are taken, as many as fit into `order`; none if the next one does
    not fit. work: int64 [5 * len(order) + 2]. Raises ValueError for a text outside `data` in a group of several rows.
    """
    stop = min(first + len(order) + 1, len(rows))
    heads = rows[first:stop, :2]
    starts = [0, *(np.flatnonzero((heads[1:] != heads[:-1]).any(axis=1)) + 1).tolist()]
    if stop == len(rows):
        starts.append(stop - first)
    n_taken = max((start for start in starts if start <= len(order)), default=0)
    numbers = range(first, first + n_taken)

    def place(row: int) -> tuple[int, bytes]:
        text = int(rows[row, -1])
        if not (0 <= text < len(bounds) - 1 and 0 <= bounds[text] <= bounds[text + 1] <= len(data)):
            raise ValueError("a text outside the data")
        group = int(np.searchsorted(starts, row - first, "right"))
        return group, data[bounds[text] : bounds[text + 1]].tobytes()

    order[:n_taken] = sorted(numbers, key=place)
    return n_taken


def first_unsorted(rows: npt.NDArray[np.int64], n_columns: int) -> int:
    """Return the first row whose first `n_columns` are not greater than those of the previous row, or len(rows)."""
    greater = np.zeros(max(len(rows) - 1, 0), np.bool_)
    for k in reversed(range(n_columns)):
        greater = (rows[1:, k] > rows[:-1, k]) | ((rows[1:, k] == rows[:-1, k]) & greater)
    wrong = np.flatnonzero(~greater)
    return int(wrong[0]) + 1 if len(wrong) else len(rows)
