"""Conversations -> text by the chat template of a tokenizer -> tokens, and which of them count in the loss."""
