from fastpack.kernels.blends_np import blend_datasets as blend_datasets
