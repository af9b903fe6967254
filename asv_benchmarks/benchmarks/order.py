"""The order of an epoch compared with `torch.randperm(n).tolist()` and a slice, in time and peak memory."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np

import fastpack
from fastpack import kernels
from fastpack.datasets.permutations import feistel_keys

from .common import CORPUS_SEED, ratio, row

SAMPLES, RANKS, RANK = 10_000_000, 8, 3
INDICES = 1_000_000  # of the computed permutation, per round

# Peak resident memory in bytes beyond that of the imports. VmHWM instead of ru_maxrss, which includes the parent.
PEAK = """
import re
def status(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
{imports}
before = status("VmRSS")
{work}
print(status("VmHWM") - before)
"""
OURS = (
    "import fastpack; fastpack.DistributedSampler(range(10), order='torch').indices()",
    f"kept = fastpack.DistributedSampler(range({SAMPLES}), {RANKS}, {RANK}, seed={CORPUS_SEED}).indices()",
)
THEIRS = (
    "import torch; generator = torch.Generator(); torch.randperm(10, generator=generator)",
    f"generator.manual_seed({CORPUS_SEED}); order = torch.randperm({SAMPLES}, generator=generator).tolist(); "
    f"kept = order[:{SAMPLES // RANKS * RANKS}][{RANK}::{RANKS}]",
)


def peak(imports: str, work: str) -> int:
    code = PEAK.format(imports=imports, work=work)
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)


def need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise NotImplementedError("torch is not installed: nothing to compare with")


class EpochOrder:
    """The shuffled order of one of 8 ranks for 10 million samples."""

    params = ["numba", "cython"]
    param_names = ["backend"]
    timeout = 300

    def setup(self, backend: str) -> None:
        need_torch()
        kernels.use(backend)
        kernels.warm()
        self.sampler = fastpack.DistributedSampler(range(SAMPLES), RANKS, RANK, seed=CORPUS_SEED)

    def theirs(self) -> list[int]:
        import torch

        generator = torch.Generator()
        generator.manual_seed(CORPUS_SEED)
        order = torch.randperm(SAMPLES, generator=generator).tolist()
        return order[: SAMPLES // RANKS * RANKS][RANK::RANKS]

    @row("epoch order in the order of torch, 10 million samples", "x torch.randperm(n).tolist() and a slice")
    def track_epoch_order(self, _backend: str) -> float:
        assert self.sampler.indices()[:100].tolist() == self.theirs()[:100]
        return ratio(self.sampler.indices, self.theirs, rounds=7)


class EpochOrderMemory:
    """The same in separate processes."""

    timeout = 300

    def setup(self) -> None:
        need_torch()

    @row("epoch order, peak memory", "x less than torch.randperm(n).tolist() and a slice")
    def track_peak_memory(self) -> float:
        return peak(*THEIRS) / peak(*OURS)


class ComputedOrder:
    """The permutation without memory: nanoseconds per index for 10^12 samples."""

    params = ["numba", "cython"]
    param_names = ["backend"]

    def setup(self, backend: str) -> None:
        kernels.use(backend)
        kernels.warm()
        self.places = np.arange(INDICES) * 1024 + 7
        self.keys, self.out = feistel_keys(CORPUS_SEED, 0), np.empty(INDICES, np.int64)

    def compute(self) -> None:
        kernels.feistel(10**12, self.keys, self.places, self.out)

    def time_a_million_indices(self, _backend: str) -> None:
        self.compute()

    @row("computed order, per index", "x torch.randperm(10^6).tolist(), per index")
    def track_computed_order(self, _backend: str) -> float:
        need_torch()
        import torch

        return ratio(self.compute, lambda: torch.randperm(INDICES).tolist(), rounds=7)
