"""MixtureDataset and CombinedDataset: samples and errors of the original classes, batches equal to their samples."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import (
    MemoryMappedDataset,
    PackedMemMapDatasetBase,
    PackedMemMapDatasetContinuous,
    PackedWriter,
    StatefulDataLoader,
    kernels,
)
from fastpack.datasets.mixture import CombinedDataset, MixtureDataset
from fastpack.tokens.flat.shards import scan_shards

EOS = 0


def shards(folder: Path, n_samples: int, dtype: str, seed: int, **options: Any) -> MemoryMappedDataset:
    folder.mkdir()
    np.save(folder / "a.npy", np.random.default_rng(seed).integers(0, 9, n_samples * 6).astype(dtype))
    return MemoryMappedDataset(folder, 6, pack_sequences=True, eos_token_id=EOS, **options)


class Foreign:
    """A dataset of another library."""

    def __init__(self, n_samples: int) -> None:
        self.n_samples = n_samples

    def __len__(self) -> int:
        return self.n_samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index >= self.n_samples:
            raise IndexError(index)
        ids = np.arange(5) + index
        return {"input_ids": ids, "labels": ids + 1, "doc_ids": np.zeros(5, np.int64)}


def collated(samples: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [np.asarray(sample[name]).tolist() for sample in samples] for name in samples[0]}


@pytest.mark.parametrize("io", ["mmap", "pread"])
@given(data=st.data())
def test_batches_are_their_samples(
    data: st.DataObject, io: Any, backend: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("mixture")
    parts: list[Any] = []
    for k, kind in enumerate(
        data.draw(st.lists(st.sampled_from(["u2", "u4", ">u2", "foreign"]), min_size=1, max_size=4))
    ):
        n_samples = data.draw(st.integers(1, 5))
        parts.append(Foreign(n_samples) if kind == "foreign" else shards(folder / str(k), n_samples, kind, k, io=io))
    mixture = MixtureDataset(parts, [f"d{k}" for k in range(len(parts))])
    indices = data.draw(st.lists(st.integers(0, len(mixture) - 1), min_size=1, max_size=12))
    dtype = data.draw(st.sampled_from(["int64", "int32"]))
    found = mixture.batch(indices, dtype=dtype)
    assert {name: array.tolist() for name, array in found.items()} == collated([mixture[i] for i in indices])
    assert found["dataset_idx"].dtype == np.int64
    assert found["labels"].dtype == dtype
    combined = CombinedDataset(parts)
    backwards = [i - len(combined) for i in indices]
    found = combined.batch(backwards)
    assert {name: array.tolist() for name, array in found.items()} == collated([combined[i] for i in indices])
    assert [row["dataset_idx"] for row in mixture.__getitems__(indices)] == [mixture[i]["dataset_idx"] for i in indices]


def test_cu_seqlens_and_max_seqlen_span_datasets(tmp_path: Path, backend: str) -> None:
    parts = [shards(tmp_path / str(k), 4, dtype, k) for k, dtype in enumerate(("u2", "u4"))]
    mixture, order = MixtureDataset(parts, ["a", "b"]), [6, 1, 7, 0]
    names = ["dataset_idx", "max_seqlen", "labels"]
    assert mixture.batch(order, outputs=names, dtype="int32")["labels"].dtype == np.int32
    out = mixture.batch(order, outputs=["cu_seqlens", "max_seqlen", "position_ids", "dataset_idx"])
    starts = np.flatnonzero(out["position_ids"] == 0)
    assert out["cu_seqlens"].tolist() == [*starts.tolist(), 20]
    assert out["max_seqlen"] == int(np.diff(out["cu_seqlens"]).max())
    assert out["dataset_idx"].tolist() == [1, 0, 1, 0]
    samples = [parts[i // 4].batch([i % 4], outputs=["position_ids"])["position_ids"][0] for i in order]
    np.testing.assert_array_equal(out["position_ids"], samples)


def test_datasets_of_one_kind_share_a_kernel_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alike = [shards(tmp_path / str(k), 4, "u2", k) for k in range(3)]
    wide = shards(tmp_path / "wide", 4, "u4", 3)
    ended = MemoryMappedDataset(tmp_path / "0", 6, pack_sequences=True, eos_token_id=EOS + 1)
    calls: list[int] = []
    fill = kernels.fill_packed

    def noted(addresses: Any, *rest: Any) -> int:
        calls.append(len(addresses))
        return fill(addresses, *rest)

    monkeypatch.setattr(kernels, "fill_packed", noted)
    order = [9, 1, 4, 0, 10, 5]
    for parts, expected in ((alike, [6]), ([*alike[:2], wide], [2, 2, 2]), ([*alike[:2], ended], [2, 2, 2])):
        mixture = MixtureDataset(parts, ["a", "b", "c"])
        for one in (mixture, pickle.loads(pickle.dumps(mixture))):
            one.batch(order)  # from here on the wider tokens are known
            calls.clear()
            labels = one.batch(order)["labels"]
            assert calls == expected
            assert labels.tolist() == [mixture[i]["labels"].tolist() for i in order]
    mixture = MixtureDataset(alike, ["a", "b", "c"])
    mixture.batch(order)
    mixture.close()
    with pytest.raises(ValueError, match="closed"):
        mixture.batch(order)


def test_mixture_errors_match_kempnerforge(tmp_path: Path) -> None:
    part = shards(tmp_path / "a", 3, "u2", 0)
    with pytest.raises(ValueError, match="datasets and names must have the same length"):
        MixtureDataset([part], [])
    with pytest.raises(ValueError, match="At least one dataset is required"):
        MixtureDataset([], [])
    mixture = MixtureDataset([part, Foreign(2)], ["a", "b"])
    assert mixture.cumulative_sizes == [0, 3, 5]
    assert mixture.dataset_names == ["a", "b"]
    for index in (-1, 5):
        with pytest.raises(IndexError, match=rf"Index {index} out of range \[0, 5\)"):
            mixture[index]
        with pytest.raises(IndexError, match=rf"Index {index} out of range \[0, 5\)"):
            mixture.batch([0, index])
    with pytest.raises(ValueError, match="dataset_idx is int32"):
        mixture.fill([0], {"dataset_idx": np.empty(1, np.int32)})


def test_state_contains_the_states_of_the_datasets(tmp_path: Path) -> None:
    parts = [shards(tmp_path / str(k), 3, "u2", k) for k in range(2)]
    mixture = MixtureDataset(parts, ["a", "b"])
    assert mixture.state_dict() == {
        "dataset_0": {"epoch": 0, "total_samples": 3},
        "dataset_1": {"epoch": 0, "total_samples": 3},
    }
    mixture.load_state_dict({"dataset_1": {"epoch": 4, "total_samples": 3}, "dataset_9": {}})
    assert [part.state_dict()["epoch"] for part in parts] == [0, 4]
    again = pickle.loads(pickle.dumps(mixture))
    assert again.batch([4])["input_ids"].tolist() == mixture.batch([4])["input_ids"].tolist()
    mixture.will_need([0, 5])
    mixture.check_unchanged()
    mixture.close()
    with pytest.raises(ValueError, match="closed"):
        parts[1].batch([0])


def test_empty_datasets_are_skipped(tmp_path: Path) -> None:
    parts = [Foreign(0), shards(tmp_path / "a", 2, "u2", 0), Foreign(0), shards(tmp_path / "b", 1, "u2", 1)]
    combined = CombinedDataset(parts)
    assert len(combined) == 3
    assert combined[2]["labels"].tolist() == parts[3][0]["labels"].tolist()
    assert combined.batch([2])["labels"].tolist() == [parts[3][0]["labels"].tolist()]
    with pytest.raises(ValueError, match="none of the datasets has a sample"):
        CombinedDataset([Foreign(0)]).batch([])


def test_combined_datasets_of_packed_files_return_blocks(tmp_path: Path, backend: str) -> None:
    parts = []
    for k, token_size in enumerate((2, 2)):
        with PackedWriter(tmp_path / f"{k}.pbin", token_size) as writer:
            writer.append_many(np.arange(20) + 100 * k, [20])
        parts.append(PackedMemMapDatasetContinuous(tmp_path / f"{k}.pbin", "ids", 5, False, eos_token_id=0))
    combined = CombinedDataset(parts)
    assert combined[-1]["ids"].tolist() == [115, 116, 117, 118, 119]
    found = combined.batch([-1, 0])
    assert found["ids"].dtype == np.int32
    assert found["ids"].tolist() == [[115, 116, 117, 118, 119], [0, 1, 2, 3, 4]]
    assert combined.batch([4], outputs=["labels"])["labels"].tolist() == [[101, 102, 103, 104]]
    for index in (8, -9):
        with pytest.raises(IndexError, match="out of range"):
            combined[index]
        with pytest.raises(IndexError, match="out of range"):
            combined.batch([index])


def test_incompatible_datasets_are_refused(tmp_path: Path) -> None:
    packed, path = shards(tmp_path / "a", 3, "u2", 0), tmp_path / "a"
    plain, longer = MemoryMappedDataset(path, 6), MemoryMappedDataset(path, 9)
    assert scan_shards(sorted(path.iterdir()))[0].length == 18
    with pytest.raises(ValueError, match="different outputs"):
        CombinedDataset([packed, plain]).batch([0])
    assert list(CombinedDataset([packed, plain]).batch([0, 5], outputs=["labels"])) == ["labels"]
    with pytest.raises(ValueError, match="differ in length"):
        CombinedDataset([plain, longer]).batch([0])
    with pytest.raises(TypeError, match="not a dict"):
        CombinedDataset([[1, 2]]).batch([0])
    assert CombinedDataset([[1, 2], [3]])[-1] == 3


def test_samples_that_cannot_be_batched_are_returned_singly(tmp_path: Path) -> None:
    """For a loader with a collate_fn: documents of any length, lists, tokens of different sizes."""
    for k, token_size in enumerate((1, 2)):
        with PackedWriter(tmp_path / f"{k}.pbin", token_size) as writer:
            writer.append_many(np.arange(20) + 100 * k, [3, 7, 10])
    paths = [tmp_path / "0.pbin", tmp_path / "1.pbin"]
    documents = CombinedDataset([PackedMemMapDatasetBase(path, "ids") for path in paths])
    blocks = CombinedDataset([PackedMemMapDatasetContinuous(path, "ids", 5, False) for path in paths])
    for combined, lengths in ((documents, [10, 3]), (blocks, [5, 5])):
        samples = combined.__getitems__([-1, 0])
        assert [(len(sample["ids"]), sample["ids"].dtype.name) for sample in samples] == [
            (lengths[0], "int32"),
            (lengths[1], "uint8"),
        ]
        loader = StatefulDataLoader(
            combined, 2, range(len(combined)), collate_fn=lambda rows: [row["ids"].tolist() for row in rows]
        )
        assert [one for batch in loader for one in batch] == [one["ids"].tolist() for one in combined]
    assert CombinedDataset([[1, 2], CombinedDataset([[3]])]).__getitems__([2, -2]) == [3, 2]
    nested = CombinedDataset([CombinedDataset([blocks.datasets[0]]), CombinedDataset([]), blocks.datasets[0]])
    assert nested.__getitems__([4, -1]).batch["ids"].tolist() == [[0, 1, 2, 3, 4], [15, 16, 17, 18, 19]]


@given(sizes=st.lists(st.integers(0, 4), max_size=6))
def test_combined_matches_a_list(sizes: list[int]) -> None:
    parts = [[(number, k) for k in range(size)] for number, size in enumerate(sizes)]
    combined, expected = CombinedDataset(parts), [sample for part in parts for sample in part]
    assert len(combined) == len(expected)
    assert type(len(combined)) is int
    assert combined.cumulative_sizes.tolist() == np.cumsum(sizes, dtype=np.int64).tolist()
    for index in range(-len(expected), len(expected)):
        assert combined[index] == combined[np.int64(index)] == expected[index]
    for index in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            combined[index]
