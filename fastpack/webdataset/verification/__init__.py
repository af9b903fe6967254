"""Verify a prepared WebDataset."""
