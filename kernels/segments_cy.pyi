from fastpack.kernels.segments_np import copy_segments as copy_segments
from fastpack.kernels.segments_np import fill_segments as fill_segments
from fastpack.kernels.segments_np import locate_segments as locate_segments
from fastpack.kernels.segments_np import place_segments as place_segments
