"""Contents of a corpus, as `report` shows and `compare` compares them: hashes, samples, duplicates, text, media."""
