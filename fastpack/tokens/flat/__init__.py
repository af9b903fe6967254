"""Flat shards of tokens, `.npy` and `.bin` (KempnerForge, tatm): reader, writer, metadata, checks, facts."""
