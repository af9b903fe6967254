"""What every dataset of token windows shares: batches, closing, pickling as paths, state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.datasets.windows import Outputs, Windows, fill_pairs

Indices: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]
OutputDtype: TypeAlias = Literal["int64", "int32"]
OUTPUT_DTYPES = frozenset((np.dtype(np.int64), np.dtype(np.int32)))
PAIR_OUTPUTS = ("input_ids", "labels", "doc_ids")


class Dataset:
    """Base of all datasets of fastpack: length, state, closing."""

    _total: int
    _epoch = 0
    _closed = False

    def __len__(self) -> int:
        return self._total

    def state_dict(self) -> dict[str, int]:
        """{"epoch", "total_samples"}."""
        return {"epoch": self._epoch, "total_samples": len(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the epoch (total_samples is not compared, as in KempnerForge)."""
        self._epoch = state.get("epoch", 0)

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


class WindowDataset(Dataset):
    """Base of the datasets whose samples are windows of `_window` tokens."""

    _windows: Windows
    _window: int
    _eos: int | None
    _negative = False  # whether negative indices count from the end

    def close(self) -> None:
        super().close()
        self._windows.close()

    def fill(self, indices: Indices, out: Outputs) -> None:
        """Write the samples into `out`: {"input_ids", "labels", "doc_ids": [B, L] arrays}, any of them, in place.

        indices: B sample numbers; L: the window's tokens - 1. The arrays are C-contiguous, all int64 or all int32, of
        one shape. Raises IndexError for an index out of range, ValueError for arrays that do not fit, OverflowError
        for a token that does not fit into int32.
        """
        index = np.ascontiguousarray(indices, np.int64)
        check_outputs(out, (len(index), self._window - 1))
        if "doc_ids" in out and self._eos is None:
            raise ValueError("doc_ids need the dataset's eos_token_id")
        self._check_open()
        if out:
            fill_pairs(self._windows.groups(index, self._negative), out, self._eos)

    def batch(
        self,
        indices: Indices,
        outputs: Sequence[str] | None = None,
        dtype: OutputDtype = "int64",
        out: Outputs | None = None,
    ) -> Outputs:
        """The samples as {name: [B, L]}: input_ids, labels and, where documents are known, doc_ids.

        outputs: which of them (default: all there are). out: arrays to write into instead of new ones (a new
        allocation a batch costs 1.5 to 3.5 times the work); it is what comes back. Errors as in `fill`.
        """
        if out is None:
            names = self._default_outputs() if outputs is None else outputs
            out = {name: np.empty((len(indices), self._window - 1), dtype) for name in names}
        self.fill(indices, out)
        return out

    def _default_outputs(self) -> tuple[str, ...]:
        return PAIR_OUTPUTS if self._eos is not None else PAIR_OUTPUTS[:2]


def check_outputs(out: Outputs, shape: tuple[int, int]) -> None:
    """ValueError unless every array of `out` is known by name and fits: shape, int64 or int32, C-contiguous."""
    dtypes = set()
    for name, array in out.items():
        if name not in PAIR_OUTPUTS:
            raise ValueError(f"unknown output {name!r}: choose from {', '.join(PAIR_OUTPUTS)}")
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, {shape} is needed")
        if array.dtype not in OUTPUT_DTYPES:
            raise ValueError(f"{name} has dtype {array.dtype}, int64 or int32 is needed")
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise ValueError(f"{name} must be C-contiguous and writeable")
        dtypes.add(array.dtype)
    if len(dtypes) > 1:
        raise ValueError(f"outputs must have one dtype, not {sorted(map(str, dtypes))}")
