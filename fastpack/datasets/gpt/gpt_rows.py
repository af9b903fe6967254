"""Which arrays a batch of Megatron's GPT samples has: their names, shapes and dtypes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastpack.datasets.outputs import OUTPUT_DTYPES, WHOLE_OUTPUTS, Allocate, Arrays, Outputs, check_memory
from fastpack.datasets.row_format import OutputOptions

GPT_OUTPUTS = ("tokens", "labels", "loss_mask", "position_ids")


@dataclass(frozen=True)
class GPTRows:
    """The outputs of GPT samples of `length` tokens."""

    length: int

    has_documents = True
    default = GPT_OUTPUTS

    def allocate(self, n_rows: int, options: OutputOptions, empty: Allocate) -> Outputs:
        """Return undefined arrays for a batch; cu_seqlens (without a fixed length) and max_seqlen are None."""
        names, dtype, cu_seqlens_length = options
        out: Outputs = {}
        for name in self.default if names is None else names:
            if name in WHOLE_OUTPUTS:
                fixed = None if name == "max_seqlen" else cu_seqlens_length
                out[name] = None if fixed is None else empty((fixed,), np.int32)
            elif name in GPT_OUTPUTS:
                out[name] = empty((n_rows, self.length), np.float32 if name == "loss_mask" else dtype or "int64")
            else:
                raise ValueError(f"unknown output {name!r}: choose from {', '.join(GPT_OUTPUTS + WHOLE_OUTPUTS)}")
        if cu_seqlens_length is not None and "cu_seqlens" not in out:
            raise ValueError("cu_seqlens_length= is for the output cu_seqlens, which was not requested")
        return out

    def check(self, arrays: Arrays, n_rows: int) -> None:
        """Raise ValueError for arrays that cannot be filled."""
        for name, array in arrays.items():
            if name not in GPT_OUTPUTS:
                raise ValueError(f"unknown output {name!r}: choose from {', '.join(GPT_OUTPUTS + WHOLE_OUTPUTS)}")
            if not isinstance(array, np.ndarray):
                raise ValueError(f"{name} is a {type(array).__name__}, an array is needed")
            if array.shape != (n_rows, self.length):
                raise ValueError(f"{name} has shape {array.shape}, {(n_rows, self.length)} is needed")
            if array.dtype != np.float32 if name == "loss_mask" else array.dtype not in OUTPUT_DTYPES:
                needed = "float32" if name == "loss_mask" else "int64 or int32"
                raise ValueError(f"{name} has dtype {array.dtype}, {needed} is needed")
            check_memory(name, array)
        dtypes = {array.dtype for name, array in arrays.items() if name != "loss_mask"}
        if len(dtypes) > 1:
            raise ValueError(f"outputs must have one dtype, not {sorted(map(str, dtypes))}")
