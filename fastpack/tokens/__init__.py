"""Bytes on disk <-> arrays: one module a format, a reader and a writer each; no torch, no policy."""
