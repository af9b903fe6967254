"""Every kernel returns the same results in many concurrent threads as in one, on every backend."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tar_files import write_tar

import fastpack
from fastpack import kernels
from fastpack.webdataset.sample_index import write_sample_index
from fastpack.webdataset.sample_index.sqlite_writer import SAMPLES_SQL
from fastpack.webdataset.sample_index.table_rows import TableRows
from fastpack.webdataset.shard_index import scan_shard

N_THREADS = 8


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JSON lines, a packed file, shards and a tar."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    lines = [b'{"text": "%s", "n": %d}' % (b"x" * n, n) for n in rng.integers(0, 90, 300).tolist()]
    (folder / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    with fastpack.PackedWriter(folder / "a.pbin", 2) as writer:
        for n in rng.integers(1, 40, 200).tolist():
            writer.append(rng.integers(0, 500, n))
    for number in range(3):
        tokens = rng.integers(0, 30, 2000 + number, dtype=np.uint16)
        tokens[-99:] = 0
        np.save(folder / f"{number}.npy", tokens)
    members = ((f"k{n}.{field}", bytes(n)) for n in rng.permutation(150).tolist() for field in ("jpg", "txt"))
    write_tar(folder / "a.tar", members)
    return folder


def index(data: Path, folder: Path) -> Any:
    fastpack.create_raw_index(data / "a.jsonl", folder / "a.idx")
    raw = np.frombuffer((data / "a.jsonl").read_bytes(), np.uint8)
    return (folder / "a.idx").read_bytes(), kernels.count_newlines(raw)


def packed(data: Path, folder: Path) -> Any:
    with fastpack.PackedFile(data / "a.pbin") as file:
        counts = np.zeros(500, np.uint32)
        scanned = kernels.scan_tokens(file.data, 3), kernels.count_tokens(file.data, counts), counts.tolist()
        blocks = np.empty(len(file), np.int64)
        n_blocks = kernels.block_starts(file.index, 64, 0, blocks)
        taken = np.empty(400, np.uint8)
        starts, lengths = file.index[:5, 0].copy(), np.minimum(file.index[:5, 1], 80)
        kernels.copy_spans(file.file, starts, np.cumsum([0, *lengths[:-1]]), lengths, taken[: lengths.sum()])
        sums = np.zeros(20, np.uint64)
        kernels.add_hashes(file.data, np.arange(40).reshape(20, 2), sums)
    continuous = fastpack.PackedMemMapDatasetContinuous(data / "a.pbin", "x", 16, True)
    rows = continuous.batch(range(40))["x"]
    fastpack.shuffle_tokenized_data(data / "a.pbin", folder / "b.pbin", 64, if_exists="overwrite", seed=4)
    return (
        scanned,
        sums.tolist(),
        blocks[:n_blocks].tolist(),
        taken[:9].tolist(),
        rows.tolist(),
        (folder / "b.pbin").read_bytes(),
    )


def batches(data: Path, folder: Path) -> Any:
    found: list[Any] = []
    for is_packed, trim in ((False, True), (True, False)):
        dataset = fastpack.MemoryMappedDataset(data, 33, "*.npy", is_packed, eos_token_id=0, trim_zero_tail=trim)
        outputs = ("input_ids", "labels", "doc_ids", "position_ids", "cu_seqlens") if is_packed else None
        chosen = list(range(0, len(dataset), 3))
        found += [value.tolist() for value in dataset.batch(chosen, outputs=outputs).values()]
        found += [value.tolist() for value in dataset.batch(chosen).values()]
        found += [value.tolist() for i in chosen[:9] for value in dataset[i].values()]
    return found


def locations(data: Path, folder: Path) -> Any:
    cumulative, indices = np.array([0, 5, 5, 90, 4000], np.int64), np.arange(0, 4000, 7)
    shards, rest = np.empty_like(indices), np.empty_like(indices)
    bad = kernels.locate_many(cumulative, indices, shards, rest)
    return bad, shards.tolist(), rest.tolist(), [kernels.locate(cumulative, i) for i in (0, 5, 89, 3999)]


def documents(data: Path, folder: Path) -> Any:
    tokens = np.load(data / "0.npy")
    numbers, labels = np.empty(len(tokens), np.int64), np.empty(len(tokens) - 1, np.int64)
    kernels.doc_ids(tokens, 0, numbers)
    kernels.mask_labels(tokens, 0, labels)
    return numbers.tolist(), labels.tolist()


def orders(data: Path, folder: Path) -> Any:
    by_torch = fastpack.DistributedSampler(range(5000), 2, 1, seed=5).indices()
    computed = fastpack.DistributedSampler(range(5000), 2, 1, seed=5, order="feistel").indices()
    state, numbers = np.array(random.Random(4).getstate()[1], np.uint32), np.arange(3000)
    kernels.stdlib_shuffle(state, numbers)
    shuffled = np.arange(3000)
    kernels.legacy_shuffle(state, shuffled)
    return by_torch.tolist(), computed.tolist(), numbers.tolist(), shuffled.tolist()


def sample_index(data: Path, folder: Path) -> Any:
    write_sample_index(folder / "index.sqlite", [scan_shard(data / "a.tar")])
    rows = TableRows(folder / "index.sqlite", SAMPLES_SQL).of_shard(0)
    return (folder / "index.sqlite").read_bytes(), [column.tolist() for column in rows]


def plans(data: Path, folder: Path) -> Any:
    found: list[Any] = []
    for algorithm in ("best_fit", "first_fit", "none"):
        plan = folder / f"{algorithm}.plan"
        options: dict[str, Any] = {"seed": 1, "max_documents": 3, "if_exists": "overwrite"}
        fastpack.plan(data / "a.pbin", plan, seq_length=16, algorithm=algorithm, **options)
        with fastpack.PlannedDataset(plan) as dataset:
            found += [value.tolist() for value in dataset.batch(range(len(dataset))).values()]
    balanced = folder / "balanced.plan"
    options = {"balance": "attention", "data_parallel": 2, "seed": 1, "if_exists": "overwrite"}
    return found, fastpack.plan(data / "a.pbin", balanced, seq_length=16, **options).n_rows, balanced.read_bytes()[-99:]


def megatron_samples(data: Path, folder: Path) -> Any:
    found: list[Any] = []
    for options in ({"inter_document_masking": True}, {"reset_position_ids": True, "eod_mask_loss": True}):
        blend, eod = [0.3, data / "a.pbin", 0.7, data / "a.pbin"], {"eod_token_id": 3}
        (dataset, _, _) = fastpack.GPTDataset.build(blend, 16, 1, (200, 0, 0), "1,0,0", **eod, **options)
        found += [value.tolist() for value in dataset.batch(range(0, 200, 3)).values() if value is not None]
    return found


def shares(data: Path, folder: Path) -> Any:
    dataset = fastpack.MemoryMappedDataset(data, 33, "*.npy", True, eos_token_id=0)
    sampler = fastpack.DistributedSampler(dataset, 1, 0)
    names = ["input_ids", "labels", "position_ids", "cu_seqlens"]
    found: list[Any] = []
    for layout in ("zigzag", "documents"):
        loader = fastpack.StatefulDataLoader(
            dataset, 4, sampler, outputs=names, prefetch=0, context_parallel=(1, 4), cp_layout=layout
        )
        found += [value.tolist() for value in next(iter(loader)).values()]
    return found


def mixtures(data: Path, folder: Path) -> Any:
    parts = [fastpack.MemoryMappedDataset(data, 33, "*.npy") for _ in range(2)]
    dataset = fastpack.MixtureDataset(parts, ["a", "b"])
    sampler = fastpack.MixtureSampler(dataset.cumulative_sizes, [0.7, 0.3], seed=2, no_repeat=True)
    loader = fastpack.StatefulDataLoader(dataset, 4, sampler, prefetch=0)
    batches = iter(loader)
    first = next(batches)["input_ids"].tolist()
    sampler.update_weights([0.2, 0.8])
    return first, next(batches)["input_ids"].tolist(), loader.counts()


WORK: tuple[Callable[[Path, Path], Any], ...] = (
    index,
    packed,
    batches,
    locations,
    documents,
    orders,
    sample_index,
    plans,
    megatron_samples,
    shares,
    mixtures,
)


def test_every_kernel_is_called(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, the test below would omit a new kernel."""
    called: set[str] = set()

    def recorded(name: str) -> Callable[..., Any]:
        kernel = getattr(kernels, name)

        def call(*arguments: Any, **named: Any) -> Any:
            called.add(name)
            return kernel(*arguments, **named)

        return call

    for name in kernels.TABLE:
        monkeypatch.setattr(kernels, name, recorded(name))
    for work in WORK:
        work(data, tmp_path)
    assert set(kernels.TABLE) - called == set()


def test_threads_get_the_results_of_a_single_thread(backend: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    alone = {work: work(data, tmp_path / "alone") for work in WORK}
    together = threading.Barrier(N_THREADS)

    def run(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        together.wait(60)
        for place in range(len(WORK)):
            work = WORK[(number + place) % len(WORK)]
            assert work(data, folder) == alone[work], work.__name__

    with ThreadPoolExecutor(N_THREADS) as pool:
        list(pool.map(run, range(N_THREADS)))
