"""Document boundaries from EOS tokens: the specification of the `documents` kernels, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def doc_ids(tokens: npt.NDArray[Any], eos: int, out: npt.NDArray[np.int64]) -> None:
    """Write the document number of each token: how many EOS stand before it, so EOS belongs to the document it ends.

    tokens: integers [n]; out: int64 [n].
    """
    out[:1] = 0
    np.cumsum(tokens[:-1] == eos, out=out[1:])


def mask_labels(tokens: npt.NDArray[Any], eos: int, out: npt.NDArray[np.int64]) -> None:
    """Write the labels of a window: the next token, or -100 where the token is EOS (its next one opens a document).

    tokens: integers [n + 1]; out: int64 [n].
    """
    out[:] = tokens[1:]
    out[tokens[:-1] == eos] = -100
