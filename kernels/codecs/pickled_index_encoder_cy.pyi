from fastpack.kernels.codecs.pickled_index_encoder_np import encode_rows as encode_rows
