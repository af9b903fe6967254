from fastpack.kernels.segments_np import copy_segments as copy_segments
from fastpack.kernels.segments_np import fill_segments as fill_segments
