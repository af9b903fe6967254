"""Context parallelism: a rank's share of a batch is the full batch, cut; and only the share is read."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack import io as files

ROWS = ("input_ids", "labels", "doc_ids", "position_ids")
BOUNDS = ("cu_seqlens", "max_seqlen", "cu_seqlens_global", "max_seqlen_global")
LAYOUTS = ("zigzag", "contiguous", "documents")
PADDING = {"labels": -100}
Arrays = dict[str, np.ndarray]


def loader(dataset: Any, samples: list[int], rank: int, size: int, **options: Any) -> fastpack.StatefulDataLoader[Any]:
    return fastpack.StatefulDataLoader(
        dataset, len(samples), samples, context_parallel=(rank, size), prefetch=0, **options
    )


def chunks(array: np.ndarray, rank: int, size: int) -> np.ndarray:
    """Return chunks `rank` and 2 * size - 1 - rank of a sequence whose length is a multiple of 2 * size."""
    return array.reshape(2 * size, -1)[[rank, 2 * size - 1 - rank]].ravel()


def cut_rows(full: Arrays, rank: int, size: int, layout: str) -> Arrays:
    """Cut [B, L] arrays by the definition of zigzag and contiguous."""
    if layout == "contiguous":
        return {name: np.split(array, size, axis=1)[rank] for name, array in full.items()}
    return {name: np.stack([chunks(row, rank, size) for row in array]) for name, array in full.items()}


def cut_documents(full: Arrays, rank: int, size: int) -> tuple[Arrays, list[int]]:
    """Cut every document by the definition of `documents`; return the arrays, and the lengths of the shares."""
    rows: list[list[Arrays]] = []
    for row in range(len(full["doc_ids"])):
        parts = []
        starts = np.flatnonzero(np.diff(full["doc_ids"][row], prepend=-1))
        for number, (start, end) in enumerate(pairwise([*starts.tolist(), len(full["doc_ids"][row])])):
            document = {name: array[row, start:end] for name, array in full.items()}
            parts.append(padded(document, number, -len(document["labels"]) % (2 * size)))
        rows.append(parts)
    width = max(sum(len(part["labels"]) for part in parts) for parts in rows)
    for parts in rows:
        if missing := width - sum(len(part["labels"]) for part in parts):
            parts.append(padded({name: np.zeros(0, np.int64) for name in full}, len(parts), missing))
    lengths = [len(part["labels"]) // size for parts in rows for part in parts]
    share = {
        name: np.stack([np.concatenate([chunks(part[name], rank, size) for part in parts]) for parts in rows])
        for name in full
    }
    return share, lengths


def padded(document: Arrays, number: int, n_tokens: int) -> Arrays:
    length = len(document["labels"])
    tail = {
        "input_ids": np.zeros(n_tokens, np.int64),
        "labels": np.full(n_tokens, -100),
        "doc_ids": np.full(n_tokens, number),
        "position_ids": np.arange(length, length + n_tokens),
    }
    return {name: np.concatenate([array, tail[name]]) for name, array in document.items()}


def runs(places: np.ndarray, doc_ids: np.ndarray) -> list[int]:
    """Return the lengths of the runs of consecutive tokens of one document, given [B, n] tokens' places in the row."""
    breaks = np.ones(places.shape, bool)
    breaks[:, 1:] = (np.diff(places, axis=1) != 1) | (np.diff(doc_ids, axis=1) != 0)
    return np.diff(np.append(np.flatnonzero(breaks), places.size)).tolist()


def expected(full: dict[str, Any], rank: int, size: int, layout: str) -> dict[str, Any]:
    rows = {name: full[name] for name in ROWS}
    if layout == "documents":
        share, lengths = cut_documents(rows, rank, size)
        whole = np.concatenate([[0], np.cumsum(lengths)]) * size
    else:
        places = np.tile(np.arange(rows["labels"].shape[1]), (len(rows["labels"]), 1))
        share = cut_rows({**rows, "places": places}, rank, size, layout)
        lengths, whole = runs(share.pop("places"), share["doc_ids"]), full["cu_seqlens"]
    bounds = {"cu_seqlens": np.concatenate([[0], np.cumsum(lengths)]), "max_seqlen": max(lengths)}
    return {**share, **bounds, "cu_seqlens_global": whole, "max_seqlen_global": np.diff(whole).max()}


def save_shards(folder: Path, n_tokens: int, dtypes: tuple[str, ...], rate: float) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(len(str(folder)))
    for k, dtype in enumerate(dtypes):
        tokens = rng.integers(1, 200, n_tokens)
        tokens[rng.random(n_tokens) < rate] = 0
        np.save(folder / f"{k}.npy", tokens.astype(dtype))
    return folder


class Foreign:
    """Another library's dataset: dicts of arrays."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Arrays:
        batch = self._dataset.batch([index], ROWS)
        return {name: batch[name][0] for name in ROWS}


def make_datasets(folder: Path) -> list[Any]:
    """Return datasets of rows of 48 tokens: mapped, read, of several dtypes, copied, planned, and combined."""

    def windows(name: str, dtypes: tuple[str, ...] = ("u2",), rate: float = 0.1, **options: Any) -> Any:
        shards = save_shards(folder / name, 49 * 6, dtypes, rate)
        return fastpack.MemoryMappedDataset(shards, 49, pack_sequences=True, eos_token_id=0, **options)

    with fastpack.PackedWriter(folder / "a.pbin", 2) as writer:
        lengths = [30, 1, 77, 2, 130, 60]
        documents = [np.append(np.arange(1, n), 0) for n in lengths]
        writer.append_many(np.concatenate(documents), lengths)

    def planned(name: str, sources: list[str], **options: Any) -> Any:
        paths = [folder / source for source in sources]
        fastpack.plan(paths, folder / f"{name}.plan", seq_length=48, seed=1, **options)
        return fastpack.PlannedDataset(folder / f"{name}.plan")

    mapped, rare = windows("mapped"), windows("rare", ("u4", "u4"), 0.01)
    for kind in ("mds", "megatron"):
        fastpack.convert(folder / "a.pbin", folder / kind, format=kind, dtype="uint16" if kind == "mds" else "int32")
    plan = planned("one", ["a.pbin"])
    return [
        mapped,
        rare,
        windows("every", rate=1.0),
        windows("read", ("u2", "u4", ">u2"), io="pread"),
        windows("mixed", ("u2", ">u4", "i8")),
        fastpack.PackedMemMapDatasetContinuous(folder / "a.pbin", "tokens", 49, True, eos_token_id=0),
        fastpack.PackedMemMapDatasetMegatron(folder / "a.pbin", "tokens", 49, eos_token_id=0),
        fastpack.PackedMemMapDatasetContinuous(folder / "mds", "tokens", 49, False, eos_token_id=0),
        plan,
        planned("many", ["a.pbin", "mds", "megatron", "a.pbin"], pad_to_multiple=4),
        planned("stream", ["mds", "a.pbin"], algorithm="none"),
        fastpack.MixtureDataset([plan, mapped], ["a", "b"]),
        fastpack.MixtureDataset([mapped, mapped], ["a", "b"]),
        fastpack.MixtureDataset([mapped, Foreign(rare), rare], ["a", "b", "c"]),
        fastpack.CombinedDataset([rare, fastpack.CombinedDataset([mapped, Foreign(mapped)])]),
    ]


def check_random_share(datasets: list[Any], rng: np.random.Generator) -> None:
    dataset = datasets[rng.integers(len(datasets))]
    layout = LAYOUTS[rng.integers(3)]
    size = int(rng.choice([1, 2, 3, 4, 6, 8, 12, 24]))
    if layout == "documents" and rng.random() < 0.5:
        size = int(rng.integers(1, 70))
    rank = int(rng.integers(size))
    samples = rng.integers(0, len(dataset), rng.integers(1, 5)).tolist()
    names = [name for name in (*ROWS, *BOUNDS) if rng.random() < 0.6] or ["labels"]
    full = dataset.batch(samples, (*ROWS, "cu_seqlens"))
    if isinstance(dataset, fastpack.MixtureDataset):
        names.append("dataset_idx")
        full |= dataset.batch(samples, ("dataset_idx",))
    options: dict[str, Any] = {"outputs": names, "dtype": rng.choice(["int64", "int32"]).item(), "cp_layout": layout}
    found = next(iter(loader(dataset, samples, rank, size, **options)))
    wanted = expected(full, rank, size, layout) | {"dataset_idx": full.get("dataset_idx")}
    assert list(found) == names
    for name in names:
        np.testing.assert_array_equal(
            found[name], wanted[name], f"{name} of {dataset} {samples} {rank}/{size} {layout}"
        )
        if name in ROWS:
            assert found[name].dtype == options["dtype"]


@pytest.mark.parametrize(
    "n_cases", [400, pytest.param(10_000, marks=pytest.mark.slow), pytest.param(100_000, marks=pytest.mark.long)]
)
def test_a_share_is_the_full_batch_cut(tmp_path: Path, n_cases: int) -> None:
    datasets, rng = make_datasets(tmp_path), np.random.default_rng(n_cases)
    for _ in range(n_cases):
        check_random_share(datasets, rng)


def test_plans_padded_to_multiples_need_no_more_padding(tmp_path: Path) -> None:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many(np.arange(1, 201), [30, 1, 77, 2, 40, 50])
    fastpack.plan(writer.path, tmp_path / "a.plan", seq_length=48, pad_to_multiple=8)
    dataset = fastpack.PlannedDataset(tmp_path / "a.plan")
    samples, names = list(range(len(dataset))), ("input_ids", "labels", "cu_seqlens_global")
    shares = [next(iter(loader(dataset, samples, r, 4, cp_layout="documents", outputs=names))) for r in range(4)]
    full = dataset.batch(samples, ("input_ids", "labels", "cu_seqlens"))
    assert not (full["cu_seqlens"] % 8).any()
    for rank, share in enumerate(shares):
        assert share["input_ids"].shape == (len(samples), 12)
        np.testing.assert_array_equal(share["cu_seqlens_global"], full["cu_seqlens"])
        where = partitioned_indices(full["cu_seqlens"], 4, rank)
        for name in names[:2]:
            np.testing.assert_array_equal(share[name].ravel(), full[name].ravel()[where])


def test_shares_without_documents(tmp_path: Path) -> None:
    dataset = fastpack.MemoryMappedDataset(save_shards(tmp_path / "a", 170, ("u2",), 0.3), 17)
    full = dataset.batch([3, 8])
    for layout in ("zigzag", "contiguous"):
        for rank in range(4):
            found = next(iter(loader(dataset, [3, 8], rank, 4, cp_layout=layout)))
            np.testing.assert_equal(found, cut_rows(dict(full), rank, 4, layout))


def test_expected_values(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([5, 0, 6, 7, 8, 9, 0, 1, 2], np.uint16))
    dataset = fastpack.MemoryMappedDataset(tmp_path, 9, pack_sequences=True, eos_token_id=0)
    names = ("input_ids", "labels", "position_ids", "cu_seqlens", "cu_seqlens_global")
    zigzag = next(iter(loader(dataset, [0], 0, 2, outputs=names)))
    assert {name: array.tolist() for name, array in zigzag.items()} == {
        "input_ids": [[5, 0, 0, 1]],
        "labels": [[0, -100, -100, 2]],
        "position_ids": [[0, 1, 4, 0]],
        "cu_seqlens": [0, 2, 3, 4],
        "cu_seqlens_global": [0, 2, 7, 8],
    }
    documents = next(iter(loader(dataset, [0], 1, 2, outputs=names, cp_layout="documents")))
    assert {name: array.tolist() for name, array in documents.items()} == {
        "input_ids": [[0, 0, 8, 9, 0, 0, 0, 0]],
        "labels": [[-100, -100, 9, 0, -100, -100, -100, -100]],
        "position_ids": [[1, 2, 2, 3, 4, 5, 1, 2]],
        "cu_seqlens": [0, 2, 6, 8],
        "cu_seqlens_global": [0, 4, 12, 16],
    }


def partitioned_indices(cu_seqlens: np.ndarray, size: int, rank: int) -> np.ndarray:
    """Return what TransformerEngine's thd_get_partitioned_indices is documented to return."""
    every = np.arange(cu_seqlens[-1])
    parts = [every[start:end] for start, end in pairwise(cu_seqlens.tolist())]
    return np.concatenate([chunks(part, rank, size) for part in parts])


def test_documents_are_partitioned_as_in_transformer_engine(tmp_path: Path) -> None:
    shards = save_shards(tmp_path / "a", 300, ("u2",), 0.05)
    dataset = fastpack.MemoryMappedDataset(shards, 60, pack_sequences=True, eos_token_id=0)
    names = ("input_ids", "doc_ids", "cu_seqlens", "cu_seqlens_global")
    shares = [
        next(iter(loader(dataset, [0, 3, 1], rank, 4, cp_layout="documents", outputs=names))) for rank in range(4)
    ]
    bounds = shares[0]["cu_seqlens_global"]
    whole = np.full(bounds[-1], -1)
    for rank, share in enumerate(shares):
        np.testing.assert_array_equal(share["cu_seqlens"] * 4, bounds)
        whole[partitioned_indices(bounds, 4, rank)] = share["input_ids"].ravel()
    assert (whole >= 0).all()
    full = dataset.batch([0, 3, 1])["input_ids"].ravel().tolist()
    assert [token for token in whole.tolist() if token] == [token for token in full if token]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_a_million_tokens_at_size_32(tmp_path: Path, layout: str) -> None:
    length = 1 << 20
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 60_000, length + 1).astype(np.uint16)
    tokens[rng.integers(0, length, 1000)] = 0
    np.save(tmp_path / "a.npy", tokens)
    dataset = fastpack.MemoryMappedDataset(tmp_path, length + 1, pack_sequences=True, eos_token_id=0)
    names = ("input_ids", "labels", "doc_ids", "position_ids", "cu_seqlens", "cu_seqlens_global")
    full: dict[str, Any] = dict(dataset.batch([0], (*ROWS, "cu_seqlens"), "int32"))
    n_bytes = sum(full[name].nbytes for name in ROWS)
    for rank in (0, 17, 31):
        share = next(iter(loader(dataset, [0], rank, 32, cp_layout=layout, outputs=names, dtype="int32")))
        wanted = expected(full, rank, 32, layout)
        for name in names:
            np.testing.assert_array_equal(share[name], wanted[name])
        written = sum(share[name].nbytes for name in ROWS)
        assert written == n_bytes // 32 if layout != "documents" else written < 1.1 * n_bytes / 32


@pytest.mark.parametrize("layout", ["zigzag", "contiguous"])
def test_only_the_share_is_read(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = save_shards(tmp_path / "a", 4 * 4097, ("u2",), 0.01)
    dataset = fastpack.MemoryMappedDataset(shards, 4097, pack_sequences=True, eos_token_id=0, io="pread")
    files: Any = dataset._windows
    read, hinted = counted(files.files, "read", monkeypatch), counted(files.files, "will_need", monkeypatch)
    outputs = ("input_ids", "labels")
    for rank in range(8):
        next(iter(loader(dataset, [1, 3], rank, 8, cp_layout=layout, outputs=outputs)))
        n_chunks = 1 if layout == "contiguous" or rank == 7 else 2
        assert sum(len(call[2]) for call in read) == 2 * 2 * (512 + n_chunks)  # rows, bytes; 1 more token for a label
        assert sum(call[2] for call in hinted) == 2 * 2 * (512 + n_chunks)
        read.clear()
        hinted.clear()


def test_only_pages_of_the_share_are_read(tmp_path: Path) -> None:
    length, path = 1 << 20, tmp_path / "a.npy"
    np.save(path, np.ones(2 * (length + 1), np.uint16))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    dataset = fastpack.MemoryMappedDataset(tmp_path, length + 1, pack_sequences=True, eos_token_id=0)
    if pages_in_memory(path) > 64:
        pytest.skip("the file system keeps pages in memory")
    options: dict[str, Any] = {"outputs": ("input_ids", "labels"), "dtype": "int32"}
    next(iter(loader(dataset, [1], 3, 32, **options)))
    assert 16 <= pages_in_memory(path) <= 128  # of 1024; the share is 16, and more were read on opening
    next(iter(loader(dataset, [1], 0, 1, **options)))
    assert pages_in_memory(path) >= 512


def pages_in_memory(path: Path) -> int:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        array = np.frombuffer(mapping, np.uint8)
        start, n_bytes = array.ctypes.data, len(array)
        del array
        return sum(files.is_in_memory(page, 1) for page in range(start, start + n_bytes, mmap.PAGESIZE))


def counted(target: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Record the arguments of a method."""
    calls: list[tuple[Any, ...]] = []
    original: Callable[..., Any] = getattr(target, name)

    def record(*arguments: Any) -> Any:
        calls.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(target, name, record)
    return calls


def test_ranks_stay_in_step_and_resume(tmp_path: Path) -> None:
    shards = save_shards(tmp_path / "a", 49 * 20, ("u2",), 0.1)
    dataset = fastpack.MemoryMappedDataset(shards, 49, pack_sequences=True, eos_token_id=0)

    def rank_loader(rank: int) -> Any:
        sampler = fastpack.DistributedSampler(dataset, 2, 1, seed=3)
        return fastpack.StatefulDataLoader(dataset, 2, sampler, context_parallel=(rank, 3), prefetch=2)

    first = [list(map(dict, rank_loader(rank))) for rank in range(3)]
    assert len({len(batches) for batches in first}) == 1
    whole = list(fastpack.StatefulDataLoader(dataset, 2, fastpack.DistributedSampler(dataset, 2, 1, seed=3)))
    for rank, batches in enumerate(first):
        for share, full in zip(batches, whole, strict=True):
            np.testing.assert_equal(share, cut_rows(dict(full), rank, 3, "zigzag"))
    stopped = rank_loader(0)
    batches = iter(stopped)
    next(batches)
    next(batches)
    resumed = rank_loader(2)
    resumed.load_state_dict(stopped.state_dict())
    np.testing.assert_equal(list(resumed), first[2][2:])
    stopped.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context_parallel": (2, 2)}, r"context_parallel is \(2, 2\): \(rank, size\) with 0 <= rank < size"),
        ({"context_parallel": (0, 5)}, "rows of 48 tokens cannot be cut into 10 equal chunks"),
        ({"context_parallel": (0, 5), "cp_layout": "contiguous"}, "cannot be cut into 5 equal chunks"),
        ({"cp_layout": "ring"}, "cp_layout is 'ring': choose from zigzag, contiguous, documents"),
        ({"cp_layout": "documents"}, "cp_layout='documents' needs the dataset's eos_token_id"),
        ({"outputs": ("doc_ids",)}, "doc_ids need the dataset's eos_token_id"),
        ({"outputs": ("cu_seqlens_global",)}, "cu_seqlens need the dataset's eos_token_id"),
        ({"outputs": ("loss",)}, "unknown output 'loss'"),
        ({"num_threads": 2}, "context_parallel takes neither a collate_fn nor num_threads > 1"),
        ({"collate_fn": list}, "context_parallel takes neither a collate_fn nor num_threads > 1"),
    ],
)
def test_what_cannot_be_cut_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    dataset = fastpack.MemoryMappedDataset(save_shards(tmp_path / "a", 98, ("u2",), 0.1), 49)
    with pytest.raises(ValueError, match=message):
        fastpack.StatefulDataLoader(dataset, 2, [0, 1], **{"context_parallel": (0, 2), **options})


def test_groups_without_a_sampler_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = fastpack.MemoryMappedDataset(save_shards(tmp_path / "a", 49 * 8, ("u2",), 0.1), 49)
    assert len(fastpack.StatefulDataLoader(dataset, 2, context_parallel=(0, 2))) == 4

    class Distributed:  # what the loader asks torch.distributed
        is_available, is_initialized = staticmethod(lambda: True), staticmethod(lambda: True)
        get_world_size, get_rank = staticmethod(lambda: 4), staticmethod(lambda: 2)

    monkeypatch.setitem(sys.modules, "torch.distributed", Distributed)
    with pytest.raises(ValueError, match="context_parallel needs a sampler of data-parallel ranks"):
        fastpack.StatefulDataLoader(dataset, 2, context_parallel=(0, 2))


def test_other_datasets_and_blocks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="context_parallel cuts rows of tokens: a list has none"):
        loader([1, 2], [0, 1], 0, 2)
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many(np.arange(100), [100])
    blocks = fastpack.PackedMemMapDatasetContinuous(tmp_path / "a.pbin", "tokens", 9, True)
    with pytest.raises(ValueError, match=r"pass outputs=\('input_ids', 'labels'\)"):
        loader(blocks, [0, 1], 0, 2)
    with pytest.raises(ValueError, match="cannot be put together from samples of its dataset"):
        list(loader(blocks, [0, 1], 0, 2, outputs=("labels",)).batch_sampler)


def test_cu_seqlens_have_the_requested_length(tmp_path: Path) -> None:
    shards = save_shards(tmp_path / "a", 49 * 4, ("u2",), 0.1)
    dataset = fastpack.MemoryMappedDataset(shards, 49, pack_sequences=True, eos_token_id=0)
    names = ("cu_seqlens", "cu_seqlens_global")
    exact = next(iter(loader(dataset, [0, 1], 0, 2, outputs=names)))
    fixed = next(iter(loader(dataset, [0, 1], 0, 2, outputs=names, cu_seqlens_length=50)))
    for name in names:
        n = len(exact[name])
        assert fixed[name].tolist() == exact[name].tolist() + [exact[name][-1]] * (50 - n)
    with pytest.raises(ValueError, match="cu_seqlens has room for 3 entries, this batch needs"):
        next(iter(loader(dataset, [0, 1], 0, 2, outputs=names, cu_seqlens_length=3)))
