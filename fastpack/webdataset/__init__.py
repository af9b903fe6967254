"""WebDatasets, as Megatron-Energon and `fastpack prepare` index them: tar shards, decoded to samples.

Public names are imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
