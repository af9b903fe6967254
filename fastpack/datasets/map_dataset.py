"""The interface of any map-style dataset, and an adapter that copies its samples into batches."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from fastpack.datasets.base import RowDataset
from fastpack.datasets.outputs import Arrays
from fastpack.datasets.row_format import SampleRows
from fastpack.datasets.window_groups import RowNumbers

SampleT_co = TypeVar("SampleT_co", covariant=True)


class MapDataset(Protocol[SampleT_co]):
    """A dataset with a length and samples by number, as `torch.utils.data.Dataset` describes it."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> SampleT_co: ...


@runtime_checkable
class Stateful(Protocol):
    """A dataset whose state can be saved and loaded."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any, /) -> None: ...


@runtime_checkable
class Closeable(Protocol):
    """A dataset that holds files or mappings."""

    def close(self) -> None: ...


class SampleDataset(RowDataset):
    """Rows of another library's dataset, whose samples are dicts of arrays (or numbers) of constant shapes.

    Raises TypeError if a sample is not a dict.
    """

    def __init__(self, dataset: MapDataset[Any]) -> None:
        self._dataset, self._total = dataset, len(dataset)
        kind, first = type(dataset).__name__, dataset[0]
        if not isinstance(first, dict):
            found = f"a sample of {kind} is a {type(first).__name__}"
            raise TypeError(f"{found}, not a dict of arrays: it has no batch, only [i]")
        self._format = SampleRows(kind, {name: np.asarray(value) for name, value in first.items()})

    @property
    def _row_format(self) -> SampleRows:
        return self._format

    def _fill_rows(self, index: npt.NDArray[np.int64], arrays: Arrays, rows: RowNumbers | None) -> None:
        for row, number in zip(range(len(index)) if rows is None else rows.tolist(), index.tolist(), strict=True):
            sample = self._dataset[number]
            for name, array in arrays.items():
                array[row] = sample[name]
