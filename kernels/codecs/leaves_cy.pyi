import numpy as np
import numpy.typing as npt

def read_leaves(
    data: npt.NDArray[np.uint8], pages: npt.NDArray[np.int64], text_column: int, rows: npt.NDArray[np.int64]
) -> int: ...
