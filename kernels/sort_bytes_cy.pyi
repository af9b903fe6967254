from fastpack.kernels.sort_bytes_np import first_unsorted as first_unsorted
from fastpack.kernels.sort_bytes_np import sort_texts as sort_texts
from fastpack.kernels.sort_bytes_np import sort_within as sort_within
