"""Formats -> samples: map-style datasets with `[i]` and whole batches."""
