from fastpack.kernels.documents_np import cu_seqlens as cu_seqlens
from fastpack.kernels.documents_np import doc_ids as doc_ids
from fastpack.kernels.documents_np import mask_labels as mask_labels
