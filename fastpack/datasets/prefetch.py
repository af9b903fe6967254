"""Hints to the OS to read parts of mapped files, given only where the pages are not in memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastpack import io as files

# A hint costs 3.5 us, as much as filling a row. So PROBES parts of a batch are checked first, which costs 50 us. After
# CALM_AFTER batches in a row whose pages were in memory, batches 16 and 32 and every CALM_INTERVAL-th are checked.
PROBES, CALM_AFTER, CALM_INTERVAL = 4, 8, 64


class Prefetch:
    """The hints of one dataset."""

    def __init__(self) -> None:
        self._calm_batches = 0

    def is_due(self) -> bool:
        """Count a batch; return whether its pages are to be checked."""
        self._calm_batches += 1
        calm = self._calm_batches
        return calm <= CALM_AFTER or calm % CALM_INTERVAL == 0 or calm & (calm - 1) == 0

    def hint(self, addresses: npt.NDArray[np.uint64], n_bytes: npt.NDArray[np.int64]) -> None:
        """Hint the OS to read `n_bytes` at each address, unless all probes are in memory."""
        parts = list(zip(addresses.tolist(), n_bytes.tolist(), strict=True))
        if not parts or all(files.is_in_memory(*part) for part in parts[:: -(-len(parts) // PROBES)]):
            return
        self._calm_batches = 0
        for part in parts:
            files.will_need(*part)
