"""Preparing WebDatasets: shards are walked, indexed and split, so that Megatron-Energon and fastpack can read them."""
