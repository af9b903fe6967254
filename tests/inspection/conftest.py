"""Prepared datasets to inspect."""

from webdatasets import prepared

__all__ = ["prepared"]
