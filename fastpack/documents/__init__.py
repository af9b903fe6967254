"""Sources of text: JSON Lines files, compressed or not, their byte-offset indexes, and field extraction."""
