import numpy as np
import numpy.typing as npt

def encode_cells(
    kind: int,
    rows: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    texts: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    state: npt.NDArray[np.int64],
    cells: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int64],
) -> int: ...
def pack_cells(
    kind: int,
    cells: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int64],
    is_last: bool,
    right: int,
    first_page: int,
    first_rowid: int,
    state: npt.NDArray[np.int64],
    pages: npt.NDArray[np.uint8],
    parents: npt.NDArray[np.uint8],
    parent_ends: npt.NDArray[np.int64],
) -> int: ...
