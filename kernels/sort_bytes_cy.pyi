import numpy as np
import numpy.typing as npt

def sort_texts(
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    work: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
) -> bool: ...
def sort_within(
    rows: npt.NDArray[np.int64],
    first: int,
    data: npt.NDArray[np.uint8],
    bounds: npt.NDArray[np.int64],
    work: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
) -> int: ...
def first_unsorted(rows: npt.NDArray[np.int64], n_columns: int) -> int: ...
