"""Which lines are no JSON, as `json.loads` judges them."""

from __future__ import annotations

import json
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack import kernels

Faults: TypeAlias = list[tuple[int, Exception]]  # (row, what json.loads said)


def faulty_lines(data: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64]) -> Faults:
    """The rows of int64[n, 2], (offset, length) in `data`, that are no JSON, each with the reason.

    The kernel accepts most lines at a glance, json.loads has the last word.
    """
    verdict = np.empty(len(rows), np.uint8)
    kernels.validate_json_rows(data, rows, verdict)
    faults: Faults = []
    for i in np.flatnonzero(verdict == 0).tolist():
        offset, length = rows[i].tolist()
        error = json_fault(data[offset : offset + length].tobytes())
        if error is not None:
            faults.append((i, error))
    return faults


def json_fault(line: bytes) -> Exception | None:
    """What `json.loads` raises for a line, None where it takes it."""
    try:
        json.loads(line)
    except Exception as error:  # any: also RecursionError, and ValueError of huge integers
        return error.with_traceback(None)  # its frames would hold the mapping, and themselves, in a cycle
    return None
