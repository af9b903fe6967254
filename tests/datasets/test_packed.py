"""Datasets over packed files compared with golden values of Modalities and with explicit slices."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack

GOLDEN = Path(__file__).parents[1] / "golden" / "modalities"
CONTINUOUS = sorted(path.name for path in (GOLDEN / "expected").glob("*.cont.*.npz"))
STEMS = ["docs_bpe2000", "docs_char250"]


def expected_blocks(name: str) -> tuple[Path, int, bool, np.lib.npyio.NpzFile]:
    stem, _, block, reuse, _ = name.split(".")
    return GOLDEN / "pbin" / f"{stem}.pbin", int(block[1:]), reuse == "r1", np.load(GOLDEN / "expected" / name)


def test_golden_files_exist() -> None:
    assert len(CONTINUOUS) == 5


@pytest.mark.parametrize("name", CONTINUOUS)
def test_golden_continuous(name: str, backend: str) -> None:
    path, block_size, reuse, expected = expected_blocks(name)
    blocks = np.split(expected["tokens"], np.cumsum(expected["lengths"])[:-1])
    with fastpack.PackedMemMapDatasetContinuous(path, "ids", block_size, reuse) as dataset:
        assert len(dataset) == len(blocks)
        np.testing.assert_array_equal(dataset._index, expected["index"])
        for i, block in enumerate(blocks):
            tokens = dataset[i]["ids"]
            assert tokens.dtype == expected["tokens"].dtype
            np.testing.assert_array_equal(tokens, block)
        np.testing.assert_array_equal(dataset[-1]["ids"], blocks[-1])
        for one, other in zip(dataset[2:6]["ids"], blocks[2:6], strict=True):
            np.testing.assert_array_equal(one, other)
        order = np.random.default_rng(3).permutation(len(blocks))
        batch = dataset.batch(order)
        assert batch["ids"].dtype == expected["tokens"].dtype
        np.testing.assert_array_equal(batch["ids"], np.stack(blocks)[order])
        for dtype in ("int64", "int32"):
            wide = dataset.batch(order, dtype=dtype)["ids"]
            assert wide.dtype == dtype
            np.testing.assert_array_equal(wide, np.stack(blocks)[order])


@pytest.mark.parametrize("stem", STEMS)
def test_golden_documents(stem: str, backend: str) -> None:
    expected = np.load(GOLDEN / "expected" / f"{stem}.base.npz")
    documents = np.split(expected["tokens"], np.cumsum(expected["lengths"])[:-1])
    with fastpack.PackedMemMapDatasetBase(GOLDEN / "pbin" / f"{stem}.pbin", "ids") as dataset:
        assert len(dataset) == len(documents)
        np.testing.assert_array_equal(dataset.index_base, expected["index"])
        for i, document in enumerate(documents):
            assert dataset[i]["ids"].dtype == expected["tokens"].dtype
            np.testing.assert_array_equal(dataset[i]["ids"], document)
        for found in (dataset[:]["ids"], dataset.batch(range(-len(documents), 0))["ids"]):
            for one, other in zip(found, documents, strict=True):
                np.testing.assert_array_equal(one, other)


def packed_file(folder: Path, tokens: np.ndarray, token_size: int) -> Path:
    path = folder / "a.pbin"
    with fastpack.PackedWriter(path, token_size, if_exists="overwrite") as writer:
        writer.append_many(tokens, [len(tokens)])
    return path


@given(
    token_size=st.sampled_from([1, 2, 4]),
    n_tokens=st.integers(2, 700),
    block_size=st.integers(2, 300),
    reuse=st.booleans(),
    eos=st.sampled_from([0, 1, 5]),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocks_and_pairs_by_hand(
    backend: str,
    tmp_path_factory: pytest.TempPathFactory,
    token_size: int,
    n_tokens: int,
    block_size: int,
    reuse: bool,
    eos: int,
    seed: int,
) -> None:
    block_size = min(block_size, n_tokens)
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 6, n_tokens)
    path = packed_file(tmp_path_factory.mktemp("pbin"), tokens, token_size)
    step = block_size - 1 if reuse else block_size
    blocks = [tokens[start : start + block_size] for start in range(0, n_tokens - block_size + 1, step)]
    with fastpack.PackedMemMapDatasetContinuous(path, "ids", block_size, reuse, eos_token_id=eos) as dataset:
        assert len(dataset) == len(blocks)
        order = rng.permutation(len(blocks))[:20]
        pairs = dataset.batch(order, outputs=("input_ids", "labels", "doc_ids"))
        whole = dataset.batch(order)["ids"]
        for row, i in enumerate(order):
            assert whole[row].tolist() == blocks[i].tolist() == dataset[int(i)]["ids"].tolist()
            assert pairs["input_ids"][row].tolist() == blocks[i][:-1].tolist()
            before, after = blocks[i][:-1], blocks[i][1:]
            assert pairs["labels"][row].tolist() == np.where(before == eos, -100, after).tolist()
            assert pairs["doc_ids"][row].tolist() == [int((before[:j] == eos).sum()) for j in range(block_size - 1)]


def test_sample_key_may_be_input_ids(tmp_path: Path) -> None:
    dataset = fastpack.PackedMemMapDatasetContinuous(packed_file(tmp_path, np.arange(20), 2), "input_ids", 5, True)
    assert dataset.batch([1])["input_ids"].tolist() == [[4, 5, 6, 7, 8]]
    pairs = dataset.batch([1], outputs=("input_ids", "labels"))
    assert {name: array.tolist() for name, array in pairs.items()} == {
        "input_ids": [[4, 5, 6, 7]],
        "labels": [[5, 6, 7, 8]],
    }
    assert dataset.batch([1], outputs=["input_ids"])["input_ids"].tolist() == [[4, 5, 6, 7]]


def test_errors_match_the_original(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fastpack.PackedMemMapDatasetBase(tmp_path / "missing.pbin", "ids")
    path = packed_file(tmp_path, np.arange(20), 2)
    with pytest.raises(ValueError, match=r"larger than the total number of tokens \(20\)"):
        fastpack.PackedMemMapDatasetContinuous(path, "ids", 21, True)
    with pytest.raises(ValueError, match="at least 2"):
        fastpack.PackedMemMapDatasetContinuous(path, "ids", 1, True)
    dataset = fastpack.PackedMemMapDatasetContinuous(path, "ids", 5, False)
    assert dataset[4:2] == {"ids": []}
    with pytest.raises(ValueError, match="step != 1"):
        dataset[::2]
    for index in (4, -5):
        with pytest.raises(IndexError, match="out of range"):
            dataset[index]
        with pytest.raises(IndexError, match="out of range"):
            dataset.batch([index])
    with pytest.raises(ValueError, match="load_index=True"):
        dataset.index_base  # noqa: B018
    with pytest.raises(ValueError, match="eos_token_id"):
        dataset.batch([0], outputs=["doc_ids"])
    with pytest.raises(ValueError, match="shape"):
        dataset.fill([0], {"ids": np.empty((1, 6), np.int64)})
    with pytest.raises(ValueError, match="dtype"):
        dataset.fill([0], {"ids": np.empty((1, 5), np.uint8)})


def test_a_damaged_index_fails_only_if_it_is_loaded(tmp_path: Path) -> None:
    path = packed_file(tmp_path, np.arange(2000), 2)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(fastpack.FormatError):
        fastpack.PackedMemMapDatasetBase(path, "ids")
    with fastpack.PackedMemMapDatasetContinuous(path, "ids", 100, False) as dataset:
        assert dataset[19]["ids"][-1] == 1999


def test_an_empty_file_has_no_documents_and_no_blocks(tmp_path: Path) -> None:
    path = tmp_path / "empty.pbin"
    fastpack.PackedWriter(path, 2).close()
    assert path.stat().st_size == 17
    assert len(fastpack.PackedMemMapDatasetBase(path, "ids")) == 0
    with pytest.raises(ValueError, match=r"\(0\)"):
        fastpack.PackedMemMapDatasetContinuous(path, "ids", 2, False)


def test_pickles_as_a_path_and_stays_closed(tmp_path: Path) -> None:
    path = packed_file(tmp_path, np.arange(60_000), 2)
    dataset = fastpack.PackedMemMapDatasetContinuous(path, "ids", 100, True, eos_token_id=0)
    data = pickle.dumps(dataset)
    assert len(data) < 1000
    np.testing.assert_array_equal(pickle.loads(data)[7]["ids"], dataset[7]["ids"])
    kept = dataset.batch([3])["ids"]
    dataset.close()
    dataset.close()
    assert kept[0, 0] == 297
    with pytest.raises(ValueError, match="closed"):
        dataset[0]


def test_construction_time_is_independent_of_the_number_of_samples(tmp_path: Path) -> None:
    path = packed_file(tmp_path, np.zeros(3_000_000, np.uint8), 1)
    dataset = fastpack.PackedMemMapDatasetContinuous(path, "ids", 2, True)
    held = [value for value in vars(dataset).values() if isinstance(value, (list, np.ndarray))]
    assert len(dataset) == 2_999_999
    assert not held
    assert dataset[2_999_998]["ids"].tolist() == [0, 0]


def test_slices_of_documents_out_of_order(tmp_path: Path) -> None:
    """Documents are read singly then; Modalities returns other tokens, or raises."""
    tokens, rows = np.arange(40, dtype="<u2"), [(0, 20), (40, 20), (20, 20), (60, 0), (60, 10), (60, 10)]
    path = tmp_path / "a.pbin"
    header = (80).to_bytes(8, "little") + (2).to_bytes(4, "little")
    path.write_bytes(header + tokens.tobytes() + pickle.dumps(rows, protocol=4))
    dataset = fastpack.PackedMemMapDatasetBase(path, "ids")
    expected = [tokens[start // 2 : (start + length) // 2].tolist() for start, length in rows]
    for start in range(6):
        for stop in range(7):
            assert [one.tolist() for one in dataset[start:stop]["ids"]] == expected[start:stop]
    assert [one.tolist() for one in dataset[-4:-1]["ids"]] == expected[2:5]
    assert dataset[5:1] == dataset[9:] == {"ids": []}
    assert [dataset[i]["ids"].tolist() for i in range(-6, 0)] == expected
    assert dataset[np.int64(1)]["ids"].tolist() == expected[1]


def test_documents_of_a_slice_share_one_copy(tmp_path: Path) -> None:
    path = tmp_path / "a.pbin"
    with fastpack.PackedWriter(path, 4) as writer:
        writer.append_many(np.arange(30), [10, 5, 15])
    one, other = fastpack.PackedMemMapDatasetBase(path, "ids")[1:]["ids"]
    assert one.base is other.base is not None
    blocks = fastpack.PackedMemMapDatasetContinuous(path, "ids", 10, True)[:]["ids"]
    assert [block[0] for block in blocks] == [0, 9, 18]
    assert blocks[0].base is blocks[1].base


def test_too_large_a_block_is_reported_before_too_small_a_block(tmp_path: Path) -> None:
    """As in Modalities; an empty file has both faults."""
    path = packed_file(tmp_path, np.arange(0), 2)
    with pytest.raises(ValueError, match="larger than the total"):
        fastpack.PackedMemMapDatasetContinuous(path, "ids", 1, False)
    path = packed_file(tmp_path, np.arange(1), 2)
    with pytest.raises(ValueError, match="at least 2"):
        fastpack.PackedMemMapDatasetContinuous(path, "ids", 1, False)


def test_every_golden_file_is_compared() -> None:
    kinds = {path.name.split(".", 1)[1].split(".")[0] for path in (GOLDEN / "expected").iterdir()}
    assert kinds == {"base", "cont", "mega"}  # base and cont here, mega in test_megatron.py
    assert sorted(path.name for path in (GOLDEN / "expected").glob("*.base.npz")) == [
        f"{stem}.base.npz" for stem in STEMS
    ]
