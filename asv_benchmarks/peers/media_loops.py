"""Loops over the same tar shards with webdataset and fastpack, for loop_process.py: batches of shuffled samples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SEED = 20_261_122


class Loop:
    """What both loops share; `job` has folder, batch, workers, decoded. A batch is (list of samples,)."""

    distributions: tuple[str, ...] = ()

    def __init__(self, job: SimpleNamespace) -> None:
        self.job, self.source = job, Path(job.folder) / "shards"
        self.folder = self.source / ".nv-meta"
        self.load()

    def load(self) -> None:
        """Import the packages."""

    def hashes(self, batch: Any) -> Iterator[int]:
        """Yield a hash of the key and the fields of each sample."""
        for sample in batch[0]:
            found = hashlib.blake2b(sample["__key__"].encode(), digest_size=8)
            for name in ("jpg", "txt", "json"):
                value = sample.get(name, b"")
                found.update(str(value).encode() if isinstance(value, str | dict) else bytes(value))
            yield int.from_bytes(found.digest(), "little")


class Webdataset(Loop):
    """webdataset: shards in a shuffled order, samples shuffled in a buffer of 1,000."""

    distributions = ("webdataset",)

    def load(self) -> None:
        import webdataset

        self.webdataset: Any = webdataset

    def prepare(self) -> None:
        """Nothing: it reads the shards as they are."""

    def open(self) -> Any:
        shards = sorted(map(str, self.source.glob("*.tar")))
        dataset = self.webdataset.WebDataset(shards, shardshuffle=len(shards), seed=SEED).shuffle(1000)
        dataset = dataset.decode("rgb8") if self.job.decoded else dataset
        batches = dataset.batched(self.job.batch, collation_fn=None)
        if self.job.workers:
            options = {"batch_size": None, "num_workers": self.job.workers, "collate_fn": list}
            batches = self.webdataset.WebLoader(batches, **options)
        return ((samples,) for samples in batches)


class Fastpack(Loop):
    """fastpack: all samples shuffled."""

    distributions = ("fastpack-llm",)

    def load(self) -> None:
        import fastpack

        self.fastpack: Any = fastpack
        self.fastpack.WebDataset, self.fastpack.StatefulDataLoader  # noqa: B018 - imported on first use

    def prepare(self) -> None:
        self.fastpack.prepare(self.source, split_ratio=(1, 0, 0), sample_type="CrudeWebdataset")

    def open(self) -> Any:
        dataset = self.fastpack.WebDataset(self.source, raw=not self.job.decoded, image_decode="rgb8")
        sampler = self.fastpack.DistributedSampler(dataset, 1, 0, seed=SEED)
        loader = self.fastpack.StatefulDataLoader(dataset, self.job.batch, sampler, collate_fn=list)
        return ((samples,) for samples in loader)


LOOPS = {loop.__name__: loop for loop in (Webdataset, Fastpack)}
