"""fastpack beside the systems whose files it reads and writes: the same work, the same files, one table a system."""
