"""fastpack.torch: the NumPy classes' values as tensors, with the loaders of fastpack, torch and torchdata."""

from __future__ import annotations

import copy
import gc
import io
import itertools
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="fastpack.torch cannot be tested: torch is not installed")

import fastpack  # noqa: E402
import fastpack.torch  # noqa: E402
from fastpack.loading.buffers import aligned_memory  # noqa: E402

GOLDEN = Path(__file__).parent / "golden"
PACKED = GOLDEN / "modalities" / "pbin" / "docs_bpe2000.pbin"
EOS = 0


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("shards"), np.random.default_rng(3)
    for number in range(3):
        np.save(folder / f"{number}.npy", rng.integers(0, 20, 3000 + number, dtype=np.uint16))
    return folder


def packed(shards: Path, where: Any = fastpack.torch) -> Any:
    return where.MemoryMappedDataset(shards, 33, "*.npy", True, EOS)


def same(tensors: Any, arrays: Any) -> None:
    """Assert the same keys in the same order, and tensors with the arrays' values and dtypes."""
    assert list(tensors) == list(arrays)
    for name, tensor in tensors.items():
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_array_equal(tensor.numpy(), arrays[name], strict=True)


def test_samples_and_batches_equal_those_of_the_numpy_classes(shards: Path) -> None:
    ours, theirs = packed(shards), packed(shards, fastpack)
    for index in (0, 90, len(theirs) - 1):
        same(ours[index], theirs[index])
    for options in ({}, {"dtype": "int32"}, {"outputs": ("labels",)}):
        same(ours.batch([5, 0, 91], **options), theirs.batch([5, 0, 91], **options))
    out = {name: torch.zeros(2, 32, dtype=torch.int64) for name in ("input_ids", "labels")}
    assert ours.batch([3, 4], out=out)["labels"] is out["labels"]
    same(out, theirs.batch([3, 4], outputs=("input_ids", "labels")))
    whole = ours.batch([3, 4], ("cu_seqlens", "max_seqlen"))
    assert whole["cu_seqlens"].tolist() == theirs.batch([3, 4], ("cu_seqlens",))["cu_seqlens"].tolist()
    assert whole["max_seqlen"] == theirs.batch([3, 4], ("max_seqlen",))["max_seqlen"]
    late = {"cu_seqlens": None}
    ours.fill([3, 4], late)
    assert torch.equal(late["cu_seqlens"], whole["cu_seqlens"])
    plain = fastpack.torch.MemoryMappedDataset(shards, 33)[7]
    assert plain["labels"].data_ptr() == plain["input_ids"].data_ptr() + 8  # two views of one window
    with pytest.raises(IndexError, match="out of range"):
        ours[len(ours)]


def test_packed_files() -> None:
    ours = fastpack.torch.PackedMemMapDatasetContinuous(PACKED, "tokens", 65, True)
    theirs = fastpack.PackedMemMapDatasetContinuous(PACKED, "tokens", 65, True)
    same(ours[-1], theirs[-1])
    same(ours.batch([0, 5]), theirs.batch([0, 5]))
    assert [type(one) for one in ours[2:4]["tokens"]] == [torch.Tensor] * 2
    documents = fastpack.torch.PackedMemMapDatasetBase(PACKED, "tokens")
    expected = fastpack.PackedMemMapDatasetBase(PACKED, "tokens")
    same(documents[3], expected[3])
    for one, other in zip(documents.batch([1, 2])["tokens"], expected.batch([1, 2])["tokens"], strict=True):
        assert one.tolist() == other.tolist()


def test_blocks_that_start_with_documents() -> None:
    for options in ({}, {"compat": "modalities-0.5"}):
        ours = fastpack.torch.PackedMemMapDatasetMegatron(PACKED, "tokens", 65, **options)
        theirs = fastpack.PackedMemMapDatasetMegatron(PACKED, "tokens", 65, **options)
        same(ours[-1], theirs[-1])
        same(ours.batch([0, 5]), theirs.batch([0, 5]))


def test_planned_rows(tmp_path: Path) -> None:
    """Tensors, also of the loss mask, in this process and from workers of torch's DataLoader."""
    fastpack.plan(PACKED, tmp_path / "a.plan", seq_length=64, seed=1, pad_to_multiple=8)
    names = ("input_ids", "labels", "doc_ids", "position_ids", "loss_mask")
    ours = fastpack.torch.PlannedDataset(tmp_path / "a.plan", outputs=names)
    theirs = fastpack.PlannedDataset(tmp_path / "a.plan", outputs=names)
    same(ours[1], theirs[1])
    same(ours.batch([0, 3]), theirs.batch([0, 3]))
    out = {"loss_mask": torch.zeros(2, 64, dtype=torch.bool), "cu_seqlens": None}
    ours.fill([3, 4], out)
    same(out, theirs.batch([3, 4], ("loss_mask", "cu_seqlens")))
    loader = torch.utils.data.DataLoader(ours, 3, num_workers=1, multiprocessing_context="spawn")
    same(next(iter(loader)), theirs.batch([0, 1, 2]))


class Markers:
    """Markers that occur in the packed file."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, end

    def get_token_id(self, token: str) -> int:
        return self.begin if token == "<b>" else self.end


def masking(where: Any, inner: Any, markers: Markers) -> Any:
    tokens = {"b_include_to_loss_token": "<b>", "e_include_to_loss_token": "<e>"}
    return where.LossMaskingCollateFnWrapper(inner, ["labels"], -100, tokens, markers)


def test_collators_under_every_loader(tmp_path: Path) -> None:
    """Whole batches and single samples, tensors and arrays, under torch's DataLoader and fastpack's."""
    tokens = np.random.default_rng(2).integers(7, 200, 2000)
    tokens[::20], tokens[7::20] = 5, 6
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many(tokens, [len(tokens)])
    markers, arguments = Markers(5, 6), (tmp_path / "a.pbin", "ids", 33, True)
    dataset = fastpack.PackedMemMapDatasetContinuous(*arguments)
    reference = masking(fastpack, fastpack.GPT2LLMCollateFn("ids", "labels"), markers)
    expected = [reference(dataset.__getitems__(range(i, i + 4))) for i in range(0, len(dataset) - 3, 4)]
    inners = [where.GPT2LLMCollateFn("ids", "labels") for where in (fastpack, fastpack.torch)]
    collators = [masking(fastpack.torch, inner, markers) for inner in inners]
    datasets = [
        dataset,
        fastpack.torch.PackedMemMapDatasetContinuous(*arguments),
        [dataset[k] for k in range(len(dataset))],
    ]
    makers = (fastpack.torch.StatefulDataLoader, torch.utils.data.DataLoader)
    for collate, source, make in itertools.product(collators, datasets, makers):
        options: dict[str, Any] = {"drop_last": True, "sampler": range(len(source))}
        if make is fastpack.torch.StatefulDataLoader:
            del options["drop_last"]
        for batch, other in zip(make(source, 4, collate_fn=collate, **options), expected, strict=True):
            assert type(batch) is fastpack.torch.DatasetBatch
            assert len(batch) == 4
            same(batch.samples, other.samples)
            same(batch.targets, other.targets)


def test_batch_methods_of_a_training_loop() -> None:
    collate = fastpack.torch.GPT2LLMCollateFn("ids", "labels")
    batch = collate([{"ids": torch.arange(5, dtype=torch.int32)}, {"ids": torch.arange(5, 10, dtype=torch.int32)}])
    assert batch.samples["ids"].tolist() == [[0, 1, 2, 3], [5, 6, 7, 8]]
    assert batch.targets["labels"].dtype == torch.int32
    assert batch.device == torch.device("cpu")
    batch.detach()
    batch.to(torch.device("meta"))
    assert batch.device == batch.targets["labels"].device == torch.device("meta")
    assert len(batch) == 2

    class Theirs:  # a batch of another class, as Modalities' collator returns it
        def __init__(self) -> None:
            self.samples, self.targets = {"ids": torch.ones(1, 4)}, {"labels": torch.tensor([[5, 1, 6, 2]])}

    masked = masking(fastpack.torch, lambda _samples: Theirs(), Markers(5, 6))([])
    assert type(masked) is Theirs
    assert masked.targets["labels"].tolist() == [[-100, 1, -100, -100]]
    assert isinstance(masked.targets["labels"], torch.Tensor)


@pytest.mark.parametrize("kind", ["MixtureDataset", "CombinedDataset"])
def test_mixtures_and_combined_datasets(shards: Path, kind: str) -> None:
    names = [["a", "b"]] if kind == "MixtureDataset" else []
    theirs = getattr(fastpack, kind)([packed(shards, fastpack), packed(shards, fastpack)], *names)
    for inner in (fastpack, fastpack.torch):
        ours = getattr(fastpack.torch, kind)([packed(shards, inner), packed(shards, inner)], *names)
        for index in (0, len(theirs) - 1):
            one, other = ours[index], theirs[index]
            assert one.pop("dataset_idx", None) == other.pop("dataset_idx", None)
            same(one, other)
        rows = range(0, len(theirs), 40)
        same(ours.batch(rows), theirs.batch(rows))
        for loader in (
            torch.utils.data.DataLoader(ours, 16, drop_last=True),
            fastpack.torch.StatefulDataLoader(ours, 16, range(len(ours))),
        ):
            for number, batch in enumerate(loader):
                same(batch, theirs.batch(range(number * 16, number * 16 + 16)))
            assert number == len(theirs) // 16 - 1


@pytest.mark.parametrize(("num_workers", "context"), [(0, ""), (2, "fork"), (2, "spawn")])
def test_under_torchs_data_loader(shards: Path, num_workers: int, context: str) -> None:
    options = {"multiprocessing_context": context} if num_workers else {}
    for dataset in (packed(shards), packed(shards, fastpack)):
        loader = torch.utils.data.DataLoader(dataset, 8, num_workers=num_workers, drop_last=True, **options)
        numbers = range(0, len(dataset) - 7, 8)
        for first, batch in zip(numbers, loader, strict=True):
            same(batch, packed(shards, fastpack).batch(range(first, first + 8)))


def test_getitems_produces_one_batch(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = packed(shards)
    monkeypatch.setattr(type(dataset), "__getitem__", lambda *_: pytest.fail("requested singly"))
    batch = next(iter(torch.utils.data.DataLoader(dataset, 8)))
    same(batch, packed(shards, fastpack).batch(range(8)))


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 with torch 2.13
def test_under_torchdata(shards: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed, or broken")
    dataset = packed(shards, fastpack)
    expected = [batch["labels"] for batch in fastpack.StatefulDataLoader(dataset, 8, range(len(dataset)))]
    for num_workers in (0, 2):
        loader = stateful.StatefulDataLoader(packed(shards), 8, num_workers=num_workers, drop_last=True)
        taken = iter(loader)
        for number in range(3):
            np.testing.assert_array_equal(next(taken)["labels"].numpy(), expected[number])
        state = loader.state_dict()
        del taken
        other = stateful.StatefulDataLoader(packed(shards), 8, num_workers=num_workers, drop_last=True)
        other.load_state_dict(state)
        for number, batch in enumerate(other, 3):
            np.testing.assert_array_equal(batch["labels"].numpy(), expected[number])
        assert number == len(expected) - 1


@pytest.mark.parametrize("where", [fastpack, fastpack.torch])
def test_the_loader_returns_tensors_in_leased_memory(shards: Path, where: Any) -> None:
    dataset = packed(shards, where)
    seen: set[int] = set()
    for number, batch in enumerate(fastpack.torch.StatefulDataLoader(dataset, 8, range(len(dataset)))):
        same(batch, packed(shards, fastpack).batch(range(number * 8, number * 8 + 8)))
        seen |= {tensor.data_ptr() for tensor in batch.values()}
    assert number > 30
    assert len(seen) <= 15  # the memory is reused


def test_kept_tensors_never_change(shards: Path) -> None:
    kept: list[tuple[Any, Any]] = []
    dataset = packed(shards)
    loader = fastpack.torch.StatefulDataLoader(dataset, 4, range(len(dataset)), prefetch=3)
    views = (
        lambda tensor: tensor,
        lambda tensor: tensor[1:],
        lambda tensor: tensor.T,
        lambda tensor: tensor.numpy(),
        lambda tensor: tensor.view(-1)[::3],
        lambda tensor: tensor.detach(),
        lambda tensor: torch.utils.dlpack.from_dlpack(tensor),
        lambda tensor: np.from_dlpack(tensor),
        lambda tensor: tensor.untyped_storage(),
        lambda tensor: list(tensor.unbind(0)),
        memoryview_of,
    )
    for epoch in range(3):
        for number, batch in enumerate(loader):
            view = views[(number + epoch) % len(views)](batch["input_ids"])
            kept.append((view, copy.deepcopy(plain(view))))
            if number % 3 == 0:
                del kept[: number % 5]
                gc.collect(0)
    assert len(kept) > 50
    for view, expected in kept:
        assert plain(view) == expected


def memoryview_of(tensor: Any) -> memoryview:
    return memoryview(tensor.numpy())


def plain(view: Any) -> Any:
    return [one.tolist() for one in view] if isinstance(view, list) else view.tolist()


class Samples:
    """A map-style dataset of another library."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((3,), index, dtype=torch.bfloat16), "n": index, "f": float(index), "s": str(index)}


def test_other_datasets_use_torchs_collate() -> None:
    theirs = torch.utils.data.DataLoader(Samples(), 6, drop_last=True)
    ours = fastpack.torch.StatefulDataLoader(Samples(), 6, range(len(Samples())))
    assert len(ours) == len(theirs) == 3
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one.pop("x"), other.pop("x"))
        assert {name: str(value) for name, value in one.items()} == {name: str(value) for name, value in other.items()}
    collated = fastpack.torch.StatefulDataLoader(
        Samples(), 6, range(len(Samples())), collate_fn=lambda samples: [one["s"] for one in samples]
    )
    assert next(iter(collated)) == ["0", "1", "2", "3", "4", "5"]
    sampler = torch.utils.data.RandomSampler(range(20), generator=torch.Generator().manual_seed(1))
    shuffled = [n for batch in fastpack.torch.StatefulDataLoader(Samples(), 5, sampler) for n in batch["n"].tolist()]
    assert sorted(shuffled) == list(range(20)) != shuffled


def test_pinned_memory(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a substitute for the device, which most test machines lack."""
    dataset, config = packed(shards), SimpleNamespace(num_workers=4, pin_memory=True, prefetch_factor=2)
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="no CUDA device: nothing is pinned"):
            assert not fastpack.torch.StatefulDataLoader(dataset, 4, pin_memory=True).pin_memory
        assert not fastpack.torch.StatefulDataLoader(dataset, 4, config=config).pin_memory  # KempnerForge's default
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr("fastpack.torch.loader.pinned_memory", aligned_memory)
    assert not fastpack.torch.StatefulDataLoader(dataset, 4, config=config, pin_memory=False).pin_memory
    loader = fastpack.torch.StatefulDataLoader(dataset, 4, range(len(dataset)), config=config)
    assert loader.pin_memory
    recent: list[set[int]] = []
    for number, batch in enumerate(loader):
        same(batch, packed(shards, fastpack).batch(range(number * 4, number * 4 + 4)))
        addresses = {tensor.data_ptr() for tensor in batch.values()}
        # A batch is released when the next one arrives. Its memory rests for two calls of next(): the batch that the
        # third call waits for may be filled into it, if the producer is late.
        assert not any(addresses & earlier for earlier in recent[-2:])
        recent.append(addresses)
    assert len(set().union(*recent)) < 40


def test_a_checkpoint_by_torch(shards: Path) -> None:
    loader = iter(fastpack.torch.StatefulDataLoader(packed(shards), 4))
    next(loader)
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    file.seek(0)
    other = fastpack.torch.StatefulDataLoader(packed(shards), 4)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(next(iter(other))["labels"], next(loader)["labels"])
    loader.close()
    other.close()


def test_importing_without_torch_names_the_extra() -> None:
    code = "import sys; sys.modules['torch'] = None; import fastpack.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "fastpack.errors.MissingExtra: fastpack.torch needs the package 'torch': pip install 'fastpack-llm[torch]'"
    )


def test_nothing_else_imports_torch() -> None:
    code = "import fastpack, sys; [getattr(fastpack, name) for name in dir(fastpack)]; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_read_only_arrays_cause_no_warning(shards: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        packed(shards)[0]
        packed(shards).batch([0])


def test_views_of_one_array_stay_views(shards: Path) -> None:
    dataset = fastpack.torch.MemoryMappedDataset(shards, 33)
    for dtype, n_bytes in (("int64", 8), ("int32", 4)):
        shared = next(iter(fastpack.torch.StatefulDataLoader(dataset, 4, dtype=dtype)))
        other = next(iter(fastpack.torch.StatefulDataLoader(dataset, 4, dtype=dtype, share_memory=False)))
        assert shared["labels"].data_ptr() == shared["input_ids"].data_ptr() + n_bytes
        assert other["labels"].is_contiguous()
        for name in ("input_ids", "labels"):
            assert torch.equal(shared[name], other[name])
            assert torch.equal(shared[name].reshape(-1), other[name].view(-1))
    masked = fastpack.torch.MemoryMappedDataset(shards, 33, "*.npy", True, 0)
    with pytest.raises(ValueError, match="share_memory=True is not possible"):
        fastpack.torch.StatefulDataLoader(masked, 4, share_memory=True)
