"""Packed files `.pbin`: layout, reader, writer, journal."""
