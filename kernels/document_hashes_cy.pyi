from fastpack.kernels.document_hashes_np import add_hashes as add_hashes
