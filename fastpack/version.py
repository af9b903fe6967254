"""The version of fastpack."""

__version__ = "0.1.0"
