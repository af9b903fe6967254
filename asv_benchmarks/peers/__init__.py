"""Comparisons of fastpack with other systems: the same work on the same files, one table per system."""
