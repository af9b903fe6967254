from fastpack.kernels.token_masks_np import mask_tokens as mask_tokens
