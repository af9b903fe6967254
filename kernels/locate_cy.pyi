from fastpack.kernels.locate_np import locate as locate
from fastpack.kernels.locate_np import locate_many as locate_many
from fastpack.kernels.locate_np import locate_windows as locate_windows
