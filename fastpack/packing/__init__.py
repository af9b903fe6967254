"""Tokenise documents and pack them: configuration, encoding, worker processes, pack jobs."""
