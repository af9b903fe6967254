from typing import Any

import numpy as np
import numpy.typing as npt

def scan_tokens(tokens: npt.NDArray[Any], eos: int) -> tuple[int, int, int]: ...
def used_bytes(data: npt.NDArray[np.uint8]) -> int: ...
