"""Conversations -> text by a chat template, split, indexed and packed."""
