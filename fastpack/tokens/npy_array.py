"""Arrays in `.npy` files with unusual headers or shapes, read by NumPy's own reader."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import local_file


def load_npy_array(path: str) -> npt.NDArray[Any]:
    """Map the array in a `.npy` file. Raises FormatError for anything else, archives and pickles included."""
    try:
        array = np.lib.format.open_memmap(local_file(path), mode="r")  # numpy.load accepts archives and pickles too
    except OSError:
        raise
    except Exception as error:  # the header is a Python literal; the errors that parsing it raises are not documented
        raise FormatError(path, 0, " ".join(f"{type(error).__name__}: {error}".split()), "a .npy array") from error
    if array.ndim == 0:
        raise FormatError(path, 0, "a single number", "an array of tokens")
    return array
