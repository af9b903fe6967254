"""Packing plans: which documents, or pieces of documents, make up each row of tokens."""
