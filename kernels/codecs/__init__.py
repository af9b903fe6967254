"""Codecs: parsers and writers of byte formats (tar headers, JSON validation, the pickled index, SQLite pages).

They are state machines, so they have no Numba implementation; `fastpack.kernels` dispatches to them as to kernels.
"""
