"""Names that users of Modalities know.

They are imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("fastpack", __file__)
