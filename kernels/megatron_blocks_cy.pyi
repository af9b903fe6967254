import numpy as np
import numpy.typing as npt

def block_starts(rows: npt.NDArray[np.int64], block_bytes: int, first: int, starts: npt.NDArray[np.int64]) -> int: ...
