import numpy as np
import numpy.typing as npt

def use_simd(wanted: bool) -> bool: ...
def validate_json_rows(
    data: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64], verdict: npt.NDArray[np.uint8]
) -> None: ...
