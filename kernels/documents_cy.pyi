from typing import Any

import numpy as np
import numpy.typing as npt

def doc_ids(tokens: npt.NDArray[Any], eos: int, out: npt.NDArray[np.int64]) -> None: ...
def mask_labels(tokens: npt.NDArray[Any], eos: int, out: npt.NDArray[np.int64]) -> None: ...
