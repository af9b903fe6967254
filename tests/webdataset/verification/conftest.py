"""Prepared datasets."""

from webdatasets import make, prepared

__all__ = ["make", "prepared"]
