from fastpack.kernels.spans_np import copy_spans as copy_spans
