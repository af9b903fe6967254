"""Checks of indices and of the arrays in `out`: the same errors on every backend."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack


def window_dataset(folder: Path) -> Any:
    np.save(folder / "a.npy", np.arange(100, dtype=np.uint16))
    return fastpack.MemoryMappedDataset(folder, 5, pack_sequences=True, eos_token_id=0)


def packed_file(folder: Path) -> Path:
    path = folder / "a.pbin"
    with fastpack.PackedWriter(path, 2, if_exists="overwrite") as writer:
        writer.append_many(np.arange(100), [5] * 20)
    return path


def planned_rows(folder: Path) -> Any:
    fastpack.plan(packed_file(folder), folder / "a.plan", seq_length=5, if_exists="overwrite")
    return fastpack.PlannedDataset(folder / "a.plan")


def tatm_dataset(folder: Path) -> Any:
    np.arange(100, dtype=np.uint16).tofile(folder / "t_0.bin")
    return fastpack.TatmMemmapDataset(str(folder / "t_"), 5, "uint16", token_output_format="numpy")


def lines(folder: Path) -> Path:
    path = folder / "x.jsonl"
    path.write_text('{"text": "a"}\n' * 20)
    fastpack.create_raw_index(path, if_exists="overwrite")
    return path


def dummies(_: Path) -> Any:
    return fastpack.DummyDataset(20, [{"sample_key": "a", "sample_shape": [2], "sample_type": "int"}])


MAKERS: dict[str, Callable[[Path], Any]] = {
    "MemoryMappedDataset": window_dataset,
    "PackedMemMapDatasetContinuous": lambda f: fastpack.PackedMemMapDatasetContinuous(packed_file(f), "ids", 5, False),
    "PackedMemMapDatasetMegatron": lambda f: fastpack.PackedMemMapDatasetMegatron(packed_file(f), "ids", 5),
    "PlannedDataset": planned_rows,
    "PackedMemMapDatasetBase": lambda f: fastpack.PackedMemMapDatasetBase(packed_file(f), "ids"),
    "MixtureDataset": lambda f: fastpack.MixtureDataset([window_dataset(f)], ["a"]),
    "CombinedDataset": lambda f: fastpack.CombinedDataset([window_dataset(f)]),
    "TatmMemmapDataset": tatm_dataset,
    "PackedFile": lambda f: fastpack.PackedFile(packed_file(f)),
    "LargeFileLinesReader": lambda f: fastpack.LargeFileLinesReader(lines(f)),
    "MemMapDataset": lambda f: fastpack.MemMapDataset(lines(f), list, "ids"),
    "DummyDataset": dummies,
}


def content(sample: Any) -> Any:
    return vars(sample) if hasattr(sample, "token_ids") else sample


BATCHES = [name for name in MAKERS if name.startswith(("Packed", "Mem", "Mix", "Com", "Tat")) and name != "PackedFile"]
BATCHES.remove("MemMapDataset")

NO_INTEGERS = [1.0, 1.7, "5", None, True, np.bool_(True), np.float32(1), [1], np.array([1])]


@pytest.mark.parametrize("name", MAKERS)
def test_an_index_is_an_integer(name: str, tmp_path: Path) -> None:
    dataset = MAKERS[name](tmp_path)
    for index in NO_INTEGERS:
        with pytest.raises(TypeError, match="must be an integer"):
            dataset[index]
    for good in (3, np.int64(3), np.uint8(3), np.array(3)):
        np.testing.assert_equal(content(dataset[good]), content(dataset[3]))
    for index in (20, 2**64 - 1, np.uint64(2**64 - 1), 2**70, -(2**70)):
        with pytest.raises(IndexError):
            dataset[index]


@pytest.mark.parametrize("name", BATCHES)
def test_indices_of_a_batch_are_integers(name: str, tmp_path: Path, backend: str) -> None:
    dataset = MAKERS[name](tmp_path)
    for index in NO_INTEGERS:
        with pytest.raises(TypeError, match="integer"):
            dataset.batch([0, index])
    for indices in (np.array([1.0]), np.array([True, False]), np.array(["5"]), np.array([0], "m8[s]")):
        with pytest.raises(TypeError, match="must be integers"):
            dataset.batch(indices)
    with pytest.raises(ValueError, match="one dimension"):
        dataset.batch(np.zeros((2, 2), np.int64))
    large = np.array([0, 2**64 - 1], np.uint64)
    for beyond in (large, large.tolist(), [0, 2**70], [0, 20], np.array([20], np.uint8), np.array([0, 2**63], object)):
        with pytest.raises(IndexError, match=r"out of (range|bounds)"):
            dataset.batch(beyond)
    expected = dataset.batch([3, 0])
    for good in (np.array([3, 0], np.uint64), np.array([3, 0], ">i2"), (3, 0), [np.int32(3), 0], range(3, -1, -3)):
        np.testing.assert_equal(dataset.batch(good), expected)
    assert all(len(array) == 0 for array in dataset.batch([]).values())


def test_indices_of_fill_and_will_need(tmp_path: Path) -> None:
    dataset = window_dataset(tmp_path)
    mixture = fastpack.MixtureDataset([dataset], ["a"])
    for one in (dataset, mixture):
        with pytest.raises(TypeError, match="must be an integer"):
            one.fill(np.array(["1"]).astype(object), one.new_outputs(1))
        with pytest.raises(TypeError, match="must be integers"):
            one.will_need(np.array([True]))
    with pytest.raises(TypeError, match="a sequence of integers, not int"):
        dataset.fill(3, dataset.new_outputs(1))


def test_errors_show_a_negative_index_as_given(tmp_path: Path) -> None:
    dataset = MAKERS["PackedMemMapDatasetContinuous"](tmp_path)
    with pytest.raises(IndexError, match=r"Index -27 out of range \[0, 20\)"):
        dataset.batch([0, -27])


def test_samplers_yield_integers(tmp_path: Path) -> None:
    for numbers in ([0.0, 1.0], ["0", "1"], np.array([0.5, 1.5])):
        loader = fastpack.StatefulDataLoader(window_dataset(tmp_path), 2, sampler=numbers)
        with pytest.raises(TypeError, match="integer"):
            next(iter(loader))


def read_only(shape: tuple[int, ...], dtype: Any = np.int64) -> np.ndarray:
    array = np.zeros(shape, dtype)
    array.flags.writeable = False
    return array


def unaligned(shape: tuple[int, int]) -> np.ndarray:
    return np.zeros(shape[0] * shape[1] * 8 + 1, np.uint8)[1:].view(np.int64).reshape(shape)


@pytest.mark.parametrize("name", ["MemoryMappedDataset", "MixtureDataset", "CombinedDataset"])
def test_outputs_that_cannot_be_written_are_refused(name: str, tmp_path: Path, backend: str) -> None:
    dataset = MAKERS[name](tmp_path)
    for output in ("input_ids", "labels", "doc_ids", "position_ids"):
        for array in (read_only((2, 4)), np.zeros((4, 2), np.int64).T, np.zeros((2, 8), np.int64)[:, ::2]):
            with pytest.raises(ValueError, match=f"{output} must be C-contiguous, aligned and writeable"):
                dataset.fill([0, 1], {output: array})
    with pytest.raises(ValueError, match="must be C-contiguous, aligned and writeable"):
        dataset.fill([0, 1], {"labels": unaligned((2, 4))})
    for bad in ({"cu_seqlens": read_only((9,), np.int32)}, {"max_seqlen": read_only(())}):
        with pytest.raises(ValueError, match="must be C-contiguous, aligned and writeable"):
            dataset.fill([0, 1], bad)
    for bad in ({"labels": [[0] * 4] * 2}, {"labels": None}, {"cu_seqlens": [0] * 9}):
        with pytest.raises(ValueError, match="an array is needed"):
            dataset.fill([0, 1], bad)
    if name == "MixtureDataset":
        with pytest.raises(ValueError, match="dataset_idx must be writeable"):
            dataset.fill([0, 1], {"dataset_idx": read_only((2,))})


def test_blocks_that_cannot_be_written_are_refused(tmp_path: Path, backend: str) -> None:
    dataset = MAKERS["PackedMemMapDatasetContinuous"](tmp_path)
    for array in (read_only((2, 5)), read_only((2, 5), np.int32), unaligned((2, 5))):
        with pytest.raises(ValueError, match="ids must be aligned and writeable"):
            dataset.fill([0, 1], {"ids": array})
    with pytest.raises(ValueError, match="ids is a list, an array is needed"):
        dataset.fill([0, 1], {"ids": [[0] * 5] * 2})
    apart = np.zeros((5, 2), np.int64).T
    dataset.fill([0, 1], {"ids": apart})  # of any strides
    assert apart.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_outputs_that_share_memory_are_refused(tmp_path: Path, backend: str) -> None:
    """Regression: labels and position_ids in one array made the cu_seqlens kernel loop endlessly."""
    dataset = fastpack.MixtureDataset([window_dataset(tmp_path)], ["a"])
    grid = np.zeros((3, 4), np.int64)
    numbers = np.zeros((2, 4), np.int32)
    for out in (
        {"labels": grid[:2], "position_ids": grid[:2], "cu_seqlens": None},
        {"input_ids": grid[:2], "doc_ids": grid[1:]},
        {"position_ids": numbers, "cu_seqlens": numbers.reshape(-1)},
        {"labels": grid[:2], "max_seqlen": grid[1, 2, ...]},
        {"labels": grid[:2], "dataset_idx": grid[0, :2]},
    ):
        with pytest.raises(ValueError, match="share memory"):
            dataset.fill([0, 1], out)
    whole = np.zeros((4, 4), np.int64)
    dataset.fill([0, 1], {"input_ids": whole[:2], "labels": whole[2:]})  # next to each other
    assert whole.tolist() == [[0, 1, 2, 3], [5, 6, 7, 8], [-100, 2, 3, 4], [6, 7, 8, 9]]
    indices = np.array([3, 2, 1, 0])
    dataset.fill(indices, {"input_ids": (again := np.zeros((4, 4), np.int64))})
    grid = np.zeros((4, 4), np.int64)
    grid[0] = indices
    dataset.fill(grid[0], {"input_ids": grid})  # indices are copied before the first write
    assert grid.tolist() == again.tolist()


def test_two_threads_filling_the_same_arrays_do_not_crash(tmp_path: Path) -> None:
    """Their outputs are mixed, usually with an error, but no memory outside the arrays is accessed."""
    np.save(tmp_path / "a.npy", (np.arange(200_000) % 7).astype(np.uint16))
    code = """
import sys, threading
import numpy as np
import fastpack
dataset = fastpack.MemoryMappedDataset(sys.argv[1], 2001, pack_sequences=True, eos_token_id=0)
sparse = fastpack.MemoryMappedDataset(sys.argv[1], 2001, pack_sequences=True, eos_token_id=60000)
guards = np.full(300_000, 77, np.int32)
out = {"position_ids": np.zeros((8, 2000), np.int64), "cu_seqlens": guards[100_000:200_000]}
def run(dataset):
    for _ in range(300):
        try:
            dataset.fill(np.arange(8), out)
        except ValueError as error:
            assert "another thread" in str(error), error
threads = [threading.Thread(target=run, args=(one,)) for one in (dataset, sparse)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert (guards[:100_000] == 77).all() and (guards[200_000:] == 77).all()
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
