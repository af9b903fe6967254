"""What every dataset shares: length, state, closing, and batches of rows of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.datasets.outputs import (
    DOCUMENT_OUTPUTS,
    PAIR_OUTPUTS,
    WHOLE_OUTPUTS,
    OutputDtype,
    add_bounds,
    check_apart,
    check_grids,
    check_whole,
    new_outputs,
    split_outputs,
)
from fastpack.datasets.windows import Grids, Outputs, Windows, fill_grids
from fastpack.display import Described, facts
from fastpack.item_numbers import item_numbers

Indices: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]
Empty: TypeAlias = Callable[[tuple[int, ...], Any], npt.NDArray[Any]]


class Rows(list[dict[str, Any]]):
    """The samples of a batch, each a dict of rows (views) of the arrays in `batch`."""

    def __init__(self, batch: Outputs) -> None:
        self.batch = batch
        # Numbers, one a sample (dataset_idx), become Python ints, as the sample itself has them.
        columns = [array.tolist() if array.ndim == 1 else array for array in batch.values()]
        super().__init__(dict(zip(batch, values, strict=True)) for values in zip(*columns, strict=True))


class Selection(list[int]):
    """Sample numbers of a batch with the options of `batch` that its rows are to be made with."""

    def __init__(self, indices: Sequence[int], options: dict[str, Any]) -> None:
        super().__init__(indices)
        self.options = options


class Dataset(Described):
    """Base of all datasets of fastpack: length, state, closing."""

    _shown = facts(samples="_total", closed="_closed")

    _total: int
    _epoch = 0
    _closed = False

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples `indices` as a list: what torch's DataLoader asks a dataset for, a batch at a time."""
        return [self[index] for index in indices]

    def state_dict(self) -> dict[str, Any]:
        """{"epoch", "total_samples"}."""
        return {"epoch": self._epoch, "total_samples": len(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the epoch (total_samples is not compared, as in KempnerForge)."""
        self._epoch = state.get("epoch", 0)

    def will_need(self, indices: Indices) -> None:
        """Have the system read samples that come soon in the background; at once back, and no harm where it cannot."""

    def check_unchanged(self) -> None:
        """FormatError when a file behind the dataset is not the one it was when the dataset was made."""

    def close(self) -> None:
        """Let go of the mappings; harmless when called again. Batches handed out stay valid."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{type(self).__name__} is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class BatchDataset(Dataset):
    """Base of the datasets whose samples are rows of equal length, so that a batch is a few [B, L] arrays."""

    def _row_length(self) -> int:
        """L, the tokens of a row of input_ids."""
        raise NotImplementedError

    def _has_documents(self) -> bool:
        """Whether doc_ids and what follows from them are known."""
        raise NotImplementedError

    def _fill_rows(self, index: npt.NDArray[np.int64], grids: Grids, rows: npt.NDArray[np.int64] | None) -> None:
        """Write sample index[k] into row rows[k] (None: k) of each of the `grids`, which were checked."""
        raise NotImplementedError

    def _check_grids(self, grids: Grids, n_rows: int) -> None:
        """ValueError for grids that are not this dataset's."""
        check_grids(grids, (n_rows, self._row_length()))

    def _default_outputs(self) -> tuple[str, ...]:
        return PAIR_OUTPUTS if self._has_documents() else PAIR_OUTPUTS[:2]

    def new_outputs(
        self,
        n_rows: int,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype | None = None,
        cu_seqlens_length: int | None = None,
        empty: Empty = np.empty,
    ) -> Outputs:
        """What `batch` fills: {name: array} for `n_rows` samples, made by `empty(shape, dtype)`; arguments as there.

        cu_seqlens without a fixed length and max_seqlen are None: they come to be in `fill`.
        """
        names = self._default_outputs() if outputs is None else outputs
        return new_outputs(names, (n_rows, self._row_length()), dtype or "int64", cu_seqlens_length, empty)

    def fill(self, indices: Indices, out: Outputs) -> None:
        """Write the samples `indices` [B] into the arrays of `out`, any of these names, in place.

        indices: integers, in range; bools, floats and texts are none.
        input_ids, labels, doc_ids, position_ids: [B, L], C-contiguous, all int64 or all int32. position_ids count from
        0 at every document and every row. cu_seqlens: int32 [n], where documents and rows end in the batch as one
        sequence of B * L tokens, behind a leading 0 (as FlashAttention takes them); what is left of it repeats the
        last; or None, and an array of just the right length takes its place. max_seqlen: the longest document, written
        into a 0-d array; anything else is replaced by a Python int. No two arrays may share memory, and no other thread
        may write to them meanwhile.

        Raises IndexError for an index out of range, TypeError for one that is no integer, ValueError for arrays that do
        not fit (cu_seqlens that are too short say how many are needed) or documents that are not known, OverflowError
        for a token beyond int32.
        """
        index = item_numbers(indices)
        if not self._has_documents() and not DOCUMENT_OUTPUTS.isdisjoint(out):
            unknown = next(name for name in out if name in DOCUMENT_OUTPUTS)
            raise ValueError(f"{unknown} need the dataset's eos_token_id")
        whole = any(name in out for name in WHOLE_OUTPUTS)
        grids = out
        if whole:
            check_whole(out)
            grids = split_outputs(out, len(index), self._row_length())
        self._check_grids(grids, len(index))
        check_apart(out)
        self._check_open()
        if grids:
            self._fill_rows(index, grids, None)
        if whole:
            add_bounds(out, grids["position_ids"])

    def batch(
        self,
        indices: Indices,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype | None = None,
        out: Outputs | None = None,
        *,
        cu_seqlens_length: int | None = None,
    ) -> Outputs:
        """The samples as {name: [B, L]}: input_ids, labels and, where documents are known, doc_ids.

        outputs: which (default: those), also position_ids, cu_seqlens (int32 [n], of the length it needs, or padded to
        cu_seqlens_length) and max_seqlen (an int): what they hold is said in `fill`. dtype: int64 (default) or int32.
        out: arrays to write into instead of new ones (a new allocation a batch costs 1.5 to 3.5 times the work); it is
        what comes back. Errors as in `fill`.
        """
        if out is None:
            out = self.new_outputs(len(indices), outputs, dtype, cu_seqlens_length)
        self.fill(indices, out)
        return out

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples as `Rows`, a list of dicts made by one `batch`: what torch's DataLoader asks a dataset for.

        Its default collate stacks them once more. To have the batch as it is, uncopied, give the DataLoader
        `collate_fn=lambda rows: rows.batch`: the dict of [B, L] arrays behind the rows.
        """
        options = indices.options if isinstance(indices, Selection) else {}
        return Rows(self.batch(indices, **options))


class WindowDataset(BatchDataset):
    """Base of the datasets whose samples are windows of `_window` tokens."""

    _windows: Windows
    _window: int
    _eos: int | None
    _negative = False  # whether negative indices count from the end

    def close(self) -> None:
        super().close()
        self._windows.close()

    def _row_length(self) -> int:
        return self._window - 1

    def _has_documents(self) -> bool:
        return self._eos is not None

    def _fill_rows(self, index: npt.NDArray[np.int64], grids: Grids, rows: npt.NDArray[np.int64] | None) -> None:
        fill_grids(self._windows.groups(index, self._negative), grids, self._eos, rows)

    def will_need(self, indices: Indices) -> None:
        """Have the system read the pages of these samples in the background: for batches that come soon.

        Costs little where they are in memory. From the first call on, the mappings count as read at random: a page
        that is touched brings no neighbours along. Raises IndexError.
        """
        self._check_open()
        self._windows.will_need(item_numbers(indices), self._negative)
