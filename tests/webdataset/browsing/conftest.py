"""Prepared datasets to look at."""

from webdatasets import make, prepared

__all__ = ["make", "prepared"]
