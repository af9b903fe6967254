from fastpack.kernels.row_spans_np import document_ends as document_ends
from fastpack.kernels.row_spans_np import fill_spans as fill_spans
