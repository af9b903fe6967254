"""The base class of datasets that concatenate others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.base import Dataset, Indices, RowDataset, Selection
from fastpack.datasets.file_spans import NamedSamples, RowSpans, Traceable, row_spans
from fastpack.datasets.map_dataset import Closeable, MapDataset, SampleDataset, Stateful
from fastpack.datasets.outputs import Arrays
from fastpack.datasets.row_format import DATASET_IDX, ConcatenatedRows, TokenRows, without_dataset_idx
from fastpack.datasets.row_shares import Spans, fill_window_spans
from fastpack.datasets.window_dataset import WindowDataset
from fastpack.datasets.window_groups import RowNumbers, fill_rows
from fastpack.datasets.windows import Windows, concatenated_windows
from fastpack.display import facts
from fastpack.item_numbers import item_numbers
from fastpack.tokens.common_fingerprint import CommonFingerprint


class Concatenation(RowDataset):
    """Concatenated datasets.

    Datasets of one kind (windows of one length, of tokens of one dtype, with the same EOS) fill a batch by one kernel
    call, as one dataset does; otherwise each dataset fills its own rows, which costs 8 us per dataset.
    """

    _shown = facts("datasets", samples="_total", names=lambda self: ", ".join(self.dataset_names), closed="_closed")
    _not_pickled = ("_windows", "_window_format", "_concatenated_rows")
    _numbered = False  # whether a batch has dataset_idx

    def __init__(self, datasets: Sequence[MapDataset[Any]], mix_tokenizers: bool) -> None:
        self.datasets = list(datasets)
        tokenizers = CommonFingerprint(mix_tokenizers)
        for dataset in self.datasets:
            if isinstance(dataset, Dataset) and (recorded := dataset._recorded_tokenizer()) is not None:
                tokenizers.add(*recorded)
        self._recorded = tokenizers.first
        self._bounds: list[int] = [0, *accumulate(len(dataset) for dataset in self.datasets)]
        self._cumulative = np.array(self._bounds, np.int64)
        self._total = self._bounds[-1]
        self._alike: bool | None = None
        self._row_datasets = [dataset if isinstance(dataset, RowDataset) else None for dataset in self.datasets]
        self._attach()

    def _attach(self) -> None:
        """Concatenate the windows of datasets of one kind."""
        self._concatenated_rows: ConcatenatedRows | None = None
        self._windows: Windows | None = None
        self._window_format: TokenRows | None = None
        datasets = [dataset for dataset in self._row_datasets if isinstance(dataset, WindowDataset)]
        alike = len(datasets) == len(self.datasets) and len({dataset._eos for dataset in datasets}) == 1
        if alike and all(dataset._masks is None for dataset in datasets):
            self._eos, self._window_format = datasets[0]._eos, datasets[0]._format
            self._windows = concatenated_windows([dataset._windows for dataset in datasets])

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the dataset and the number within it of a sample in range."""
        number = bisect_right(self._bounds, index) - 1
        return number, index - self._bounds[number]

    def _locate_many(self, index: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the dataset of each sample, and its number within that; raise IndexError."""
        numbers, local = np.empty_like(index), np.empty_like(index)
        n_good = kernels.locate_many(self._cumulative, index, numbers, local)
        if n_good < len(index):
            raise IndexError(f"Index {index[n_good]} out of range [0, {self._total})")
        return numbers, local

    def _absolute(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Resolve negative indices, where the dataset takes them."""
        return index

    @property
    def _row_format(self) -> ConcatenatedRows:
        if self._concatenated_rows is None:
            sizes = enumerate(pairwise(self._bounds))
            formats = [self._row_dataset(number)._row_format for number, (start, end) in sizes if start < end]
            self._concatenated_rows = ConcatenatedRows(formats, self._numbered)
        return self._concatenated_rows

    def _row_dataset(self, number: int) -> RowDataset:
        dataset = self._row_datasets[number]
        if dataset is None:
            dataset = self._row_datasets[number] = SampleDataset(self.datasets[number])
        return dataset

    def _fill_rows(self, index: npt.NDArray[np.int64], arrays: Arrays, rows: RowNumbers | None) -> None:
        index = self._absolute(index)
        numbers, local = self._locate_many(index)
        if self._numbered and DATASET_IDX in arrays:
            arrays[DATASET_IDX][slice(None) if rows is None else rows] = numbers
            arrays = without_dataset_idx(arrays)
        if not arrays:
            return
        if self._windows is not None and self._window_format is not None and self._windows.uniform:
            block = self._window_format.block_in(arrays)
            fill_rows(self._windows.groups(index), arrays, block, self._eos, rows)
            return
        for number, order in _by_dataset(numbers):
            self._row_dataset(number)._fill_rows(local[order], arrays, order if rows is None else rows[order])

    def _why_no_windows(self) -> str | None:
        sizes = enumerate(pairwise(self._bounds))
        reasons = (self._row_dataset(number)._why_no_windows() for number, (start, end) in sizes if start < end)
        return next(filter(None, reasons), None)

    def _fill_spans(self, spans: Spans, arrays: Arrays) -> None:
        numbers, local = self._locate_many(self._absolute(spans.samples))
        if self._numbered and DATASET_IDX in arrays:
            arrays[DATASET_IDX][spans.rows] = numbers
            arrays = without_dataset_idx(arrays)
        if not arrays:
            return
        if self._windows is not None and self._windows.uniform:
            spans = spans._replace(samples=self._absolute(spans.samples))
            fill_window_spans(self._windows, self._eos, spans, arrays, negative=False)
            return
        for number, order in _by_dataset(numbers):
            self._row_dataset(number)._fill_spans(spans.chosen(order)._replace(samples=local[order]), arrays)

    def _will_need_spans(self, spans: Spans) -> None:
        numbers, local = self._locate_many(self._absolute(spans.samples))
        for number, order in _by_dataset(numbers):
            dataset = self._row_datasets[number]
            if dataset is not None:
                dataset._will_need_spans(spans.chosen(order)._replace(samples=local[order]))

    def _document_ends(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        numbers, local = self._locate_many(self._absolute(index))
        length, found = self._row_format.length, [np.zeros(0, np.int64)]
        for number, order in _by_dataset(numbers):
            ends = self._row_dataset(number)._document_ends(local[order])
            rows = (ends - 1) // length  # of the rows in `order`
            found.append(ends + (order[rows] - rows) * length)
        return np.sort(np.concatenate(found), kind="stable")

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples as `Rows` if all datasets have the same outputs, otherwise sample by sample."""
        if isinstance(indices, Selection) and "outputs" in indices.options:
            return super().__getitems__(indices)
        if self._alike is None:
            self._alike = self._are_alike()
        return super().__getitems__(indices) if self._alike else [self[index] for index in indices]

    def _are_alike(self) -> bool:
        """Return whether one batch holds the samples of all datasets: the same names, shapes and dtypes."""
        forms = []
        for number, (start, end) in enumerate(pairwise(self._bounds)):
            dataset = self._row_datasets[number]
            if start == end:
                continue
            if dataset is None or isinstance(dataset, SampleDataset):
                return False
            if isinstance(dataset, Concatenation) and not dataset._are_alike():
                return False
            forms.append({name: (array.shape, array.dtype) for name, array in dataset.new_outputs(1).items()})
        return bool(forms) and all(form == forms[0] for form in forms)

    def _identity(self) -> bytes:
        parts = [dataset._identity() if isinstance(dataset, Dataset) else b"" for dataset in self.datasets]
        return repr([*self._bounds, *map(len, parts)]).encode() + b"".join(parts)

    def row_spans(self, indices: Indices) -> RowSpans:
        """Return where the tokens of samples lie in the files of the datasets, without reading them.

        Parameters
        ----------
        indices
            Sample numbers of the concatenation.

        Returns
        -------
        RowSpans
            The dataset, the file and the token range of each sample; datasets of a concatenation in this one are
            numbered one by one, in their order. Samples of datasets without files have none.

        Raises
        ------
        IndexError
            If an index is out of range.
        """
        numbers, local = self._locate_many(self._absolute(item_numbers(indices)))
        found, firsts = [row_spans(*np.empty((3, 0), np.int64))], self._first_sources
        for number, order in _by_dataset(numbers):
            dataset = self.datasets[number]
            if isinstance(dataset, Traceable):
                spans = dataset.row_spans(local[order])
                sources = spans.sources + firsts[number]
                found.append(spans._replace(rows=order[spans.rows], sources=sources))
        joined = RowSpans(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
        return joined.chosen(np.argsort(joined.rows, kind="stable"))

    @property
    def _first_sources(self) -> list[int]:
        """The number of the first source of each dataset, and of all sources."""
        counts = (one._first_sources[-1] if isinstance(one, Concatenation) else 1 for one in self.datasets)
        return [0, *accumulate(counts)]

    def token_files(self, source: int = 0) -> Sequence[str]:
        """Return the paths of the files of a dataset that `row_spans` numbers.

        Parameters
        ----------
        source
            The number of the dataset.

        Returns
        -------
        sequence of str
            The paths.
        """
        firsts = self._first_sources
        number = bisect_right(firsts, source) - 1
        dataset = self.datasets[number]
        return dataset.token_files(source - firsts[number]) if isinstance(dataset, Traceable) else []

    def _sample_names(self, index: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        numbers, local = self._locate_many(self._absolute(index))
        names: list[dict[str, Any]] = [{} for _ in index]
        for number, order in _by_dataset(numbers):
            dataset = self.datasets[number]
            if isinstance(dataset, NamedSamples):
                for place, found in zip(order.tolist(), dataset._sample_names(local[order]), strict=True):
                    names[place] = found
        return names

    def will_need(self, indices: Indices) -> None:
        """Hint each dataset to prefetch its samples among `indices`.

        Parameters
        ----------
        indices
            Sample numbers of the concatenation.
        """
        numbers, local = self._locate_many(self._absolute(item_numbers(indices)))
        for number, order in _by_dataset(numbers):
            dataset = self.datasets[number]
            if isinstance(dataset, Dataset):
                dataset.will_need(local[order])

    def check_unchanged(self) -> None:
        """Raise FormatError if a file of one of the datasets has changed since construction."""
        for dataset in self.datasets:
            if isinstance(dataset, Dataset):
                dataset.check_unchanged()

    def close(self) -> None:
        """Close the datasets that have a `close`."""
        super().close()
        if self._windows is not None:
            self._windows.close()
        for dataset in self.datasets:
            if isinstance(dataset, Closeable):
                dataset.close()

    def state_dict(self) -> dict[str, Any]:
        """Return {"dataset_0": its state, ...} of the datasets that have a `state_dict`.

        Returns
        -------
        dict
            The states by "dataset_<number>".
        """
        return {
            f"dataset_{number}": dataset.state_dict()
            for number, dataset in enumerate(self.datasets)
            if isinstance(dataset, Stateful)
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state of each dataset that `state` names.

        Parameters
        ----------
        state
            A state of `state_dict`; datasets that it does not contain keep their state.
        """
        for number, dataset in enumerate(self.datasets):
            if f"dataset_{number}" in state and isinstance(dataset, Stateful):
                dataset.load_state_dict(state[f"dataset_{number}"])


def _by_dataset(numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, RowNumbers]]:
    """Yield each dataset with the positions of its samples in the batch."""
    order, start = np.argsort(numbers, kind="stable"), 0
    for number, n_rows in enumerate(np.bincount(numbers).tolist()):
        if n_rows:
            yield number, order[start : start + n_rows]
            start += n_rows
