"""Counting the occurrences of token ids, as `report` does, compared with `np.bincount`."""

from __future__ import annotations

import numpy as np

from fastpack import kernels
from fastpack.analysis.token_ids import LARGEST_PLAUSIBLE_ID, IdCounter

from .common import CORPUS_SEED, ratio, row

AT_ONCE = 1 << 18  # tokens per call of NumPy, so that temporaries stay in the cache


def zipf_tokens(n_tokens: int, vocab_size: int, dtype: str) -> np.ndarray:
    """Return tokens with Zipf frequencies, with ids approximately in the order of frequency, as in BPE."""
    rng = np.random.default_rng(CORPUS_SEED)
    sums = np.cumsum(1 / np.arange(1, vocab_size + 1))
    ranks = np.searchsorted(sums, rng.random(n_tokens) * sums[-1]).clip(0, vocab_size - 1)
    ids = np.argsort(np.argsort(np.arange(1, vocab_size + 1) * rng.lognormal(size=vocab_size)))
    return ids.astype(dtype)[ranks]


class TokenIds:
    """Sixteen million tokens: 50,257 ids in uint16 or 128,256 in uint32; the backend of the command line."""

    params = (["uint16", "uint32"],)
    param_names = ("dtype",)

    def setup(self, dtype: str) -> None:
        kernels.use("cython")
        self.vocab_size = 50_257 if dtype == "uint16" else 128_256
        self.tokens = zipf_tokens(1 << 24, self.vocab_size, dtype)

    def ours(self) -> None:
        counter = IdCounter()
        counter.add(self.tokens)
        assert len(counter.counts) > 50_000

    def numpy(self) -> None:
        counts = np.zeros(self.vocab_size, np.int64)
        for start in range(0, len(self.tokens), AT_ONCE):
            some = self.tokens[start : start + AT_ONCE]
            if some.itemsize > 2:  # bincount allocates a table up to the largest id
                some = some[(some >= 0) & (some < LARGEST_PLAUSIBLE_ID)]
            counts += np.bincount(some, minlength=len(counts))

    @row("counting token ids", "x np.bincount")
    def track_count_tokens(self, _dtype: str) -> float:
        return ratio(self.ours, self.numpy)
