"""Validate JSON lines: the specification is `json.loads` itself."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt


def validate_json_rows(
    data: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64], verdict: npt.NDArray[np.uint8]
) -> None:
    """Write 1 for each line that `json.loads(bytes)` certainly accepts, 0 for lines that it must decide.

    data: uint8 [n]. rows: int64 [k, 2], (offset, length) in bytes. verdict: uint8 [k]. The NumPy implementation asks
    `json.loads` itself. The compiled one is conservative: 1 means RFC 8259 JSON in strict UTF-8, at most 200 levels
    deep, with numbers of up to 600 characters; anything else that json.loads accepts gets 0. Raises ValueError for a
    row outside `data`.
    """
    for i, (offset, length) in enumerate(rows.tolist()):
        if offset < 0 or length < 0 or offset + length > len(data):
            raise ValueError(f"a row lies outside the {len(data)} bytes of data")
        verdict[i] = _accepts(data[offset : offset + length].tobytes())


def _accepts(line: bytes) -> bool:
    try:
        json.loads(line)
    except Exception:  # as Modalities: also RecursionError, and ValueError of huge integers
        return False
    return True
