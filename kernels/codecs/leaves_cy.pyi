from fastpack.kernels.codecs.leaves_np import read_leaves as read_leaves
