"""WebDatasets that Megatron-Energon or `fastpack prepare` prepared: shards of a tar -> decoded samples."""
