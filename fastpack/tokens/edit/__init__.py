"""Packed files and JSON lines -> other orders and selections of them: merge, shuffle, chunk, filter."""
