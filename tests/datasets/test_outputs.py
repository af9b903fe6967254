"""Every output of a batch compared with its definition on every backend; outputs in `out`; rows for torch."""

from __future__ import annotations

import operator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack.datasets import outputs as outputs_module

ALL = ("input_ids", "labels", "doc_ids", "position_ids", "cu_seqlens", "max_seqlen")


def by_definition(windows: list[list[int]], eos: int) -> dict[str, Any]:
    """Return the outputs of a batch, computed token by token from their definitions."""
    out: dict[str, Any] = {name: [] for name in ALL[:4]}
    bounds, place = [0], 0
    for window in windows:
        document, position, doc_ids, position_ids, labels = 0, 0, [], [], []
        for token, following in pairwise(window):
            doc_ids.append(document)
            position_ids.append(position)
            labels.append(-100 if token == eos else following)
            position += 1
            place += 1
            if token == eos:
                document, position = document + 1, 0
                bounds.append(place)
        if bounds[-1] != place:
            bounds.append(place)
        for name, row in (("input_ids", window[:-1]), ("labels", labels), ("doc_ids", doc_ids)):
            out[name].append(row)
        out["position_ids"].append(position_ids)
    out["cu_seqlens"] = bounds
    out["max_seqlen"] = max((end - start for start, end in pairwise(bounds)), default=0)
    return out


@given(
    dtypes=st.lists(st.sampled_from(["u2", "u4", ">u2"]), min_size=1, max_size=2),
    seq_len=st.one_of(st.integers(1, 12), st.sampled_from([129, 300])),
    n_rows=st.integers(0, 5),
    eos=st.sampled_from([0, 1, 5, 70000]),
    top=st.sampled_from([1, 3, 60]),
    dtype=st.sampled_from(["int64", "int32"]),
    names=st.sets(st.sampled_from(ALL), min_size=1),
    room=st.one_of(st.none(), st.integers(0, 9)),
    seed=st.integers(0, 2**32 - 1),
)
def test_outputs_match_their_definitions(
    backend: str,
    tmp_path_factory: pytest.TempPathFactory,
    dtypes: list[str],
    seq_len: int,
    n_rows: int,
    eos: int,
    top: int,
    dtype: Any,
    names: set[str],
    room: int | None,
    seed: int,
) -> None:
    folder, rng = tmp_path_factory.mktemp("shards"), np.random.default_rng(seed)
    windows: list[list[int]] = []
    for k, code in enumerate(dtypes):
        tokens = rng.integers(0, top, seq_len * 4, endpoint=True).astype(code)
        np.save(folder / f"{k}.npy", tokens)
        windows += tokens.reshape(4, seq_len).tolist()
    order = rng.integers(0, len(windows), n_rows)
    expected = by_definition([windows[i] for i in order], eos)
    length = None if room is None or "cu_seqlens" not in names else len(expected["cu_seqlens"]) + room
    with fastpack.MemoryMappedDataset(folder, seq_len, pack_sequences=True, eos_token_id=eos) as dataset:
        found = dataset.batch(order, outputs=sorted(names), dtype=dtype, cu_seqlens_length=length)
    assert set(found) == names
    for name in names & set(ALL[:4]):
        assert found[name].dtype == dtype
        assert found[name].tolist() == expected[name]
    if "max_seqlen" in names:
        assert type(found["max_seqlen"]) is int
        assert found["max_seqlen"] == expected["max_seqlen"]
    if "cu_seqlens" in names:
        padding = [] if length is None else expected["cu_seqlens"][-1:] * (length - len(expected["cu_seqlens"]))
        assert found["cu_seqlens"].dtype == np.int32
        assert found["cu_seqlens"].tolist() == expected["cu_seqlens"] + padding


@pytest.fixture
def dataset(tmp_path: Path) -> fastpack.MemoryMappedDataset:
    np.save(tmp_path / "a.npy", np.array([5, 0, 6, 7, 0, 8, 9, 9, 0, 9], np.uint16))
    return fastpack.MemoryMappedDataset(tmp_path, 5, pack_sequences=True, eos_token_id=0)


def test_out_takes_arrays_of_fixed_length_and_a_0d_number(dataset: fastpack.MemoryMappedDataset, backend: str) -> None:
    out = {"cu_seqlens": np.full(8, -7, np.int32), "max_seqlen": np.array(0), "labels": np.empty((2, 4), np.int32)}
    arrays = dict(out)
    assert dataset.batch([0, 1], out=out) is out
    assert all(out[name] is arrays[name] for name in out)
    assert out["cu_seqlens"].tolist() == [0, 2, 4, 8, 8, 8, 8, 8]
    assert int(out["max_seqlen"]) == 4
    out = {"cu_seqlens": None, "max_seqlen": None}
    dataset.fill([1, 1], out)
    assert out["cu_seqlens"].tolist() == [0, 4, 8]
    assert out["max_seqlen"] == 4


def test_errors_state_the_required_length_of_cu_seqlens(dataset: fastpack.MemoryMappedDataset) -> None:
    with pytest.raises(ValueError, match="has room for 3 entries, this batch needs 4"):
        dataset.batch([0, 1], outputs=["cu_seqlens"], cu_seqlens_length=3)
    with pytest.raises(ValueError, match="not requested"):
        dataset.batch([0], cu_seqlens_length=9)
    for bad in ({"cu_seqlens": np.empty(9, np.int64)}, {"cu_seqlens": np.empty((3, 3), np.int32)}):
        with pytest.raises(ValueError, match="contiguous int32"):
            dataset.fill([0], bad)
    with pytest.raises(ValueError, match="0-d integer"):
        dataset.fill([0], {"max_seqlen": np.empty(1)})
    with pytest.raises(ValueError, match="choose from input_ids, labels, doc_ids, position_ids, cu_seqlens"):
        dataset.batch([0], outputs=["positions"])


def test_document_outputs_need_an_eos_token(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10, dtype=np.uint16))
    plain = fastpack.MemoryMappedDataset(tmp_path, 5)
    for name in ALL[2:]:
        with pytest.raises(ValueError, match=f"{name} need the dataset's eos_token_id"):
            plain.batch([0], outputs=[name])


def test_a_batch_too_long_for_int32_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        outputs_module.split_outputs({"cu_seqlens": None}, 1 << 20, 1 << 12)


def test_getitems_returns_views_of_one_batch(dataset: fastpack.MemoryMappedDataset) -> None:
    rows = dataset.__getitems__([1, 0])
    assert len(rows) == 2
    for row, index in zip(rows, (1, 0), strict=True):
        sample = dataset[index]
        assert list(row) == list(sample)
        assert all(np.array_equal(row[name], sample[name]) for name in sample)
        assert row["labels"].base is rows.batch["labels"]
    assert operator.attrgetter("batch")(rows)["input_ids"].shape == (2, 4)


def test_torch_data_loader_receives_whole_batches(dataset: fastpack.MemoryMappedDataset) -> None:
    torch = pytest.importorskip("torch")
    expected = dataset.batch([0, 1])
    for collate in (None, lambda rows: rows.batch):
        (batch,) = torch.utils.data.DataLoader(dataset, batch_size=2, collate_fn=collate)
        assert set(batch) == set(expected)
        for name, array in expected.items():
            assert np.asarray(batch[name]).tolist() == array.tolist()


def test_outputs_of_packed_files(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "a.pbin"
    with fastpack.PackedWriter(path, 2) as writer:
        writer.append_many(np.array([5, 0, 6, 7, 0, 8, 9, 9, 0, 9]), [10])
    with fastpack.PackedMemMapDatasetContinuous(path, "ids", 5, True, eos_token_id=0) as dataset:
        batch = dataset.batch([0, -1], outputs=ALL, dtype="int32", cu_seqlens_length=6)
        expected = by_definition([[5, 0, 6, 7, 0], [0, 8, 9, 9, 0]], 0)
        for name in ALL[:4]:
            assert batch[name].tolist() == expected[name]
        assert batch["cu_seqlens"].tolist() == [*expected["cu_seqlens"], 8]
        assert [row["ids"].tolist() for row in dataset.__getitems__([1])] == [[0, 8, 9, 9, 0]]
    with fastpack.PackedMemMapDatasetBase(path, "ids") as documents:
        assert [row["ids"].tolist() for row in documents.__getitems__([0])] == [[5, 0, 6, 7, 0, 8, 9, 9, 0, 9]]
