from fastpack.kernels.codecs.tar_np import walk_tar as walk_tar
