"""What `verify`, `info` and `report` find in files of any format: findings, facts, document lengths."""
