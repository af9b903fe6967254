from fastpack.kernels.token_statistics_np import count_tokens as count_tokens
from fastpack.kernels.token_statistics_np import scan_tokens as scan_tokens
from fastpack.kernels.token_statistics_np import used_bytes as used_bytes
