"""Looking at a prepared WebDataset: what it holds, its samples on a terminal and as files."""
