"""The loader: KempnerForge's behaviour, batches that never change, all types of datasets."""

from __future__ import annotations

import gc
import json
import multiprocessing
import pickle
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numbered import Numbers, drawn

import fastpack
from fastpack import kernels

GOLDEN = Path(__file__).parents[1] / "golden" / "kempnerforge"
SCRIPTS: dict[str, Any] = json.loads((GOLDEN / "stateful_loader.json").read_text())
EOS = 0

pytestmark = pytest.mark.usefixtures("no_threads")


def packed(shards: Path) -> fastpack.MemoryMappedDataset:
    return fastpack.MemoryMappedDataset(shards, 33, "*.npy", True, EOS)


def golden_loader(kw: dict[str, int]) -> fastpack.StatefulDataLoader:
    dataset = Numbers(kw["n"])
    sampler = fastpack.DistributedSampler(dataset, kw["ws"], kw["rank"], seed=kw["seed"])
    return fastpack.StatefulDataLoader(dataset, kw["bs"], sampler)


@pytest.mark.parametrize("name", SCRIPTS)
def test_golden_scripts(name: str) -> None:
    loader, saved = golden_loader(SCRIPTS[name]["kw"]), {}
    for step in SCRIPTS[name]["log"]:
        operation, *arguments = step["op"]
        if operation == "len":
            assert len(loader) == step["len"]
        elif operation == "iter":
            assert iter(loader) is loader
        elif operation == "next":
            assert drawn(loader, arguments[0]) == step["batches"]
        elif operation == "save":
            saved[arguments[0]] = loader.state_dict()
            # a checkpoint may convert it to JSON, and KempnerForge ignores the additional key
            assert json.loads(json.dumps(saved[arguments[0]])) == saved[arguments[0]]
            assert {key: value for key, value in saved[arguments[0]].items() if key != "elastic"} == step["state"]
        elif operation == "new":
            loader = golden_loader(arguments[0])
        else:
            assert operation == "load"
            loader.load_state_dict(step["state"])  # KempnerForge's, without the additional key
            loader.load_state_dict(saved[arguments[0]])


@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_batches_are_ordered_and_the_tail_is_dropped(prefetch: int) -> None:
    loader = fastpack.StatefulDataLoader(Numbers(23), 5, range(23), prefetch=prefetch)
    assert len(loader) == 4
    assert [batch.tolist() for batch in loader] == np.arange(20).reshape(4, 5).tolist()
    assert loader.state_dict()["epoch"] == 1
    with pytest.raises(StopIteration):
        next(loader)
    assert len(list(loader)) == 4
    assert loader.state_dict()["epoch"] == 2
    with pytest.raises(StopIteration):
        next(fastpack.StatefulDataLoader(Numbers(23), 5, range(23)))  # never started


def test_a_state_of_the_end_of_an_epoch_yields_nothing_then_the_next_epoch() -> None:
    loader = fastpack.StatefulDataLoader(Numbers(20), 5, range(20))
    iter(loader)
    for _ in range(4):
        next(loader)
    other = fastpack.StatefulDataLoader(Numbers(20), 5, range(20))
    other.load_state_dict(loader.state_dict())
    assert list(other) == []
    assert other.state_dict()["epoch"] == 1
    assert len(list(other)) == 4
    loader.close()


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_batches_equal_those_of_the_dataset(shards: Path, dtype: Any, num_threads: int, backend: str) -> None:
    dataset = packed(shards)
    order = np.random.default_rng(1).permutation(len(dataset))
    loader = fastpack.StatefulDataLoader(dataset, 7, order, dtype=dtype, num_threads=num_threads)
    batches = list(loader)
    assert len(batches) == len(dataset) // 7 > 50
    for number, batch in enumerate(batches):  # all kept to the end: nothing was overwritten
        expected = dataset.batch(order[number * 7 : number * 7 + 7], dtype=dtype)
        assert list(batch) == list(expected)
        for name, array in batch.items():
            assert array.dtype == dtype
            np.testing.assert_array_equal(array, expected[name])
    if num_threads == 1:
        names = ("input_ids", "position_ids", "cu_seqlens", "max_seqlen")
        for number, batch in enumerate(fastpack.StatefulDataLoader(dataset, 7, order, dtype=dtype, outputs=names)):
            expected = dataset.batch(order[number * 7 : number * 7 + 7], names, dtype)
            assert list(batch) == list(names)
            assert all(np.array_equal(batch[name], expected[name]) for name in names)
    else:
        with pytest.raises(ValueError, match="cu_seqlens are of a whole batch"):
            fastpack.StatefulDataLoader(dataset, 7, outputs=("cu_seqlens",), num_threads=2)
    only = next(iter(fastpack.StatefulDataLoader(dataset, 7, order, outputs=("labels",))))
    assert list(only) == ["labels"]


def test_kept_batches_and_views_never_change(shards: Path) -> None:
    dataset = packed(shards)
    loader = fastpack.StatefulDataLoader(dataset, 4, range(len(dataset)), prefetch=3)
    rng, kept = random.Random(5), []
    for _ in range(6):
        for number, batch in enumerate(loader):
            if rng.random() < 0.3:
                name = rng.choice(list(batch))
                kept.append((number, name, batch[name][rng.randrange(4) :, 3:]))
            if rng.random() < 0.2:
                del kept[: rng.randrange(3)]
            if rng.random() < 0.005:
                gc.collect()
    assert len(kept) > 10
    for number, name, view in kept:
        expected = dataset.batch(range(number * 4, number * 4 + 4))[name]
        np.testing.assert_array_equal(view, expected[4 - len(view) :, 3:])


def test_buffers_are_reused(shards: Path) -> None:
    seen, n_batches = set(), 0
    for batch in fastpack.StatefulDataLoader(packed(shards), 4):
        seen |= {array.__array_interface__["data"][0] for array in batch.values()}
        n_batches += 1
    assert n_batches > 100
    assert len(seen) <= 3 * 5  # two waiting, one in production, one or two with the consumer


class Pair(NamedTuple):
    left: Any
    right: Any


class Kinds(Numbers):
    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "array": np.full((2, 3), index, np.int16),
            "int": index,
            "float": index / 2,
            "bool": index % 2 == 0,
            "scalar": np.float32(index),
            "text": f"t{index}",
            "tuple": (index, b"x"),
            "list": [index, 2.0],
            "pair": Pair(np.arange(2), "y"),
            "nested": {"deep": np.uint8(index)},
        }


def test_samples_are_collated_as_by_torch() -> None:
    batch = next(iter(fastpack.StatefulDataLoader(Kinds(10), 3, range(10))))
    assert batch["array"].tolist() == [[[i] * 3] * 2 for i in range(3)]
    dtypes = {"array": "int16", "int": "int64", "float": "float64", "bool": "bool", "scalar": "float32"}
    assert {name: str(batch[name].dtype) for name in dtypes} == dtypes
    assert batch["bool"].tolist() == [True, False, True]
    assert batch["text"] == ["t0", "t1", "t2"]
    assert isinstance(batch["tuple"], tuple)
    assert batch["tuple"][0].tolist() == [0, 1, 2]
    assert batch["tuple"][1] == [b"x"] * 3
    assert [part.tolist() for part in batch["list"]] == [[0, 1, 2], [2.0, 2.0, 2.0]]
    assert isinstance(batch["pair"], Pair)
    assert batch["pair"].left.tolist() == [[0, 1]] * 3
    assert batch["nested"]["deep"].dtype == np.uint8


@pytest.mark.parametrize(
    ("items", "error", "text"),
    [
        ([None, None], TypeError, "NoneType: give the loader a collate_fn"),
        ([np.zeros(2), np.zeros(3)], ValueError, r"differ in shape: \(2,\) and \(3,\)"),
        ([[1], [1, 2]], ValueError, "same number of elements"),
        ([2**70, 1], TypeError, "one array of numbers"),
        ([np.array(None), np.array(None)], TypeError, "Python objects"),
    ],
)
def test_samples_that_cannot_be_collated_are_refused(items: list[Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        next(iter(fastpack.StatefulDataLoader(items, 2, range(len(items)))))


def test_collate_fn_receives_the_list_of_samples(shards: Path) -> None:
    dataset = packed(shards)
    got: list[Any] = []
    loader = fastpack.StatefulDataLoader(
        dataset, 3, range(len(dataset)), collate_fn=lambda samples: got.append(samples) or "batch"
    )
    assert next(iter(loader)) == "batch"
    loader.close()
    assert isinstance(got[0], list)
    np.testing.assert_array_equal(got[0][2]["input_ids"], dataset[2]["input_ids"])
    with pytest.raises(ValueError, match="with a collate_fn: that takes a dataset with batch"):
        fastpack.StatefulDataLoader(dataset, 3, collate_fn=list, outputs=("labels",))
    with pytest.raises(ValueError, match="of a Numbers"):
        fastpack.StatefulDataLoader(Numbers(3), 3, outputs=("labels",))


class Many(Numbers):
    def __getitems__(self, indices: list[int]) -> list[str]:
        assert all(type(index) is int for index in indices)
        return [f"s{index}" for index in indices]


class Batched(Numbers):
    def batch(self, indices: Any) -> list[int]:
        return [int(index) * 2 for index in indices]


def test_other_datasets_and_samplers() -> None:
    assert next(iter(fastpack.StatefulDataLoader(Many(9), 3, np.arange(9)))) == ["s0", "s1", "s2"]
    assert next(iter(fastpack.StatefulDataLoader(Batched(9), 3, range(9)))) == [0, 2, 4]
    words = dict(zip("abcdef", range(6), strict=True))
    loader = fastpack.StatefulDataLoader(words, 2, iter("abcdef"))
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    endless = fastpack.StatefulDataLoader(Numbers(5), 2, (i % 5 for i in iter(int, 1) for i in range(10**9)))
    assert [next(iter(endless)).tolist() for _ in range(1)] == [[0, 1]]
    resumed = fastpack.StatefulDataLoader(Numbers(10), 2, list(range(10)))
    resumed.load_state_dict({"epoch": 3, "batches_yielded": 2})
    assert next(iter(resumed)).tolist() == [4, 5]  # the loader skips for a sampler without set_skip
    assert resumed.state_dict()["epoch"] == 3


def test_config_and_sizes() -> None:
    config = SimpleNamespace(num_workers=4, pin_memory=True, prefetch_factor=7)
    assert fastpack.StatefulDataLoader(Numbers(9), 3, config=config).prefetch == 7
    assert fastpack.StatefulDataLoader(Numbers(9), 3, config=config, prefetch=1).prefetch == 1
    config.prefetch_factor = None
    assert fastpack.StatefulDataLoader(Numbers(9), 3, config=config).prefetch == 2
    for wrong in ({"batch_size": 0}, {"prefetch": -1}, {"num_threads": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*, at least . is needed"):
            fastpack.StatefulDataLoader(Numbers(9), **({"batch_size": 3} | wrong))


def test_pickles_without_its_buffers(shards: Path) -> None:
    loader = iter(fastpack.StatefulDataLoader(packed(shards), 8))
    next(loader)
    assert len(pickle.dumps(loader)) < 5000
    unpickled = pickle.loads(pickle.dumps(loader))
    np.testing.assert_array_equal(next(iter(unpickled))["labels"], next(loader)["labels"])


def test_kernels_warm_up_for_long_epochs_in_main_processes(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    plain = fastpack.MemoryMappedDataset(shards, 33)
    monkeypatch.setattr(kernels, "warm", lambda **options: calls.append(options))
    fastpack.StatefulDataLoader(plain, 8)
    assert calls == []
    monkeypatch.setattr("fastpack.loading.fetch.WARM_TOKENS", 10_000)
    fastpack.StatefulDataLoader(plain, 8, dtype="int32")
    assert calls == [{"out_dtypes": ("int32",)}]
    fastpack.StatefulDataLoader(Numbers(10**9), 8)
    fastpack.StatefulDataLoader(packed(shards), 8)  # Cython fills doc_ids faster
    assert len(calls) == 1
    both = fastpack.MixtureDataset([plain, plain], ["a", "b"])
    fastpack.StatefulDataLoader(both, 8)
    assert calls.pop() == {"out_dtypes": ("int64",)}
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    fastpack.StatefulDataLoader(plain, 8)
    assert len(calls) == 1


class Trillion:
    """A dataset of 10^12 samples whose item is its index."""

    def __len__(self) -> int:
        return 10**12

    def batch(self, indices: Any) -> dict[str, np.ndarray]:
        return {"index": np.array(indices)}


def test_a_computed_order_is_never_stored() -> None:
    """Stored as an array, an order of 10^12 samples would take 1 TB for each of 8 ranks."""
    dataset = Trillion()
    sampler = fastpack.DistributedSampler(dataset, 8, 3, seed=1, order="feistel")
    loader = fastpack.StatefulDataLoader(dataset, 1000, sampler)
    batches = iter(loader)
    first = [next(batches)["index"].copy() for _ in range(3)]
    expected = [sampler.at(3 + 8 * position, 0) for position in range(3000)]
    assert np.concatenate(first).tolist() == expected
    resumed = fastpack.StatefulDataLoader(
        dataset, 500, fastpack.DistributedSampler(dataset, 2, 0, seed=1, order="feistel")
    )
    resumed.load_state_dict(loader.state_dict())
    assert next(iter(resumed))["index"].tolist() == [sampler.at(24_000 + 2 * position, 0) for position in range(500)]
    loader.close()
    resumed.close()


def test_cu_seqlens_of_fixed_length(shards: Path) -> None:
    dataset = fastpack.MemoryMappedDataset(shards, 9, pack_sequences=True, eos_token_id=0)
    names = ("input_ids", "cu_seqlens")
    loader = fastpack.StatefulDataLoader(dataset, 4, range(len(dataset)), outputs=names, cu_seqlens_length=64)
    for number, batch in enumerate(loader):
        one = dataset.batch(range(4 * number, 4 * number + 4), names, cu_seqlens_length=64)
        assert batch["cu_seqlens"].shape == (64,)
        np.testing.assert_array_equal(batch["cu_seqlens"], one["cu_seqlens"])
    with pytest.raises(ValueError, match="which was not requested"):
        fastpack.StatefulDataLoader(dataset, 4, cu_seqlens_length=64)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_loops_that_count_batches_reach_the_next_epoch(prefetch: int) -> None:
    """Regression: Lightning takes exactly len() batches, and every second epoch was empty."""
    dataset = Numbers(23)
    loader, reference = (fastpack.StatefulDataLoader(dataset, 5, prefetch=prefetch) for _ in range(2))
    for epoch in range(3):
        batches = iter(loader)
        assert loader.state_dict()["epoch"] == epoch
        taken = [next(batches).tolist() for _ in range(len(loader))]
        assert taken == [batch.tolist() for batch in reference]
    with pytest.raises(StopIteration):
        next(loader)
    loader.close()


def test_the_default_sampler_is_kempnerforges() -> None:
    """Regression: the order was 0, 1, 2, ... on every rank."""
    dataset = Numbers(23)
    loader = fastpack.StatefulDataLoader(dataset, 5)
    sampler = fastpack.DistributedSampler(dataset)
    assert len(loader) == 4
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert [number for batch in loader for number in batch.tolist()] == list(sampler)[:20]
    state = loader.state_dict()
    assert state["sampler"] == {"epoch": 1, "seed": 0, "num_replicas": 1, "rank": 0}


def test_set_epoch_of_the_sampler_during_an_epoch_changes_nothing() -> None:
    """Lightning sets the epoch of a loader's sampler by its own count, between iter() and the first next()."""
    dataset = Numbers(40)
    for kind in ("shuffled", "feistel"):
        order = "torch" if kind == "shuffled" else "feistel"
        samplers = [fastpack.DistributedSampler(dataset, 1, 0, order=order) for _ in range(2)]
        loader, reference = (fastpack.StatefulDataLoader(dataset, 5, sampler, prefetch=0) for sampler in samplers)
        iter(loader)
        samplers[0].set_epoch(7)
        assert drawn(loader, 8) == drawn(iter(reference), 8)
