"""Samples -> batches in order: samplers, buffers, the loader."""
