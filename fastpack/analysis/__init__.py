"""Results of `verify`, `info` and `report` that do not depend on a file format: findings, lengths, token ids."""
