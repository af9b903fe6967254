"""MemoryMappedDataset compared with golden values of KempnerForge and with the definition of packing."""

from __future__ import annotations

import json
import pickle
import threading
import time
import tracemalloc
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack.datasets import mapped_shards
from fastpack.errors import DataWarning

GOLDEN = Path(__file__).parents[1] / "golden" / "kempnerforge"
ITEMS: dict[str, Any] = json.loads((GOLDEN / "items.json").read_text())


def open_golden(name: str) -> fastpack.MemoryMappedDataset:
    case = ITEMS[name]
    folder = GOLDEN / "shards" / name.split("__")[0]
    arguments = (folder, case["seq_len"], case["pattern"], case["pack"], case["eos"])
    if "bin_u16" not in name:
        return fastpack.MemoryMappedDataset(*arguments)
    with pytest.warns(DataWarning, match="is read as uint32"):
        return fastpack.MemoryMappedDataset(*arguments)


@pytest.mark.parametrize("name", ITEMS)
def test_golden_items_singly(name: str, backend: str) -> None:
    case, expected = ITEMS[name], np.load(GOLDEN / "items.npz")
    with open_golden(name) as dataset:
        assert len(dataset) == case["len"]
        assert dataset.state_dict() == case["state_dict"]
        assert dataset._bounds == case["cumulative"]
        assert [Path(shard.path).name for shard in dataset._files] == case["files"]
        for i in range(len(dataset)):
            item = dataset[i]
            assert sorted(item) == case["keys"]
            for key, value in item.items():
                assert value.dtype == np.int64
                np.testing.assert_array_equal(value, expected[f"{name}__{key}"][i])


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("name", ITEMS)
def test_golden_items_in_one_batch(name: str, dtype: Any, backend: str) -> None:
    expected = np.load(GOLDEN / "items.npz")
    with open_golden(name) as dataset:
        order = np.random.default_rng(1).permutation(len(dataset))
        for key, value in dataset.batch(order, dtype=dtype).items():
            assert value.dtype == dtype
            np.testing.assert_array_equal(value, expected[f"{name}__{key}"][order])


@pytest.mark.parametrize("case", json.loads((GOLDEN / "packed_cases.json").read_text()).items(), ids=lambda c: c[0])
def test_golden_packed_cases(case: tuple[str, dict[str, Any]], backend: str, tmp_path: Path) -> None:
    values = case[1]
    np.save(tmp_path / "a.npy", np.array(values["tokens"], np.int64))
    dataset = fastpack.MemoryMappedDataset(
        tmp_path, len(values["tokens"]), pack_sequences=True, eos_token_id=values["eos"]
    )
    item, batch = dataset[0], dataset.batch([0])
    for key in ("input_ids", "labels", "doc_ids"):
        np.testing.assert_array_equal(item[key], values[key])
        np.testing.assert_array_equal(batch[key], [values[key]])


def packed_by_definition(tokens: np.ndarray, eos: int) -> dict[str, list[int]]:
    values = [int(t) for t in tokens]
    return {
        "input_ids": values[:-1],
        "labels": [-100 if a == eos else b for a, b in pairwise(values)],
        "doc_ids": [values[:j].count(eos) for j in range(len(values) - 1)],
    }


@given(data=st.data())
def test_shards_of_any_dtype_mix(data: st.DataObject, backend: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("shards")
    seq_len = data.draw(st.integers(1, 300), label="seq_len")
    dtypes = st.sampled_from(["u1", "u2", "u4", "i2", "i8", "u8", ">u2", ">i4", "f4"])
    windows_of = []
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    for k in range(data.draw(st.integers(1, 4), label="shards")):
        dtype = np.dtype(data.draw(dtypes))
        tokens = rng.integers(0, data.draw(st.sampled_from([2, 5, 100])), data.draw(st.integers(0, 1500))).astype(dtype)
        np.save(folder / f"s{k}.npy", tokens)
        windows_of += list(tokens[: len(tokens) // seq_len * seq_len].reshape(-1, seq_len))
    eos = data.draw(st.sampled_from([0, 1, 4, 255, 256, -1]))
    empty = nullcontext() if windows_of else pytest.warns(DataWarning, match="the dataset is empty")
    with empty:
        dataset = fastpack.MemoryMappedDataset(folder, seq_len, pack_sequences=True, eos_token_id=eos)
    with dataset:
        assert len(dataset) == len(windows_of)
        order = rng.permutation(len(dataset))[:40]
        batch = dataset.batch(order)
        for row, i in enumerate(order):
            expected = packed_by_definition(windows_of[i], eos)
            for key, values in expected.items():
                assert batch[key][row].tolist() == values
            if row < 3:
                assert {key: value.tolist() for key, value in dataset[int(i)].items()} == expected


def test_plain_item_is_two_views_of_one_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10, dtype=np.uint16))
    item = fastpack.MemoryMappedDataset(tmp_path, 5)[1]
    assert item["input_ids"].tolist() == [5, 6, 7, 8]
    assert item["labels"].tolist() == [6, 7, 8, 9]
    assert item["input_ids"].base is item["labels"].base


def test_errors_match_the_original(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="eos_token_id is required when pack_sequences=True"):
        fastpack.MemoryMappedDataset(tmp_path / "missing", 8, pack_sequences=True)
    with pytest.raises(FileNotFoundError, match=r"No files matching '\*.npy' in "):
        fastpack.MemoryMappedDataset(tmp_path / "missing", 8)
    np.save(tmp_path / "a.npy", np.arange(10, dtype=np.uint16))
    with pytest.raises(ZeroDivisionError):
        fastpack.MemoryMappedDataset(tmp_path, 0)
    dataset = fastpack.MemoryMappedDataset(tmp_path, 5)
    for index in (-1, 2):
        with pytest.raises(IndexError, match=rf"Index {index} out of range \[0, 2\)"):
            dataset[index]
        with pytest.raises(IndexError, match=rf"Index {index} out of range \[0, 2\)"):
            dataset.batch([0, index])
    (tmp_path / "empty.bin").touch()
    with pytest.raises(ValueError, match="cannot mmap an empty file"):
        fastpack.MemoryMappedDataset(tmp_path, 5, "*.bin")


HUGE_HEADER = b"\x93NUMPY\x02\x00\x00\x00\x00\x70{'descr'"


@pytest.mark.parametrize(
    "broken", [b"", b"junk, no array", b"\x93NUMPY\x01\x00\x40\x00{'descr'", b"PK\3\4", b"\x80\4K\1.", HUGE_HEADER]
)
def test_broken_npy_is_a_value_error(broken: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(broken)
    tracemalloc.start()
    with pytest.raises(fastpack.FormatError, match=r"a\.npy"):
        fastpack.MemoryMappedDataset(tmp_path, 5)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_errors_locate_the_end_of_a_truncated_npy(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(1000, dtype=np.uint16))
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(fastpack.FormatError) as caught:
        fastpack.MemoryMappedDataset(tmp_path, 5)
    assert (caught.value.path, caught.value.offset) == (str(path), 128 + 2000 - 7)


def test_shard_that_shrank_after_construction_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(1000, dtype=np.uint16))
    dataset = fastpack.MemoryMappedDataset(tmp_path, 5)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(fastpack.FormatError, match="as when opened"):
        dataset.batch([0])


def test_object_arrays_are_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        fastpack.MemoryMappedDataset(tmp_path, 1)


def test_two_dimensional_arrays_keep_their_second_axis(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.int32).reshape(12, 2)
    np.save(tmp_path / "a.npy", array)
    item = fastpack.MemoryMappedDataset(tmp_path, 4)[2]
    np.testing.assert_array_equal(item["input_ids"], array[8:11])


def test_names_sort_by_bytes_and_folders_by_component(tmp_path: Path) -> None:
    for name in ("t_10.npy", "t_2.npy", ".hidden.npy", "a-b/x.npy", "a/x.npy", "a.b/x.npy"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / name, np.zeros(4, np.uint16))

    def found(pattern: str) -> list[str]:
        dataset = fastpack.MemoryMappedDataset(tmp_path, 4, pattern)
        return [Path(shard.path).relative_to(tmp_path).as_posix() for shard in dataset._files]

    assert found("*.npy") == [".hidden.npy", "t_10.npy", "t_2.npy"]
    assert found("**/x.npy") == ["a/x.npy", "a-b/x.npy", "a.b/x.npy"]


def test_fill_writes_in_place_and_refuses_arrays_that_do_not_fit(backend: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(40, dtype=np.uint16))
    dataset = fastpack.MemoryMappedDataset(tmp_path, 5)
    out = {name: np.empty((2, 4), np.int32) for name in ("input_ids", "labels")}
    assert dataset.batch([1, 0], out=out) is out
    assert out["labels"].tolist() == [[6, 7, 8, 9], [1, 2, 3, 4]]
    only = dataset.batch([7], outputs=["labels"])
    assert {name: array.tolist() for name, array in only.items()} == {"labels": [[36, 37, 38, 39]]}
    for bad, text in (
        ({"input_ids": np.empty((2, 5), np.int64)}, "shape"),
        ({"input_ids": np.empty((2, 4), np.float64)}, "dtype"),
        ({"input_ids": np.empty((4, 2), np.int64).T}, "C-contiguous"),
        ({"ids": np.empty((2, 4), np.int64)}, "unknown"),
        ({"doc_ids": np.empty((2, 4), np.int64)}, "eos_token_id"),
        ({"input_ids": np.empty((2, 4), np.int64), "labels": np.empty((2, 4), np.int32)}, "one dtype"),
    ):
        with pytest.raises(ValueError, match=text):
            dataset.fill([0, 1], bad)


@pytest.mark.parametrize("dtype", ["u4", "i8", ">u4"])
@pytest.mark.parametrize("packed", [True, False])
def test_tokens_that_do_not_fit_into_int32_are_refused(dtype: str, packed: bool, backend: str, tmp_path: Path) -> None:
    tokens = np.arange(600, dtype=dtype)
    tokens[599] = 2**31
    np.save(tmp_path / "a.npy", tokens)
    dataset = fastpack.MemoryMappedDataset(tmp_path, 300, pack_sequences=packed, eos_token_id=7)
    assert dataset.batch([0], dtype="int32")["labels"].dtype == np.int32
    with pytest.raises(OverflowError, match="int64"):
        dataset.batch([0, 1], dtype="int32")
    assert dataset.batch([0, 1])["labels"][1, -1] == 2**31


def test_more_shards_than_the_mapping_limit(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_shards, "MAX_OPEN", 3)
    for k in range(11):
        np.save(tmp_path / f"{k:02}.npy", np.full(6, k, np.uint16 if k % 2 else np.uint32))
    dataset = fastpack.MemoryMappedDataset(tmp_path, 3)
    order = np.random.default_rng(0).permutation(22)
    assert dataset.batch(order)["labels"][:, 0].tolist() == (order // 2).tolist()
    assert len(dataset._windows.shards.mappings.arrays) <= 3


def test_pickles_as_paths(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100_000, dtype=np.uint16))
    dataset = fastpack.MemoryMappedDataset(tmp_path, 5)
    dataset.batch([3])
    data = pickle.dumps(dataset)
    assert len(data) < 2000
    assert pickle.loads(data)[3]["labels"].tolist() == [16, 17, 18, 19]


def test_close_is_idempotent_and_final(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(40, dtype=np.uint16))
    dataset = fastpack.MemoryMappedDataset(tmp_path, 5)
    item = dataset[0]
    dataset.close()
    dataset.close()
    assert item["labels"].tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="closed"):
        dataset[0]
    with pytest.raises(ValueError, match="closed"):
        dataset.batch([0])


def test_threads_may_share_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_shards, "MAX_OPEN", 2)
    for k in range(8):
        np.save(tmp_path / f"{k}.npy", np.full(4000, k, np.uint16))
    dataset = fastpack.MemoryMappedDataset(tmp_path, 10)
    wrong: list[int] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            order = rng.integers(0, len(dataset), 16)
            if dataset.batch(order)["labels"][:, 0].tolist() != (order // 400).tolist():
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_concurrent_threads_map_a_shard_once() -> None:
    """A second mapping would replace the first one, which another thread may be reading."""
    opened = []

    def slowly() -> np.ndarray:
        opened.append(threading.get_ident())
        time.sleep(0.05)
        return np.arange(100, dtype=np.uint16)

    shared = mapped_shards.MappedShards([slowly])
    got: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: got.append(shared.shard(0))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1
    assert all(tokens is got[0] for tokens in got)
