"""Facts, checks, previews and reports of files and datasets."""
