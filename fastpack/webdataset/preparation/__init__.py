"""Prepare WebDatasets: walk, index and split shards, so that Megatron-Energon and fastpack can read them."""
