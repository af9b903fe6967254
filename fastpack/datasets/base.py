"""The interface that all datasets share: length, state, closing, and batches of token rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.datasets.outputs import (
    DOCUMENT_OUTPUTS,
    ROW_OUTPUTS,
    Allocate,
    Arrays,
    Batch,
    IntArray,
    OutputDtype,
    Outputs,
    add_document_bounds,
    check_apart,
    check_whole,
    split_outputs,
)
from fastpack.datasets.row_format import OutputOptions, RowFormat
from fastpack.datasets.row_shares import Spans, copy_row_spans
from fastpack.datasets.window_groups import RowNumbers
from fastpack.display import Described, facts
from fastpack.item_numbers import item_numbers
from fastpack.tokens.common_fingerprint import Recorded

Indices: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]


class Rows(list[dict[str, Any]]):
    """The samples of a batch as a list of dicts; their arrays are views of those in `batch`."""

    def __init__(self, batch: Outputs) -> None:
        self.batch = batch
        # One number per sample (dataset_idx) becomes a Python int, as in the sample itself.
        columns = [array.tolist() if array.ndim == 1 else array for array in batch.values()]
        super().__init__(dict(zip(batch, values, strict=True)) for values in zip(*columns, strict=True))


class Selection(list[int]):
    """The sample numbers of a batch, with the options of `batch` that produce its rows."""

    def __init__(self, indices: Sequence[int], options: dict[str, Any]) -> None:
        super().__init__(indices)
        self.options = options


class Dataset(Described):
    """Base class of all datasets: length, state, closing."""

    _shown = facts(samples="_total", closed="_closed")

    _not_pickled: ClassVar[tuple[str, ...]] = ()  # attributes that `_attach` sets
    _total: int
    _epoch = 0
    _closed = False
    _recorded: Recorded | None = None
    _arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})  # of the constructor, or of `_described`

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Keep the arguments, from which a description of a run makes the dataset again."""
        dataset = super().__new__(cls)
        dataset._arguments = (arguments, options)
        return dataset

    def _recorded_tokenizer(self) -> Recorded | None:
        """Return a token file of the dataset and its tokenizer, if it is recorded."""
        return self._recorded

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples `indices` as a list; torch's DataLoader calls this once per batch."""
        return [self[index] for index in indices]

    def state_dict(self) -> dict[str, Any]:
        """Return {"epoch", "total_samples"}.

        Returns
        -------
        dict
            The state, as JSON values.
        """
        return {"epoch": self._epoch, "total_samples": len(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the epoch; total_samples is not compared (as in KempnerForge).

        Parameters
        ----------
        state
            A state of `state_dict`.
        """
        self._epoch = state.get("epoch", 0)

    def will_need(self, indices: Indices) -> None:
        """Hint the OS to prefetch these samples. Returns immediately; a no-op where unsupported.

        Parameters
        ----------
        indices
            Sample numbers.
        """

    def check_unchanged(self) -> None:
        """Raise FormatError if a file of the dataset has changed since construction."""

    def close(self) -> None:
        """Release the mappings; closing twice is allowed. Batches that were returned stay valid."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{type(self).__name__} is closed")

    def _identity(self) -> bytes:
        """Return bytes that differ for other files."""
        return b""

    def _attach(self) -> None:
        """Open or compute what is not pickled: after construction and after unpickling."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self._not_pickled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class RowDataset(Dataset):
    """Base class of the datasets whose samples are rows of equal length, so that a batch is a few [B, L] arrays.

    A subclass states which arrays it fills (`_row_format`) and fills them (`_fill_rows`).
    """

    @property
    def _row_format(self) -> RowFormat:
        raise NotImplementedError

    def _fill_rows(self, index: npt.NDArray[np.int64], arrays: Arrays, rows: RowNumbers | None) -> None:
        """Write sample index[k] into row rows[k] (None: row k) of each of the checked `arrays`."""
        raise NotImplementedError

    def _why_no_windows(self) -> str | None:
        """Return why `_fill_rows` cannot write WINDOWS, whose labels are input_ids one token later; None if it can."""
        return f"the labels of a {type(self).__name__} are not its input_ids shifted by one token"

    def _fill_spans(self, spans: Spans, arrays: Arrays) -> None:
        """Write spans of rows into `arrays`; a subclass that need not fill whole rows for it overrides this."""
        row_format = self._row_format
        dtype = next((str(array.dtype) for name, array in arrays.items() if name in ROW_OUTPUTS), None)
        one = row_format.allocate(1, OutputOptions(tuple(arrays), dtype, None), np.empty)  # type: ignore[arg-type]
        cut = {name: array for name, array in one.items() if array.shape[1:] == (row_format.length,)}
        copy_row_spans(lambda index, rows: self._fill_rows(index, rows, None), cut, spans, arrays)

    def _will_need_spans(self, spans: Spans) -> None:
        """Hint the OS to prefetch spans of rows, or the whole rows."""
        self.will_need(np.unique(spans.samples))

    def _document_ends(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the ends of the documents in the rows `index` as one sequence, exclusive, ascending: int64 [n]."""
        out: Outputs = {"cu_seqlens": None}
        self.fill(index, out)
        return np.unique(out["cu_seqlens"][1:]).astype(np.int64)

    def _require_documents(self, outputs: Iterable[str]) -> None:
        """Raise ValueError for an output that needs document boundaries, if they are not known."""
        unknown = [name for name in outputs if name in DOCUMENT_OUTPUTS]
        if unknown and not self._row_format.has_documents:
            raise ValueError(f"{unknown[0]} need the dataset's eos_token_id")

    def new_outputs(
        self,
        n_rows: int,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype | None = None,
        cu_seqlens_length: int | None = None,
        empty: Allocate = np.empty,
    ) -> Outputs:
        """Allocate the arrays that `fill` takes, with undefined content.

        Parameters
        ----------
        n_rows
            The number of samples.
        outputs, dtype, cu_seqlens_length
            As for `batch`.
        empty
            Allocates an array: `empty(shape, dtype)`.

        Returns
        -------
        dict
            The arrays by name. max_seqlen, and cu_seqlens without a fixed length, are None: `fill` creates them.

        Raises
        ------
        ValueError
            If an output is unknown.
        """
        return self._row_format.allocate(n_rows, OutputOptions(outputs, dtype, cu_seqlens_length), empty)

    def fill(self, indices: Indices, out: Outputs) -> None:
        """Write the samples `indices` into the arrays of `out`, in place.

        Parameters
        ----------
        indices
            B integers in range; bools, floats and strings are refused.
        out
            Arrays by output name. No two of them may share memory, and no other thread may write to them meanwhile.

            - input_ids, labels, doc_ids, position_ids: [B, L], C-contiguous, all int64 or all int32. position_ids
              count from 0 in every document and every row. Labels are -100 where the loss mask of the token file
              says that the token does not count (see `pack_conversations`).
            - cu_seqlens: int32 [n], the ends of documents and rows in the batch taken as one sequence of B * L tokens,
              after a leading 0 (as FlashAttention expects); remaining entries repeat the last one. None is replaced by
              an array of exactly the required length.
            - max_seqlen: the length of the longest document, written into a 0-d array; any other value is replaced by
              an int.
            - the key of the samples, for datasets that return blocks: [B, block_size], as the only array.
            - dataset_idx, for a `MixtureDataset`: int64 [B], the number of each sample's dataset.

        Raises
        ------
        IndexError
            If an index is out of range.
        TypeError
            If an index is not an integer.
        ValueError
            If an array does not fit (for cu_seqlens the message states the required length), if documents are not
            known, or if the dataset is closed.
        OverflowError
            If a token does not fit into int32.
        """
        index, row_format = item_numbers(indices), self._row_format
        self._require_documents(out)
        arrays, whole = out, "cu_seqlens" in out or "max_seqlen" in out
        if whole:
            check_whole(out)
            arrays = split_outputs(out, len(index), row_format.length)
        row_format.check(arrays, len(index))
        check_apart(out)
        self._check_open()
        if arrays:
            self._fill_rows(index, arrays, None)
        if whole:
            add_document_bounds(out, arrays["position_ids"])

    def batch(
        self,
        indices: Indices,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype | None = None,
        out: Outputs | None = None,
        *,
        cu_seqlens_length: int | None = None,
    ) -> Batch[IntArray]:
        """Return the samples `indices` as arrays by name.

        Parameters
        ----------
        indices
            B integers in range.
        outputs
            Which outputs to return, of input_ids, labels, doc_ids, position_ids (each [B, L]), cu_seqlens (int32 [n])
            and max_seqlen (an int); see `fill` for their content. By default input_ids, labels and, where documents
            are known, doc_ids; a dataset of blocks returns {sample_key: [B, block_size]}.
        dtype
            The dtype of new arrays. By default int64, and for blocks that of `[i]`.
        out
            Arrays to fill instead of new ones; they are returned. (Allocating a batch costs 1.5 to 3.5 times the
            filling.)
        cu_seqlens_length
            Pad cu_seqlens to this length.

        Returns
        -------
        dict
            The arrays by name; `out` if it was given.

        Raises
        ------
        IndexError, TypeError, ValueError, OverflowError
            As `fill`.
        """
        if out is None:
            out = self.new_outputs(len(indices), outputs, dtype, cu_seqlens_length)
        self.fill(indices, out)
        return out  # type: ignore[return-value]  # a plain dict at run time

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples as `Rows`, a list of dicts made by one `batch`; torch's DataLoader calls this.

        torch's default collate copies them into a batch. To get the batch without that copy, pass the DataLoader
        `collate_fn=lambda rows: rows.batch`.
        """
        options = indices.options if isinstance(indices, Selection) else {}
        return Rows(self.batch(indices, **options))
