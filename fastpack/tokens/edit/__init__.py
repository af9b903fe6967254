"""Editing of token files and JSON Lines files: merge, shuffle, chunk, filter, repair."""
