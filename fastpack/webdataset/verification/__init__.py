"""Whether a prepared WebDataset is sound."""
