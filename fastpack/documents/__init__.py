"""Where text comes from: JSON lines, compressed or not, their byte-offset index, and field extraction."""
