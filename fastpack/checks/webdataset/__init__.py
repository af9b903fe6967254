"""Looking at a prepared WebDataset: what it holds, whether it is sound, its samples on a terminal and as files."""
