"""Raw data -> formats: indexing, tokenising, packing."""
