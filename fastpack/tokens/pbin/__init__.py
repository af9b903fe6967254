"""Packed files `.pbin`: layout, reader, writer, checks, facts."""
