from typing import Any

import numpy as np
import numpy.typing as npt

def fill_packed(
    addresses: npt.NDArray[np.uint64],
    rows: npt.NDArray[np.int64],
    like: npt.NDArray[Any],
    eos: int,
    input_ids: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    doc_ids: npt.NDArray[Any],
) -> int: ...
def fill_documents(
    addresses: npt.NDArray[np.uint64],
    rows: npt.NDArray[np.int64],
    like: npt.NDArray[Any],
    eos: int,
    input_ids: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    doc_ids: npt.NDArray[Any],
    position_ids: npt.NDArray[Any],
) -> int: ...
def fill_plain(
    addresses: npt.NDArray[np.uint64],
    rows: npt.NDArray[np.int64],
    like: npt.NDArray[Any],
    input_ids: npt.NDArray[Any],
    labels: npt.NDArray[Any],
) -> int: ...
def fill_tokens(
    addresses: npt.NDArray[np.uint64], rows: npt.NDArray[np.int64], like: npt.NDArray[Any], out: npt.NDArray[Any]
) -> int: ...
