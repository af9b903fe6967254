"""Reading the order of the rows of a plan, which is computed: where each row is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.plans.count_column import Integers

_Keys = npt.NDArray[np.uint64]


class RowOrder:
    """The order that a description gives to `n_rows` rows; see `fastpack.plans.step_order` for balanced plans.

    Raises ValueError, TypeError or KeyError for a description that is not valid.

    Attributes
    ----------
    data_parallel
        Number of ranks of a balanced plan, None for other plans.
    """

    def __init__(self, fields: dict[str, Any], n_rows: int, listed: npt.NDArray[Any] | None) -> None:
        self._n_rows = n_rows
        self._keys = None if fields["keys"] is None else _keys(fields["keys"])
        balance, order = fields["balance"], fields.get("step_order")
        self.data_parallel: int | None = None
        if balance is not None:
            self.data_parallel, self._micro_batches = balance["data_parallel"], balance["micro_batches"]
            _check(self.data_parallel, 1, 1 << 32)
            _check(self._micro_batches, 1, 1 << 32)
        self._listed = np.empty(0, np.int64) if listed is None else listed
        if len(self._listed) > n_rows or (order is not None and listed is None):
            raise ValueError("another number of rows in the order")
        self._step_keys: _Keys | None = None  # None in earlier plans: groups are permuted, steps are not
        if order is not None:
            self._step_keys = _keys(order["keys"])
            self._first, self._n_last_steps = order["first"], order["last_steps"]
            _check(self._first, 0, len(self._listed) + 1)
            _check(self._n_last_steps, 0, n_rows + 1)

    def stored(self, rows: Integers) -> Integers:
        """Return where rows, int64 [k], 0 <= row < n_rows, are stored. Damaged plans give other numbers."""
        if self._keys is None or not len(rows):
            return rows
        if self.data_parallel is None:
            return _permuted(rows, self._n_rows, self._keys)
        if self._step_keys is None:
            return self._in_groups(rows, self._n_rows // self.data_parallel, self._keys)
        per_step = self.data_parallel * self._micro_batches
        n_steps = self._n_rows // per_step
        steps, places = np.divmod(rows, per_step)
        rows = _permuted(steps, n_steps, self._step_keys) * per_step + places
        rows = self._in_groups(rows, max(0, n_steps - self._n_last_steps) * self._micro_batches, self._keys)
        n_not_listed = self._n_rows - len(self._listed)
        stored: Integers = rows + self._first
        is_listed = rows >= n_not_listed
        stored[is_listed] = self._listed[rows[is_listed] - n_not_listed]
        return stored

    def _in_groups(self, rows: Integers, n_groups: int, keys: _Keys) -> Integers:
        """Permute the first groups of one row for each rank.

        Every second group is reversed, so that no rank always gets the larger rows.
        """
        assert self.data_parallel is not None
        size = self.data_parallel
        groups, lanes = np.divmod(rows, size)
        moved = _permuted(groups, n_groups, keys)
        lanes = np.where((moved % 2 == 1) & (groups < n_groups), size - 1 - lanes, lanes)
        return moved * size + lanes


def _permuted(numbers: Integers, n: int, keys: _Keys) -> Integers:
    """Return numbers with those in [0, n) permuted."""
    found = numbers.copy()
    inside = numbers < n
    some = numbers[inside]
    if len(some):
        kernels.feistel(n, keys, some, some)
        found[inside] = some
    return found


def _keys(values: list[Any]) -> _Keys:
    for value in values:
        _check(value, 0, 1 << 64)
    if len(values) != 4:
        raise ValueError(f"{len(values)} keys")
    return np.array(values, np.uint64)


def _check(value: Any, start: int, end: int) -> None:
    if type(value) is not int or not start <= value < end:
        raise ValueError(f"{value!r}")
