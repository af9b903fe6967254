"""Megatron's GPT samples: splits, epochs, blends and their exact order, computed without index files."""
