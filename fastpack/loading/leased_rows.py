"""Batches of rows in leased arrays, with input_ids and labels as views of one array where labels are not masked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.datasets.base import RowDataset
from fastpack.datasets.outputs import WHOLE_OUTPUTS, Allocate, Outputs
from fastpack.datasets.row_format import WINDOWS

PAIR = ("input_ids", "labels")

Kinds: TypeAlias = dict[str, tuple[tuple[int, ...], np.dtype[Any]] | None]  # shapes and dtypes by name


class LeasedRows:
    """Allocates and fills the batches of a loader, without the checks that arrays of a caller need.

    Parameters
    ----------
    arguments
        The options of `dataset.batch`.
    in_windows
        Whether a batch has WINDOWS instead of input_ids and labels.
    """

    def __init__(self, dataset: RowDataset, arguments: Mapping[str, Any], lease: Allocate, in_windows: bool) -> None:
        self._dataset, self._arguments, self._lease, self._in_windows = dataset, arguments, lease, in_windows
        self._whole = any(name in arguments.get("outputs", ()) for name in WHOLE_OUTPUTS)
        self._known: tuple[int, Kinds] = (-1, {})  # the number of rows, and their arrays

    def allocate(self, numbers: npt.NDArray[np.int64]) -> Outputs:
        """Return arrays for these samples; they are like those of the batch before, if that had as many."""
        n_rows, kinds = self._known
        if n_rows != len(numbers):
            kinds = self._kinds(len(numbers))
            self._known = len(numbers), kinds
        lease = self._lease
        return {name: None if kind is None else lease(*kind) for name, kind in kinds.items()}

    def _kinds(self, n_rows: int) -> Kinds:
        dataset = self._dataset
        out = dataset.new_outputs(n_rows, **self._arguments)
        dataset._require_documents(out)
        kinds: Kinds = {name: None if array is None else (array.shape, array.dtype) for name, array in out.items()}
        if self._in_windows:
            tokens = out["input_ids"]
            others = {name: kind for name, kind in kinds.items() if name not in PAIR}
            kinds = {WINDOWS: ((n_rows, tokens.shape[1] + 1), tokens.dtype), **others}
        return kinds

    def fill(self, numbers: npt.NDArray[np.int64], out: Outputs) -> None:
        """Write the samples into arrays of `allocate`, or into the same rows of each."""
        if self._whole:
            self._dataset.fill(numbers, out)
        else:
            self._dataset._check_open()
            self._dataset._fill_rows(numbers, out, None)


def cut_windows(batch: Outputs) -> Outputs:
    """Return a batch with input_ids and labels as views of its WINDOWS, if it has them."""
    windows = batch.pop(WINDOWS, None)
    return batch if windows is None else {"input_ids": windows[:, :-1], "labels": windows[:, 1:], **batch}


def why_not_shared(dataset: Any, arguments: Mapping[str, Any] | None) -> str | None:
    """Return why input_ids and labels of a batch cannot be views of one array; None if they can.

    arguments: the options of `dataset.batch`; None if samples are collated.
    """
    if arguments is None or not has_rows(dataset):
        return f"batches of this {type(dataset).__name__} are not filled as rows of tokens"
    if not set(PAIR) <= set(dataset.new_outputs(0, **arguments)):
        return "a batch lacks input_ids or labels: request both by outputs="
    why: str | None = dataset._why_no_windows()
    return why


def has_rows(dataset: Any) -> bool:
    """Return whether a dataset is one of fastpack's, with samples, whose `fill` no subclass replaces."""
    own = isinstance(dataset, RowDataset) and type(dataset).fill.__module__.startswith("fastpack.")
    return own and len(dataset) > 0
