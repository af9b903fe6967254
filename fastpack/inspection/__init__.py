"""Whether what is on disk is sound."""
