from fastpack.kernels.sample_parts_np import part_blocks as part_blocks
from fastpack.kernels.sample_parts_np import sample_parts as sample_parts
