from fastpack.kernels.batches_np import fill_documents as fill_documents
from fastpack.kernels.batches_np import fill_packed as fill_packed
from fastpack.kernels.batches_np import fill_plain as fill_plain
from fastpack.kernels.batches_np import fill_tokens as fill_tokens
