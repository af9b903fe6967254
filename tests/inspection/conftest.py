"""Prepared datasets to look at."""

from webdatasets import prepared

__all__ = ["prepared"]
