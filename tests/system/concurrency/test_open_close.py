"""Opening, reading and closing a thousand times leaks no file descriptors, mappings or memory."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tar_files import write_tar

import fastpack

GROWTH = 3 << 20  # bytes; a leak of some kilobytes per cycle exceeds it

Open = Callable[[Path], object]


def read_and_close(dataset: object) -> None:
    dataset[0], dataset[len(dataset) - 1]  # type: ignore[index, arg-type]
    dataset.close()  # type: ignore[attr-defined]


def loader(folder: Path) -> None:
    batches = iter(fastpack.StatefulDataLoader(fastpack.MemoryMappedDataset(folder, 9), 2))
    next(batches)
    batches.close()


def mixture(folder: Path) -> fastpack.MixtureDataset:
    datasets = [fastpack.MemoryMappedDataset(folder, 9), fastpack.MemoryMappedDataset(folder, 5)]
    return fastpack.MixtureDataset(datasets, ["a", "b"])


SLOW = ("TatmMemmapDataset", "MemMapDataset", "WebDataset", "WebDataset-pread")  # take milliseconds to open


class Upper:
    """A minimal tokenizer."""

    def tokenize(self, text: str) -> list[int]:
        return list(text.encode())


DATASETS: dict[str, Open] = {
    "PackedFile": lambda folder: fastpack.PackedFile(folder / "a.pbin"),
    "PackedMemMapDatasetBase": lambda folder: fastpack.PackedMemMapDatasetBase(folder / "a.pbin", "x"),
    "Continuous": lambda folder: fastpack.PackedMemMapDatasetContinuous(folder / "a.pbin", "x", 4, True),
    "Megatron": lambda folder: fastpack.PackedMemMapDatasetMegatron(folder / "a.pbin", "x", 4),
    "MemMapDataset": lambda folder: fastpack.MemMapDataset(folder / "a.jsonl", Upper(), "x"),
    "LargeFileLinesReader": lambda folder: fastpack.LargeFileLinesReader(folder / "a.jsonl"),
    "MemoryMappedDataset": lambda folder: fastpack.MemoryMappedDataset(folder, 9),
    "MemoryMappedDataset-pread": lambda folder: fastpack.MemoryMappedDataset(folder, 9, io="pread"),
    "MixtureDataset": mixture,
    "CombinedDataset": lambda folder: fastpack.CombinedDataset([fastpack.MemoryMappedDataset(folder, 9)]),
    "TatmMemmapDataset": lambda folder: fastpack.TatmMemmapDataset(
        str(folder / "t"), 8, "uint16", token_output_format="numpy"
    ),
    "WebDataset": lambda folder: fastpack.WebDataset(folder / "web", raw=True),
    "WebDataset-pread": lambda folder: fastpack.WebDataset(folder / "web", raw=True, io="pread"),
    "WebDataset-jsonl": lambda folder: fastpack.WebDataset(folder / "a.jsonl", raw=True),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    with fastpack.PackedWriter(folder / "a.pbin", 2) as writer:
        for n in (5, 9, 7):
            writer.append(np.arange(n))
    (folder / "a.jsonl").write_bytes(b'{"text": "a"}\n{"text": "b"}\n')
    fastpack.create_raw_index(folder / "a.jsonl")
    fastpack.index_webdataset_jsonl(folder / "a.jsonl")
    for number in range(2):
        np.save(folder / f"{number}.npy", np.arange(50, dtype=np.uint16))
    np.arange(64, dtype=np.uint16).tofile(folder / "t_0.bin")
    write_tar(folder / "web" / "a.tar", {f"k{number}.txt": b"text" for number in range(3)})
    fastpack.prepare(folder / "web", split_ratio=(1, 0, 0), sample_type="CrudeWebdataset", num_workers=1)
    return folder


def used_resources() -> tuple[int, int, int]:
    """Return the file descriptors, mappings and bytes of memory of this process."""
    gc.collect()
    with open("/proc/self/maps") as maps, open("/proc/self/statm") as memory:
        return len(os.listdir("/proc/self/fd")), len(maps.readlines()), int(memory.read().split()[1]) * 4096


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts by Linux's /proc")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in (*DATASETS, "StatefulDataLoader")],
)
def test_a_thousand_cycles_leak_nothing(name: str, folder: Path) -> None:
    def cycle() -> None:
        if name == "StatefulDataLoader":
            loader(folder)
        else:
            read_and_close(DATASETS[name](folder))

    for _ in range(100):
        cycle()
    before = used_resources()
    for _ in range(1000):
        cycle()
    after = used_resources()
    assert after[0] <= before[0]
    assert after[1] <= before[1] + 20  # the number of mappings of the allocator varies
    assert after[2] <= before[2] + GROWTH
