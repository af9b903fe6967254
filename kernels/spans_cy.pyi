import numpy as np
import numpy.typing as npt

def copy_spans(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    targets: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
) -> None: ...
