"""nanoGPT's token files: uint16 without a header, the same bytes as `bin` of this dtype."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from fastpack.io import AnyPath, check_exists
from fastpack.tokens.flat.bin_writer import BinWriter
from fastpack.tokens.indexed_tokens import check_given_dtype, raw_segment
from fastpack.tokens.token_file import Rows

if TYPE_CHECKING:
    from fastpack.tokens.flat.flat_tokens import FlatTokens

DTYPE = np.dtype("<u2")


def fits(path: AnyPath) -> bool:
    """Return False: nothing in the file tells it from `bin`, so the format must be given."""
    del path
    return False


def open_file(path: AnyPath, dtype: np.dtype[Any] | None, eos_token_id: int | None) -> FlatTokens:
    """Open a file of uint16 tokens."""
    from fastpack.tokens.flat.flat_tokens import FlatTokens  # it imports yaml, which the detection must not

    check_exists(path)
    check_given_dtype(path, 0, DTYPE, dtype)
    return FlatTokens(path, "nanogpt", [raw_segment(path, DTYPE)], eos_token_id)


def create(path: AnyPath, dtype: np.dtype[Any], policy: Any) -> BinWriter:
    """Create a file of uint16 tokens."""
    if dtype != DTYPE:
        raise ValueError(f"nanoGPT stores uint16, not {dtype}")
    return BinWriter(path, 2, if_exists=policy)


def predicted_size(n_tokens: int, token_size: int, documents: Iterable[Rows]) -> int:
    """Return the size of the file in bytes."""
    del documents
    return n_tokens * token_size
