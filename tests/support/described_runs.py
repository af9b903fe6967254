"""Runs whose descriptions are golden files: the data they read, and the runs themselves; all are reproducible."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fastpack
from fastpack.loading.fetch import Fetch

EOS = 0
NAMES = ["web", "code"]


def write_data(folder: Path) -> None:
    """Write the token files and shards of all runs below `folder`."""
    (folder / "shards").mkdir()
    for number in range(3):
        tokens = np.arange(900 + 37 * number) * (7919 + number) % 31
        np.save(folder / "shards" / f"{number}.npy", tokens.astype(np.uint16))
    for name, step in (("a", 5), ("b", 11)):
        with fastpack.PackedWriter(folder / f"{name}.pbin", token_size_in_bytes=2) as writer:
            for number in range(60):
                writer.append([*(1 + np.arange(number * step % 37 + 1) * step % 29).tolist(), EOS])
    fastpack.plan(["b.pbin", "a.pbin"], "rows.plan", seq_length=30, seed=4)
    (folder / "tars").mkdir()
    with tarfile.open(folder / "tars" / "0.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(40):
            info = tarfile.TarInfo(f"sample{number}.txt")
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
    fastpack.prepare("tars", split_ratio=(1, 0, 0), sample_type="TextSample", field_map={"text": "txt"})
    (folder / "bad.txt").write_text("a.pbin:3\n")


def windows() -> Any:
    return fastpack.MemoryMappedDataset("shards", 13, pack_sequences=True, eos_token_id=EOS)


def blocks() -> Any:
    return fastpack.PackedMemMapDatasetContinuous("a.pbin", "tokens", 13, True, eos_token_id=EOS)


def mixture() -> Any:
    return fastpack.MixtureDataset([windows(), blocks()], NAMES)


def blend() -> Any:
    return fastpack.GPTDataset.build([2, "a.pbin", 1, "b.pbin"], 12, 1234, (200, 30, 0), "8,2,0", eod_token_id=EOS)[0]


def no_repeat(dataset: Any, ranks: int, rank: int) -> Any:
    first = dataset.cumulative_sizes[:2]
    return fastpack.MixtureSampler(first, [1], ranks, rank, seed=7, no_repeat=True, names=NAMES[:1])


def with_repeats(dataset: Any, ranks: int, rank: int) -> Any:
    return fastpack.MixtureSampler(dataset.cumulative_sizes, [3, 2], ranks, rank, seed=7, temperature=1.5)


def feistel(dataset: Any, ranks: int, rank: int) -> Any:
    return fastpack.DistributedSampler(dataset, ranks, rank, seed=7, order="feistel")


def torch_order(dataset: Any, ranks: int, rank: int) -> Any:
    return fastpack.DistributedSampler(dataset, ranks, rank, seed=7)


def modalities(dataset: Any, ranks: int, rank: int) -> Any:
    return fastpack.ResumableDistributedSampler(dataset, rank, ranks, shuffle=True, seed=7, skip_num_global_samples=6)


def megatron(dataset: Any, ranks: int, rank: int) -> Any:
    return fastpack.MegatronPretrainingRandomSampler(None, len(dataset), 0, 2, rank, ranks, data_sharding=False)


RUNS: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "no-repeat": (mixture, no_repeat),
    "with-repeats": (mixture, with_repeats),
    "windows": (windows, feistel),
    "blocks": (blocks, torch_order),
    "plan": (lambda: fastpack.PlannedDataset("rows.plan"), modalities),
    "megatron": (blend, megatron),
    "webdataset": (lambda: fastpack.WebDataset("tars", "train"), feistel),
}


def run(name: str) -> tuple[dict[str, Any], list[list[list[int]]]]:
    """Run in the current folder; return the description, and the samples of each rank at each step."""
    make, sampler_of = RUNS[name]
    dataset, state = make(), None
    samples: list[list[list[int]]] = []
    for ranks, batch_size, end in ((2, 4, 6), (3, 2, 14), (1, 4, 40)):
        shape = (dataset, sampler_of, ranks, batch_size)
        loaders = [_loader(*shape, rank) for rank in range(ranks)]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        for step, numbers in _steps(loaders, end):
            samples += [[]] * (step - len(samples)) + [numbers]  # no samples of steps that were skipped
            if name == "no-repeat":
                _change(loaders, step)
            if name == "with-repeats" and step in (16, 30):
                for loader in loaders:
                    loader.sampler.update_weights([1, step / 10], temperature=0.5)
                    iter(loader)
            if step == 8:
                for loader in loaders:
                    loader.skip(steps=(10, 11))
                    if name == "no-repeat":
                        loader.exclude(documents="bad.txt")
        state = loaders[0].state_dict()
    return loaders[0].describe(), samples


class NumberFetch(Fetch):
    """Makes batches of the numbers of the samples."""

    def __call__(self, indices: Any) -> Any:
        return [int(number) for number in indices]


class NumberLoader(fastpack.StatefulDataLoader[Any]):
    """A loader whose batches are the numbers of the samples."""

    def _make_fetch(self) -> Fetch:
        return NumberFetch()


def _loader(dataset: Any, sampler_of: Callable[..., Any], ranks: int, batch_size: int, rank: int) -> Any:
    outputs = ("input_ids", "labels") if isinstance(dataset, fastpack.MixtureDataset) else None
    sampler = sampler_of(dataset, ranks, rank)
    return NumberLoader(dataset, batch_size, sampler, outputs=outputs, prefetch=0)


def _steps(loaders: list[Any], end: int) -> Iterator[tuple[int, list[list[int]]]]:
    while loaders[0].step < end:
        for loader in loaders:
            iter(loader)
        while loaders[0].step < end:
            batches = [next(loader, None) for loader in loaders]
            if batches[0] is None:
                break
            yield loaders[0].step - 1, batches


def _change(loaders: list[Any], step: int) -> None:
    for loader in loaders:
        if step == 2:
            loader.sampler.add_dataset("code", len(loader.dataset.datasets[1]), 0.7)
        if step in (7, 20):
            loader.sampler.update_weights({"web": step / 7})
        if step == 30:
            loader.sampler.remove_dataset("web")
