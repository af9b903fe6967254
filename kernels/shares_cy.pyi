from fastpack.kernels.shares_np import share_counts as share_counts
from fastpack.kernels.shares_np import share_sources as share_sources
from fastpack.kernels.shares_np import share_tree as share_tree
