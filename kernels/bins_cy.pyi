from fastpack.kernels.bins_np import best_fit as best_fit
from fastpack.kernels.bins_np import cut_stream as cut_stream
from fastpack.kernels.bins_np import first_fit as first_fit
from fastpack.kernels.bins_np import group_by_bin as group_by_bin
from fastpack.kernels.bins_np import sort_lengths as sort_lengths
