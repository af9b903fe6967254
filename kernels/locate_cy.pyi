import numpy as np
import numpy.typing as npt

def locate(cumulative: npt.NDArray[np.int64], index: int) -> int: ...
def locate_many(
    cumulative: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int64],
    shards: npt.NDArray[np.int64],
    locals_: npt.NDArray[np.int64],
) -> int: ...
def locate_windows(
    cumulative: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int64],
    bases: npt.NDArray[np.uint64],
    step_bytes: int,
    addresses: npt.NDArray[np.uint64],
) -> int: ...
