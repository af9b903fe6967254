"""The names of `fastpack.tatm`."""

from .datasets.tatm import TatmMemmapDataset as TatmMemmapDataset
from .datasets.tatm import get_dataset as get_dataset
from .tokens.flat.tatm_metadata import TatmDataMetadata as TatmDataMetadata
