"""Which arrays a dataset fills: their names, shapes and dtypes, how to allocate them, and how to check them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastpack.datasets.outputs import (
    LOSS_MASK,
    OUTPUT_DTYPES,
    OUTPUTS,
    PAIR_OUTPUTS,
    ROW_OUTPUTS,
    WHOLE_OUTPUTS,
    Allocate,
    Arrays,
    OutputDtype,
    Outputs,
    check_grids,
    check_memory,
)

DATASET_IDX = "dataset_idx"
WINDOWS = "windows"  # [B, L + 1]: input_ids and, one token later, labels in one array


class OutputOptions(NamedTuple):
    """The options of `batch` that determine its arrays."""

    outputs: Sequence[str] | None
    dtype: OutputDtype | None
    cu_seqlens_length: int | None


class RowFormat(Protocol):
    """The outputs of the rows of a dataset."""

    @property
    def length(self) -> int:
        """The tokens of a row of input_ids."""
        ...

    @property
    def has_documents(self) -> bool:
        """Whether document boundaries are known, and so doc_ids and the outputs derived from them."""
        ...

    @property
    def default(self) -> tuple[str, ...]:
        """The outputs of a batch by default."""
        ...

    def allocate(self, n_rows: int, options: OutputOptions, empty: Allocate) -> Outputs:
        """Return undefined arrays for a batch; cu_seqlens (without a fixed length) and max_seqlen are None."""
        ...

    def check(self, arrays: Arrays, n_rows: int) -> None:
        """Raise ValueError for arrays that do not belong to this format or cannot be filled."""
        ...


@dataclass(frozen=True)
class TokenRows:
    """Rows cut from windows of length + 1 tokens: ROW_OUTPUTS, or a block: the whole window in one array.

    Parameters
    ----------
    block_key, block_dtype
        The name of blocks and the dtype that `[i]` has; None for datasets without blocks.
    """

    length: int
    has_documents: bool
    block_key: str | None = None
    block_dtype: np.dtype[Any] | None = None

    @property
    def default(self) -> tuple[str, ...]:
        if self.block_key is not None:
            return (self.block_key,)
        return PAIR_OUTPUTS if self.has_documents else PAIR_OUTPUTS[:2]

    def allocate(self, n_rows: int, options: OutputOptions, empty: Allocate) -> Outputs:
        outputs, dtype, cu_seqlens_length = options
        if outputs is None and self.block_key is not None and cu_seqlens_length is None:
            return {self.block_key: empty((n_rows, self.length + 1), np.dtype(dtype or self.block_dtype))}
        out: Outputs = {}
        for name in self.default if outputs is None else outputs:
            if name not in OUTPUTS:
                raise ValueError(f"unknown output {name!r}: choose from {', '.join(OUTPUTS)}")
            if name == "cu_seqlens" and cu_seqlens_length is not None:
                out[name] = empty((cu_seqlens_length,), np.int32)
            else:
                out[name] = None if name in WHOLE_OUTPUTS else empty((n_rows, self.length), dtype or "int64")
        if cu_seqlens_length is not None and "cu_seqlens" not in out:
            raise ValueError("cu_seqlens_length= is for the output cu_seqlens, which was not requested")
        return out

    def block_in(self, arrays: Arrays) -> str | None:
        """Return the name of the array that takes blocks, if `arrays` is just that."""
        if WINDOWS in arrays:
            return WINDOWS
        name = self.block_key
        if name is None or len(arrays) != 1 or name not in arrays:
            return None
        # A block_key of "input_ids" is common: the width of the array then distinguishes a block from input_ids.
        is_grid = name in ROW_OUTPUTS and np.shape(arrays[name])[1:] == (self.length,)
        return None if is_grid else name

    def check(self, arrays: Arrays, n_rows: int) -> None:
        name = self.block_in(arrays)
        if name is None:
            check_grids(arrays, (n_rows, self.length))
            return
        blocks, shape = arrays[name], (n_rows, self.length + 1)
        if not isinstance(blocks, np.ndarray):
            raise ValueError(f"{name} is a {type(blocks).__name__}, an array is needed")
        if blocks.shape != shape:
            raise ValueError(f"{name} has shape {blocks.shape}, {shape} is needed")
        if blocks.dtype not in OUTPUT_DTYPES and blocks.dtype != self.block_dtype:
            raise ValueError(f"{name} has dtype {blocks.dtype}: int64, int32 or {self.block_dtype} is needed")
        if not (blocks.flags.writeable and blocks.flags.aligned):
            raise ValueError(f"{name} must be aligned and writeable")


@dataclass(frozen=True)
class PlannedRows(TokenRows):
    """Rows of documents: the outputs of `TokenRows`, and loss_mask, bool [B, L].

    Parameters
    ----------
    names
        The outputs of a batch by default.
    """

    names: tuple[str, ...] = PAIR_OUTPUTS

    @property
    def default(self) -> tuple[str, ...]:
        return self.names

    def allocate(self, n_rows: int, options: OutputOptions, empty: Allocate) -> Outputs:
        names = self.names if options.outputs is None else options.outputs
        others = options._replace(outputs=[name for name in names if name != LOSS_MASK])
        out = super().allocate(n_rows, others, empty)
        return {n: empty((n_rows, self.length), np.dtype(np.bool_)) if n == LOSS_MASK else out[n] for n in names}

    def check(self, arrays: Arrays, n_rows: int) -> None:
        if LOSS_MASK in arrays:
            mask, shape = arrays[LOSS_MASK], (n_rows, self.length)
            if not isinstance(mask, np.ndarray) or mask.shape != shape or mask.dtype != np.bool_:
                raise ValueError(f"loss_mask must be an array of bool {list(shape)}")
            check_memory(LOSS_MASK, mask)
        super().check({name: array for name, array in arrays.items() if name != LOSS_MASK}, n_rows)


@dataclass(frozen=True, eq=False)
class SampleRows:
    """Rows that are copied from dicts of arrays whose shapes do not change from sample to sample.

    Parameters
    ----------
    kind
        The name of the dataset's class, for messages.
    first
        The arrays of one sample.
    """

    kind: str
    first: Mapping[str, npt.NDArray[Any]]

    @property
    def length(self) -> int:
        return max((len(array) for name, array in self.first.items() if name in ROW_OUTPUTS), default=0)

    @property
    def has_documents(self) -> bool:
        return "doc_ids" in self.first

    @property
    def default(self) -> tuple[str, ...]:
        return tuple(name for name in self.first if name != DATASET_IDX)

    def allocate(self, n_rows: int, options: OutputOptions, empty: Allocate) -> Outputs:
        own = {name: array for name, array in self.first.items() if name not in ROW_OUTPUTS}
        names = self.default if options.outputs is None else options.outputs
        tokens = TokenRows(self.length, self.has_documents)
        out = tokens.allocate(n_rows, options._replace(outputs=[name for name in names if name not in own]), empty)
        return {n: empty((n_rows, *own[n].shape), own[n].dtype) if n in own else out[n] for n in names}

    def check(self, arrays: Arrays, n_rows: int) -> None:
        for name, array in arrays.items():
            if name not in self.first:
                raise ValueError(f"unknown output {name!r}: a {self.kind} has {list(self.first)}")
            if not isinstance(array, np.ndarray) or not array.flags.writeable:
                raise ValueError(f"{name} must be an array, and writeable")
            shape = (n_rows, *self.first[name].shape)
            if array.shape != shape:
                raise ValueError(f"{name} has shape {array.shape}, {shape} is needed")


class ConcatenatedRows:
    """Rows of several datasets in one batch: outputs that all of them have, of one length.

    Parameters
    ----------
    formats
        One per dataset that has samples.
    numbered
        Whether a batch has dataset_idx as well: int64 [B].

    Raises
    ------
    ValueError
        If there is no format, or the lengths differ.
    """

    def __init__(self, formats: Sequence[RowFormat], numbered: bool) -> None:
        if not formats:
            raise ValueError("none of the datasets has a sample")
        lengths = {one.length for one in formats}
        if len(lengths) > 1:
            raise ValueError(f"the datasets' rows differ in length: {sorted(lengths)} tokens")
        self.length = lengths.pop()
        self.has_documents = all(one.has_documents for one in formats)
        self._numbered = numbered
        self._distinct: list[RowFormat] = []
        for one in formats:
            if one not in self._distinct:
                self._distinct.append(one)

    @property
    def default(self) -> tuple[str, ...]:
        names = {one.default for one in self._distinct}
        if len(names) > 1:
            raise ValueError(f"the datasets give different outputs, {sorted(names)}: name those you want")
        return (*names.pop(), DATASET_IDX) if self._numbered else names.pop()

    def allocate(self, n_rows: int, options: OutputOptions, empty: Allocate) -> Outputs:
        names = self.default if options.outputs is None else options.outputs  # raises where the datasets differ
        numbered = self._numbered and DATASET_IDX in names
        if options.outputs is not None and self._numbered:
            options = options._replace(outputs=[name for name in options.outputs if name != DATASET_IDX])
        out = self._distinct[0].allocate(n_rows, options, empty)
        if numbered:
            out[DATASET_IDX] = empty((n_rows,), np.dtype(np.int64))
        return out

    def check(self, arrays: Arrays, n_rows: int) -> None:
        if self._numbered and DATASET_IDX in arrays:
            _check_numbers(arrays[DATASET_IDX], n_rows)
            arrays = without_dataset_idx(arrays)
        for one in self._distinct:
            one.check(arrays, n_rows)


def without_dataset_idx(arrays: Arrays) -> Arrays:
    """Return `arrays` without dataset_idx."""
    return {name: array for name, array in arrays.items() if name != DATASET_IDX}


def _check_numbers(numbers: npt.NDArray[Any], n_rows: int) -> None:
    if numbers.shape != (n_rows,) or numbers.dtype != np.int64:
        raise ValueError(f"dataset_idx is {numbers.dtype} {list(numbers.shape)}, int64 [{n_rows}] is needed")
    if not numbers.flags.writeable:
        raise ValueError("dataset_idx must be writeable")
