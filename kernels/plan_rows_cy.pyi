from fastpack.kernels.plan_rows_np import bin_segments as bin_segments
from fastpack.kernels.plan_rows_np import stream_segments as stream_segments
