import numpy as np
import numpy.typing as npt

from fastpack.kernels.codecs.pickled_index_decoder_np import decode_index as decode_index

def decode_index_strictly(data: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], int, int]: ...
