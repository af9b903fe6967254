"""Several datasets as one: `MixtureDataset` (KempnerForge) and `CombinedDataset` (Modalities)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.base import BatchDataset, Dataset, Empty, Indices, Selection, WindowDataset
from fastpack.datasets.outputs import ROW_OUTPUTS, OutputDtype
from fastpack.datasets.windows import Grids, Outputs, Windows, fill_grids, joined_windows
from fastpack.display import facts
from fastpack.item_numbers import item_number, item_numbers

Part = tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]  # dataset, samples within it, the rows they fill


class _Samples(BatchDataset):
    """A dataset of another make, sample by sample: dicts of arrays (or numbers) whose shapes do not change."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self._total = dataset, len(dataset)
        first = dataset[0]
        if not isinstance(first, dict):
            found = f"a sample of {type(dataset).__name__} is a {type(first).__name__}"
            raise TypeError(f"{found}, not a dict of arrays: it has no batch, only [i]")
        self._first = {name: np.asarray(value) for name, value in first.items()}

    def _row_length(self) -> int:
        return max((len(array) for name, array in self._first.items() if name in ROW_OUTPUTS), default=0)

    def _has_documents(self) -> bool:
        return "doc_ids" in self._first

    def _default_outputs(self) -> tuple[str, ...]:
        return tuple(name for name in self._first if name != "dataset_idx")

    def _check_grids(self, grids: Grids, n_rows: int) -> None:
        for name, array in grids.items():
            if name not in self._first:
                raise ValueError(f"unknown output {name!r}: a {type(self._dataset).__name__} has {list(self._first)}")
            if not isinstance(array, np.ndarray) or not array.flags.writeable:
                raise ValueError(f"{name} must be an array, and writeable")
            if array.shape != (n_rows, *self._first[name].shape):
                raise ValueError(f"{name} has shape {array.shape}, {(n_rows, *self._first[name].shape)} is needed")

    def new_outputs(
        self,
        n_rows: int,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype | None = None,
        cu_seqlens_length: int | None = None,
        empty: Empty = np.empty,
    ) -> Outputs:
        """As `WindowDataset.new_outputs`, in the shapes and dtypes of the dataset's own samples."""
        known = {name: array for name, array in self._first.items() if name not in ROW_OUTPUTS}
        names = self._default_outputs() if outputs is None else outputs
        rows = [name for name in names if name not in known]
        out = super().new_outputs(n_rows, rows, dtype, cu_seqlens_length, empty)
        return {n: empty((n_rows, *known[n].shape), known[n].dtype) if n in known else out[n] for n in names}

    def _fill_rows(self, index: npt.NDArray[np.int64], grids: Grids, rows: npt.NDArray[np.int64] | None) -> None:
        for row, number in zip(range(len(index)) if rows is None else rows.tolist(), index.tolist(), strict=True):
            sample = self._dataset[number]
            for name, array in grids.items():
                array[row] = sample[name]


class _Concatenation(BatchDataset):
    """Datasets one behind the other.

    Those alike in kind (windows of one length, of tokens of one dtype, with the same EOS) fill a batch by one kernel
    call, as one dataset does; else each writes its own rows, which costs 8 us a dataset.
    """

    _shown = facts("datasets", samples="_total", names=lambda self: ", ".join(self.dataset_names), closed="_closed")

    def __init__(self, datasets: Sequence[Any]) -> None:
        self.datasets = list(datasets)
        self._bounds: list[int] = [0, *accumulate(len(dataset) for dataset in self.datasets)]
        self._cumulative = np.array(self._bounds, np.int64)
        self._total = self._bounds[-1]
        self._with_samples: list[BatchDataset] | None = None
        self._alike: bool | None = None
        self._parts = [dataset if isinstance(dataset, BatchDataset) else None for dataset in self.datasets]
        self._join()

    def _join(self) -> None:
        self._eos: int | None = None
        self._joined: Windows | None = None
        parts = [part for part in self._parts if isinstance(part, WindowDataset)]
        plain = all(type(part)._fill_rows is WindowDataset._fill_rows for part in parts)
        if parts and len(parts) == len(self._parts) and plain and len({part._eos for part in parts}) == 1:
            self._eos, self._joined = parts[0]._eos, joined_windows([part._windows for part in parts])

    def _route(self, index: npt.NDArray[np.int64], which: npt.NDArray[np.int64]) -> Iterator[Part]:
        """The samples by dataset, each with its rows; writes each one's dataset into `which`. IndexError."""
        local = self._locate(index, which)
        order = np.argsort(which, kind="stable")
        local, start = local[order], 0
        for number, n_rows in enumerate(np.bincount(which).tolist()):
            if n_rows:
                yield number, local[start : start + n_rows], order[start : start + n_rows]
                start += n_rows

    def _locate(self, index: npt.NDArray[np.int64], which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Each sample's number within its dataset, which is written into `which`. IndexError."""
        local = np.empty_like(index)
        n_good = kernels.locate_many(self._cumulative, index, which, local)
        if n_good < len(index):
            raise IndexError(f"Index {index[n_good]} out of range [0, {self._total})")
        return local

    def _fill_rows(self, index: npt.NDArray[np.int64], grids: Grids, rows: npt.NDArray[np.int64] | None) -> None:
        self._fill_parts(index, grids, rows, np.empty_like(index))

    def _fill_parts(
        self,
        index: npt.NDArray[np.int64],
        grids: Grids,
        rows: npt.NDArray[np.int64] | None,
        which: npt.NDArray[np.int64],
    ) -> None:
        if self._joined is not None and self._joined.uniform:
            index = self._wrapped(index)
            self._locate(index, which)
            if grids:
                fill_grids(self._joined.groups(index), grids, self._eos, rows)
            return
        for number, local, places in self._route(self._wrapped(index), which):
            if grids:
                self._part(number)._fill_rows(local, grids, places if rows is None else rows[places])

    def _wrapped(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return index

    def _part(self, number: int) -> BatchDataset:
        part = self._parts[number]
        if part is None:
            part = self._parts[number] = _Samples(self.datasets[number])
        return part

    def _filled(self) -> list[BatchDataset]:
        """The datasets that have samples; ValueError when none has."""
        if self._with_samples is None:
            sizes = enumerate(pairwise(self._bounds))
            self._with_samples = [self._part(number) for number, (start, end) in sizes if start < end]
        if not self._with_samples:
            raise ValueError("none of the datasets has a sample")
        return self._with_samples

    def _row_length(self) -> int:
        lengths = {part._row_length() for part in self._filled()}
        if len(lengths) > 1:
            raise ValueError(f"the datasets' rows differ in length: {sorted(lengths)} tokens")
        return lengths.pop()

    def _has_documents(self) -> bool:
        return all(part._has_documents() for part in self._filled())

    def _check_grids(self, grids: Grids, n_rows: int) -> None:
        checks = {type(part)._check_grids for part in self._filled()}
        if checks == {BatchDataset._check_grids}:  # one look says it for all, once their rows are of one length
            super()._check_grids(grids, n_rows)
            return
        for part in self._filled():
            part._check_grids(grids, n_rows)

    def _default_outputs(self) -> tuple[str, ...]:
        names = {part._default_outputs() for part in self._filled()}
        if len(names) > 1:
            raise ValueError(f"the datasets give different outputs, {sorted(names)}: name those you want")
        return names.pop()

    def new_outputs(
        self,
        n_rows: int,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype | None = None,
        cu_seqlens_length: int | None = None,
        empty: Empty = np.empty,
    ) -> Outputs:
        """As `BatchDataset.new_outputs`; what the datasets give by default must be the same."""
        if outputs is None:
            self._default_outputs()
        self._row_length()
        return self._filled()[0].new_outputs(n_rows, outputs, dtype, cu_seqlens_length, empty)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """As `BatchDataset.__getitems__` where the datasets' rows are alike; else one sample after the other."""
        if isinstance(indices, Selection) and "outputs" in indices.options:
            return super().__getitems__(indices)
        if self._alike is None:
            self._alike = self._are_alike()
        return super().__getitems__(indices) if self._alike else [self[index] for index in indices]

    def _are_alike(self) -> bool:
        """Whether one batch holds the samples of all: fastpack's rows, of the same names, length and dtypes."""
        forms = []
        for number, (start, end) in enumerate(pairwise(self._bounds)):
            part = self._parts[number]
            if start == end:
                continue
            if (
                part is None
                or isinstance(part, _Samples)
                or (isinstance(part, _Concatenation) and not part._are_alike())
            ):
                return False
            forms.append({name: (array.shape, array.dtype) for name, array in part.new_outputs(1).items()})
        return bool(forms) and all(form == forms[0] for form in forms)

    def will_need(self, indices: Indices) -> None:
        """Pass on to each dataset what is needed of it soon."""
        index = self._wrapped(item_numbers(indices))
        for number, local, _ in self._route(index, np.empty_like(index)):
            if isinstance(self.datasets[number], Dataset):
                self.datasets[number].will_need(local)

    def check_unchanged(self) -> None:
        """FormatError when a file behind one of the datasets has changed."""
        for dataset in self.datasets:
            if isinstance(dataset, Dataset):
                dataset.check_unchanged()

    def close(self) -> None:
        """Close the datasets that can be closed."""
        super().close()
        if self._joined is not None:
            self._joined.close()
        for dataset in self.datasets:
            getattr(dataset, "close", lambda: None)()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_joined"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._join()

    def state_dict(self) -> dict[str, Any]:
        """{"dataset_0": its state, ...}, of the datasets that have one."""
        return {
            f"dataset_{number}": dataset.state_dict()
            for number, dataset in enumerate(self.datasets)
            if hasattr(dataset, "state_dict")
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Give each dataset its state; those not named keep theirs."""
        for number, dataset in enumerate(self.datasets):
            if f"dataset_{number}" in state and hasattr(dataset, "load_state_dict"):
                dataset.load_state_dict(state[f"dataset_{number}"])


class MixtureDataset(_Concatenation):
    """Datasets one behind the other, as KempnerForge's MixtureSampler draws from them.

    A sample is the dataset's own with "dataset_idx" (an int) added; a batch has dataset_idx as int64 [B], among the
    outputs by default. Datasets of another make, whose samples are dicts of arrays, do too.
    `.cumulative_sizes` (from 0 to the number of samples) is what MixtureSampler takes; `.dataset_names` are `names`.

    Raises ValueError for no dataset, or not one name each; IndexError for an index out of range, also below 0.
    """

    def __init__(self, datasets: Sequence[Any], names: Sequence[str]) -> None:
        if len(datasets) != len(names):
            raise ValueError("datasets and names must have the same length")
        if len(datasets) == 0:
            raise ValueError("At least one dataset is required")
        super().__init__(datasets)
        self.cumulative_sizes, self.dataset_names = self._bounds, list(names)

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = item_number(index)
        if index < 0 or index >= self._total:
            raise IndexError(f"Index {index} out of range [0, {self._total})")
        number = bisect_right(self._bounds, index) - 1
        sample: dict[str, Any] = self.datasets[number][index - self._bounds[number]]
        sample["dataset_idx"] = number
        return sample

    def _default_outputs(self) -> tuple[str, ...]:
        return (*super()._default_outputs(), "dataset_idx")

    def new_outputs(
        self,
        n_rows: int,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype | None = None,
        cu_seqlens_length: int | None = None,
        empty: Empty = np.empty,
    ) -> Outputs:
        """As `BatchDataset.new_outputs`, and dataset_idx [n_rows], which is int64 always."""
        rest = None if outputs is None else [name for name in outputs if name != "dataset_idx"]
        out = super().new_outputs(n_rows, rest, dtype, cu_seqlens_length, empty)
        if outputs is None or "dataset_idx" in outputs:
            out["dataset_idx"] = empty((n_rows,), np.dtype(np.int64))
        return out

    def fill(self, indices: Indices, out: Outputs) -> None:
        """As `BatchDataset.fill`; and "dataset_idx": int64 [B] takes the number of each sample's dataset."""
        super().fill(indices, out)

    def _check_grids(self, grids: Grids, n_rows: int) -> None:
        numbers = grids.get("dataset_idx")
        if numbers is not None and (numbers.shape != (n_rows,) or numbers.dtype != np.int64):
            raise ValueError(f"dataset_idx is {numbers.dtype} {list(numbers.shape)}, int64 [{n_rows}] is needed")
        if numbers is not None and not numbers.flags.writeable:
            raise ValueError("dataset_idx must be writeable")
        super()._check_grids(_tokens_only(grids), n_rows)

    def _fill_rows(self, index: npt.NDArray[np.int64], grids: Grids, rows: npt.NDArray[np.int64] | None) -> None:
        which = np.empty_like(index)
        self._fill_parts(index, _tokens_only(grids), rows, which)
        if "dataset_idx" in grids:
            grids["dataset_idx"][slice(None) if rows is None else rows] = which


def _tokens_only(grids: Grids) -> Grids:
    return {name: array for name, array in grids.items() if name != "dataset_idx"}


class CombinedDataset(_Concatenation):
    """Datasets one behind the other as one, as Modalities combines them; `[-1]` is the last sample of the last dataset.

    (Modalities' own takes -1 as the last sample of the first dataset; fastpack does not.) A sample is the dataset's
    own. `batch` and `fill` need the same outputs and row length of all. `.cumulative_sizes`: where each dataset ends,
    int64 [n_datasets]. Raises IndexError.
    """

    def __init__(self, datasets: Sequence[Any]) -> None:
        super().__init__(datasets)
        self.cumulative_sizes = self._cumulative[1:]

    def __getitem__(self, index: int) -> Any:
        index = item_number(index)
        position = index + self._total if index < 0 else index
        if not 0 <= position < self._total:
            raise IndexError(f"Index {index} out of range for {self._total} samples")
        number = bisect_right(self._bounds, position) - 1
        return self.datasets[number][position - self._bounds[number]]

    def _wrapped(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.where(index < 0, index + self._total, index)
