"""Indexes of JSON lines: of one file, of many, and in parts that many machines share."""
