import numpy as np
import numpy.typing as npt

def encode_rows(rows: npt.NDArray[np.int64], state: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> int: ...
