"""Manifests: one file that lists the shards of a dataset, so that none is opened before it is read."""
