"""Groups of windows that share a dtype, and the kernel calls that write them into the rows of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.outputs import OUTPUT_DTYPES, Arrays

Tokens: TypeAlias = npt.NDArray[Any]
RowNumbers: TypeAlias = npt.NDArray[np.int64]

# Empty arrays that select a kernel's dtype specialisation.
_DTYPE_SELECTORS = {np.dtype(code): np.empty(0, code) for code in ("u1", "u2", "u4", "i1", "i2", "i4", "i8")}


class WindowGroup(NamedTuple):
    """Windows of one dtype, given by address; window k belongs to row rows[k]."""

    addresses: npt.NDArray[np.uint64]
    rows: RowNumbers
    dtype_selector: Tokens
    owner: object  # keeps the memory at the addresses alive


def dtype_selector(tokens: Tokens) -> Tokens | None:
    """Return the array that selects the kernel for `tokens`, None if there is no kernel for its dtype or layout."""
    supported = tokens.ndim == 1 and tokens.flags.aligned and tokens.flags.c_contiguous
    return _DTYPE_SELECTORS.get(tokens.dtype) if supported else None


def selector_of(dtype: np.dtype[Any]) -> Tokens | None:
    """Return the array that selects the kernel for a dtype, None if there is none; uint64 are read as int64."""
    return _DTYPE_SELECTORS.get(np.dtype(np.int64) if dtype == np.uint64 and dtype.isnative else dtype)


def address_of(tokens: Tokens) -> int:
    """Return the address of the first token."""
    address: int = tokens.__array_interface__["data"][0]
    return address


def row_addresses(array: Tokens) -> npt.NDArray[np.uint64]:
    """Return the address of each row of a two-dimensional array."""
    return np.uint64(address_of(array)) + np.arange(len(array), dtype=np.uint64) * np.uint64(array.strides[0])


def copied_group(windows: Sequence[Tokens], rows: RowNumbers) -> WindowGroup:
    """Copy windows of equal length to int64: for dtypes without a kernel."""
    copies = np.empty((len(windows), len(windows[0])), np.int64)
    for copy, window in zip(copies, windows, strict=True):
        copy[:] = window
    return WindowGroup(row_addresses(copies), rows, _DTYPE_SELECTORS[copies.dtype], copies)


def fill_rows(
    groups: Iterable[WindowGroup],
    arrays: Arrays,
    block: str | None,
    eos: int | None,
    rows: RowNumbers | None = None,
) -> None:
    """Write windows of L + 1 tokens into the rows of checked arrays.

    Parameters
    ----------
    arrays
        input_ids, labels, doc_ids, position_ids: [n, L]; or one array [n, L + 1] that takes whole windows.
    block
        The name of that one array, None if there is none.
    eos
        The token that ends a document, None where documents are unknown: then only input_ids and labels are filled.
    rows
        The row of each window; by default window k fills row k.

    Raises
    ------
    OverflowError
        If a token does not fit into int32 outputs.
    """
    if block is not None:
        _fill_blocks(groups, arrays[block], rows)
        return
    kernel: Any = kernels.fill_plain
    names: tuple[str, ...] = ("input_ids", "labels")
    if "position_ids" in arrays:
        kernel, names = kernels.fill_documents, ("input_ids", "labels", "doc_ids", "position_ids")
    elif eos is not None:
        kernel, names = kernels.fill_packed, ("input_ids", "labels", "doc_ids")
    first = next(iter(arrays.values()))
    outputs = [arrays[name] if name in arrays else np.empty_like(first) for name in names]
    eos_argument = () if eos is None else (eos,)
    for group in groups:
        target = group.rows if rows is None else rows[group.rows]
        misfit = kernel(group.addresses, target, group.dtype_selector, *eos_argument, *outputs)
        check_fit(misfit, group.dtype_selector)


def _fill_blocks(groups: Iterable[WindowGroup], blocks: Tokens, rows: RowNumbers | None) -> None:
    """Write whole windows into `blocks`, through an int64 copy where no kernel writes to it (uint8, strided)."""
    has_kernel = blocks.dtype in OUTPUT_DTYPES and blocks.flags.c_contiguous
    for group in groups:
        target = group.rows if rows is None else rows[group.rows]
        if has_kernel:
            check_fit(kernels.fill_tokens(group.addresses, target, group.dtype_selector, blocks), group.dtype_selector)
            continue
        copies = np.empty((len(target), blocks.shape[1]), np.int64)
        kernels.fill_tokens(group.addresses, np.arange(len(target)), group.dtype_selector, copies)
        blocks[target] = copies


def check_fit(misfit: int, selector: Tokens) -> None:
    """Raise OverflowError if a kernel reported a token that does not fit."""
    if misfit:
        raise OverflowError(f"a token of {selector.dtype} does not fit into int32 outputs: pass dtype='int64'")
