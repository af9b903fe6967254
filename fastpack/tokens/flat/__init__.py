"""Flat token files `.npy` and `.bin` (KempnerForge, tatm): reader, writers, metadata, checks, facts."""
