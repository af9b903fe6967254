"""The arrays of a batch: names, types, checks, and the outputs that are derived from others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

from fastpack import kernels

IntArray: TypeAlias = npt.NDArray[np.integer[Any]]
ArrayT = TypeVar("ArrayT")

if TYPE_CHECKING:

    class Batch(dict[str, ArrayT]):
        """The outputs of a batch by name; a plain dict at run time.

        Arrays [B, L], except cu_seqlens (int32 [n]), dataset_idx (int64 [B]) and max_seqlen (an int).
        """

        @overload
        def __getitem__(self, name: Literal["max_seqlen"], /) -> Any: ...
        @overload
        def __getitem__(self, name: str, /) -> ArrayT: ...
        def __getitem__(self, name: str, /) -> Any: ...

else:
    Batch = dict

Outputs: TypeAlias = dict[str, Any]  # arrays by name; cu_seqlens and max_seqlen may be None until `fill` creates them
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
OutputDtype: TypeAlias = Literal["int64", "int32"]
Allocate: TypeAlias = Callable[[tuple[int, ...], Any], npt.NDArray[Any]]

OUTPUT_DTYPES = frozenset((np.dtype(np.int64), np.dtype(np.int32)))
PAIR_OUTPUTS = ("input_ids", "labels", "doc_ids")
ROW_OUTPUTS = (*PAIR_OUTPUTS, "position_ids")  # [B, L] each: a row belongs to one sample
WHOLE_OUTPUTS = ("cu_seqlens", "max_seqlen")  # of the batch as one sequence of B * L tokens
OUTPUTS = ROW_OUTPUTS + WHOLE_OUTPUTS
LOSS_MASK = "loss_mask"  # bool [B, L], of datasets of planned rows
DOCUMENT_OUTPUTS = frozenset(("doc_ids", "position_ids", *WHOLE_OUTPUTS))


def split_outputs(out: Outputs, n_rows: int, length: int) -> Arrays:
    """Return the arrays of `out` other than cu_seqlens and max_seqlen, with position_ids, created if necessary."""
    if n_rows * length > np.iinfo(np.int32).max:
        raise ValueError(f"cu_seqlens are int32: a batch of {n_rows} x {length} tokens is too long for them")
    arrays = {name: array for name, array in out.items() if name not in WHOLE_OUTPUTS}
    if "position_ids" not in arrays:
        rows = (array for name, array in arrays.items() if name in (*ROW_OUTPUTS, "tokens"))
        dtype = next((array.dtype for array in rows), np.dtype(np.int32))
        arrays["position_ids"] = np.empty((n_rows, length), dtype)
    return arrays


def check_grids(arrays: Arrays, shape: tuple[int, int]) -> None:
    """Raise ValueError unless every array is a known output of this shape, int64 or int32, and kernels can write it."""
    dtypes = set()
    for name, array in arrays.items():
        if name not in ROW_OUTPUTS:
            raise ValueError(f"unknown output {name!r}: choose from {', '.join(OUTPUTS)}")
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} is a {type(array).__name__}, an array is needed")
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, {shape} is needed")
        if array.dtype not in OUTPUT_DTYPES:
            raise ValueError(f"{name} has dtype {array.dtype}, int64 or int32 is needed")
        check_memory(name, array)
        dtypes.add(array.dtype)
    if len(dtypes) > 1:
        raise ValueError(f"outputs must have one dtype, not {sorted(map(str, dtypes))}")


def check_memory(name: str, array: npt.NDArray[Any]) -> None:
    """Raise ValueError for an array that kernels cannot write to."""
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable and flags.aligned):
        raise ValueError(f"{name} must be C-contiguous, aligned and writeable")


def check_apart(out: Outputs) -> None:
    """Raise ValueError if two arrays share memory: each would overwrite the other."""
    arrays = [(name, array) for name, array in out.items() if isinstance(array, np.ndarray)]
    for (name, array), (other_name, other) in combinations(arrays, 2):
        if np.may_share_memory(array, other):
            raise ValueError(f"{name} and {other_name} share memory: each output needs an array of its own")


def check_whole(out: Outputs) -> None:
    """Raise ValueError for arrays under cu_seqlens or max_seqlen that do not fit."""
    bounds, longest = out.get("cu_seqlens"), out.get("max_seqlen")
    if bounds is not None and not isinstance(bounds, np.ndarray):
        raise ValueError(f"cu_seqlens is a {type(bounds).__name__}: an array is needed, or None for a new one")
    if bounds is not None and not (bounds.dtype == np.int32 and bounds.ndim == 1 and bounds.flags.c_contiguous):
        raise ValueError(f"cu_seqlens must be a contiguous int32 [n], not {bounds.dtype} {list(bounds.shape)}")
    if isinstance(longest, np.ndarray) and (longest.shape != () or longest.dtype.kind != "i"):
        raise ValueError(f"max_seqlen must be an int or a 0-d integer array, not {longest.dtype} {list(longest.shape)}")
    for name, array in (("cu_seqlens", bounds), ("max_seqlen", longest)):
        if isinstance(array, np.ndarray):
            check_memory(name, array)


def add_document_bounds(out: Outputs, position_ids: npt.NDArray[Any]) -> None:
    """Set cu_seqlens and max_seqlen, where `out` has these names, from the position_ids [B, L] of a filled batch.

    Raises
    ------
    ValueError
        If cu_seqlens is too short (the message states the required length), or if another thread changed
        position_ids.
    """
    bounds = out.get("cu_seqlens")
    buffer = np.empty(8 * len(position_ids) + 64, np.int32) if bounds is None else bounds
    needed, longest = kernels.cu_seqlens(position_ids, buffer)
    if bounds is None and needed > len(buffer):
        buffer = np.empty(needed, np.int32)
        needed, longest = kernels.cu_seqlens(position_ids, buffer)
    if not needed or (bounds is None and needed > len(buffer)):
        raise ValueError(
            "position_ids changed while the batch was filled: another thread writes to these arrays. "
            "Give each thread arrays of its own."
        )
    if "cu_seqlens" in out:
        if bounds is None:
            out["cu_seqlens"] = buffer[:needed].copy()
        elif needed > len(bounds):
            raise ValueError(f"cu_seqlens has room for {len(bounds)} entries, this batch needs {needed}")
    if isinstance(out.get("max_seqlen"), np.ndarray):
        out["max_seqlen"][...] = longest
    elif "max_seqlen" in out:
        out["max_seqlen"] = longest
