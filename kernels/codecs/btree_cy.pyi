from fastpack.kernels.codecs.btree_np import encode_cells as encode_cells
from fastpack.kernels.codecs.btree_np import pack_cells as pack_cells
