"""The arrays a batch is made of: their names, their shapes, and what is derived from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.datasets.windows import Grids, Outputs

OutputDtype: TypeAlias = Literal["int64", "int32"]
OUTPUT_DTYPES = frozenset((np.dtype(np.int64), np.dtype(np.int32)))
PAIR_OUTPUTS = ("input_ids", "labels", "doc_ids")
ROW_OUTPUTS = (*PAIR_OUTPUTS, "position_ids")  # [B, L] each: a row of each belongs to one sample
WHOLE_OUTPUTS = ("cu_seqlens", "max_seqlen")  # about the batch as one sequence of B * L tokens
OUTPUTS = ROW_OUTPUTS + WHOLE_OUTPUTS
DOCUMENT_OUTPUTS = frozenset(("doc_ids", "position_ids", *WHOLE_OUTPUTS))


def new_outputs(
    names: Iterable[str],
    shape: tuple[int, int],
    dtype: npt.DTypeLike,
    cu_seqlens_length: int | None = None,
    empty: Callable[[tuple[int, ...], Any], npt.NDArray[Any]] = np.empty,
) -> Outputs:
    """Arrays for a batch of `shape` [B, L], their content undefined; those that come to be while filling are None."""
    out: Outputs = {}
    for name in names:
        if name not in OUTPUTS:
            raise ValueError(f"unknown output {name!r}: choose from {', '.join(OUTPUTS)}")
        if name == "cu_seqlens" and cu_seqlens_length is not None:
            out[name] = empty((cu_seqlens_length,), np.int32)
        else:
            out[name] = None if name in WHOLE_OUTPUTS else empty(shape, dtype)
    if cu_seqlens_length is not None and "cu_seqlens" not in out:
        raise ValueError("cu_seqlens_length= is for the output cu_seqlens, which was not asked for")
    return out


def split_outputs(out: Outputs, n_rows: int, length: int) -> Grids:
    """The [B, L] arrays of `out`, with position_ids, made if need be, where cu_seqlens or max_seqlen ask for them."""
    grids = {name: array for name, array in out.items() if name not in WHOLE_OUTPUTS}
    if len(grids) < len(out) and n_rows * length > np.iinfo(np.int32).max:
        raise ValueError(f"cu_seqlens are int32: a batch of {n_rows} x {length} tokens is too long for them")
    if len(grids) < len(out) and "position_ids" not in grids:
        dtype = next((array.dtype for name, array in grids.items() if name in ROW_OUTPUTS), np.dtype(np.int32))
        grids["position_ids"] = np.empty((n_rows, length), dtype)
    return grids


def check_grids(grids: Grids, shape: tuple[int, int]) -> None:
    """ValueError unless every array is known by name and fits: shape, int64 or int32, and as `check_memory` says."""
    dtypes = set()
    for name, array in grids.items():
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
    """ValueError for an array that kernels cannot write to."""
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable and flags.aligned):
        raise ValueError(f"{name} must be C-contiguous, aligned and writeable")


def check_apart(out: Outputs) -> None:
    """ValueError when two of the arrays share memory: each would overwrite the other."""
    arrays = [(name, array) for name, array in out.items() if isinstance(array, np.ndarray)]
    for (name, array), (other_name, other) in combinations(arrays, 2):
        if np.may_share_memory(array, other):
            raise ValueError(f"{name} and {other_name} share memory: each output needs an array of its own")


def check_whole(out: Outputs) -> None:
    """ValueError for arrays under cu_seqlens or max_seqlen that do not fit."""
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


def add_bounds(out: Outputs, position_ids: npt.NDArray[Any]) -> None:
    """Put cu_seqlens and max_seqlen, where `out` has these names, by the position_ids [B, L] of a filled batch.

    Raises ValueError for cu_seqlens that are too short, saying how many entries are needed, and for position_ids that
    are none any more.
    """
    bounds = out.get("cu_seqlens")
    room = np.empty(8 * len(position_ids) + 64, np.int32) if bounds is None else bounds
    needed, longest = kernels.cu_seqlens(position_ids, room)
    if bounds is None and needed > len(room):
        room = np.empty(needed, np.int32)
        needed, longest = kernels.cu_seqlens(position_ids, room)
    if not needed or (bounds is None and needed > len(room)):
        raise ValueError(
            "position_ids changed while the batch was filled: another thread writes to these arrays. "
            "Give each thread arrays of its own."
        )
    if "cu_seqlens" in out:
        if bounds is None:
            out["cu_seqlens"] = room[:needed].copy()
        elif needed > len(bounds):
            raise ValueError(f"cu_seqlens have room for {len(bounds)} entries, this batch needs {needed}")
    if isinstance(out.get("max_seqlen"), np.ndarray):
        out["max_seqlen"][...] = longest
    elif "max_seqlen" in out:
        out["max_seqlen"] = longest
