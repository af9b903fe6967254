from fastpack.kernels.lines_np import count_newlines as count_newlines
from fastpack.kernels.lines_np import index_lines as index_lines

def use_simd(wanted: bool) -> bool: ...
