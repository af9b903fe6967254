"""The parts of packing: configuration, lines to tokens, worker processes, the run itself."""
