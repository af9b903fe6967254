import numpy as np
import numpy.typing as npt

def walk_tar(
    window: npt.NDArray[np.uint8],
    base: int,
    n_file_bytes: int,
    state: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    samples: npt.NDArray[np.int64],
    text: npt.NDArray[np.uint8],
    parts: npt.NDArray[np.uint8],
    part_ends: npt.NDArray[np.int64],
) -> int: ...
