from fastpack.kernels.megatron_blocks_np import block_starts as block_starts
