"""Parsers and writers of byte formats: tar headers, JSON validation, the pickled index, SQLite pages.

They are state machines, so none has a Numba implementation; `fastpack.kernels` dispatches to them as to the kernels.
"""
