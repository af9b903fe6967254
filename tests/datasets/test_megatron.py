"""PackedMemMapDatasetMegatron: Modalities' values with compat, the corrected traversal of documents without."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack import PackedMemMapDatasetMegatron

EXPECTED = sorted((Path(__file__).parents[1] / "golden" / "modalities" / "expected").glob("*.mega.*.npz"))


def write(path: Path, lengths: list[int], token_size: int = 2) -> np.ndarray:
    tokens = np.arange(sum(lengths)) % 251
    with fastpack.PackedWriter(path, token_size, if_exists="overwrite") as writer:
        writer.append_many(tokens, lengths)
    return tokens


def walk(lengths: list[int], block: int, first: int = 0) -> list[int]:
    """Return the starts of blocks by a reference loop, in any unit."""
    start, gathered, offset, found = first, 0, 0, []
    for length in lengths:
        if gathered + length < block:
            gathered += length
        elif gathered + length == block:
            found.append(start)
            gathered = 0
            start += block
        else:
            found.append(start)
            if length > block:
                start += block
                gathered = 0
            else:
                start, gathered = offset, length
        offset += length
    return found


def test_golden_files_exist() -> None:
    assert len(EXPECTED) == 1


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: path.name)
def test_golden_of_0_5_0(path: Path, backend: str) -> None:
    stem, _, block, _ = path.name.split(".")
    expected = np.load(path)
    samples = np.split(expected["tokens"], np.cumsum(expected["lengths"])[:-1])
    packed = path.parents[1] / "pbin" / f"{stem}.pbin"
    with PackedMemMapDatasetMegatron(packed, "ids", int(block[1:]), compat="modalities-0.5") as dataset:
        assert len(dataset) == len(samples)
        np.testing.assert_array_equal(dataset._index, expected["index"])
        for i, sample in enumerate(samples):
            np.testing.assert_array_equal(dataset[i]["ids"], sample, strict=True)
            np.testing.assert_array_equal(dataset[i - len(samples)]["ids"], sample, strict=True)
        np.testing.assert_array_equal(dataset.batch(range(len(samples)))["ids"], np.stack(samples), strict=True)
        for one, other in zip(dataset[3:8]["ids"], samples[3:8], strict=True):
            np.testing.assert_array_equal(one, other, strict=True)
        documents = fastpack.PackedMemMapDatasetBase(packed, "ids")
        np.testing.assert_array_equal(dataset.index_base, documents.index_base)


@given(
    token_size=st.sampled_from([1, 2, 4]),
    lengths=st.lists(st.integers(0, 40), max_size=60),
    block=st.integers(2, 50),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocks_match_the_reference_loop(
    backend: str, tmp_path: Path, token_size: int, lengths: list[int], block: int, seed: int
) -> None:
    tokens = write(tmp_path / "a.pbin", lengths, token_size)
    blocks = [tokens[start : start + block] for start in walk(lengths, block)]
    with PackedMemMapDatasetMegatron(tmp_path / "a.pbin", "ids", block, eos_token_id=3) as dataset:
        assert len(dataset) == len(blocks)
        assert [dataset[i]["ids"].tolist() for i in range(len(blocks))] == [one.tolist() for one in blocks]
        assert [one.tolist() for one in dataset[:]["ids"]] == [one.tolist() for one in blocks]
        order = np.random.default_rng(seed).permutation(len(blocks))
        for dtype in (None, "int32", "int64"):
            assert dataset.batch(order - len(blocks), dtype=dtype)["ids"].tolist() == [
                blocks[i].tolist() for i in order
            ]
        pairs = dataset.batch(order, outputs=("input_ids", "labels", "position_ids"))
        for row, i in enumerate(order):
            before = blocks[i][:-1]
            assert pairs["input_ids"][row].tolist() == before.tolist()
            assert pairs["labels"][row].tolist() == np.where(before == 3, -100, blocks[i][1:]).tolist()


@given(lengths=st.lists(st.integers(0, 40), max_size=60), block=st.integers(4, 50), size=st.sampled_from([1, 2, 4]))
def test_compat_starts_12_bytes_in_with_short_samples(
    tmp_path: Path, lengths: list[int], block: int, size: int
) -> None:
    tokens = write(tmp_path / "a.pbin", lengths, size)
    data = tokens.astype(f"<u{size}").tobytes()
    starts = walk([length * size for length in lengths], block * size, 12)
    dataset = PackedMemMapDatasetMegatron(tmp_path / "a.pbin", "ids", block, compat="modalities-0.5")
    assert dataset._index.tolist() == [[start, block] for start in starts]
    for i, start in enumerate(starts):
        if start + block // size * size > len(data):  # Modalities 0.5.0 raises ValueError, too
            for read in (lambda i=i: dataset[i], lambda i=i: dataset.batch([i], dtype="int64")):
                with pytest.raises(ValueError, match="sample"):
                    read()
        else:
            expected = np.frombuffer(data, f"<u{size}", block // size, start).tolist()
            assert dataset[i]["ids"].tolist() == expected
            assert dataset.batch([i], dtype="int64")["ids"].tolist() == [expected]


def test_blocks_start_with_a_document(golden: Path) -> None:
    path = golden / "modalities" / "pbin" / "docs_bpe2000.pbin"
    dataset = PackedMemMapDatasetMegatron(path, "ids", 129)
    opens = set(dataset.index_base[:, 0].tolist())
    assert opens.issuperset(dataset._index[:, 0].tolist()) or (dataset.index_base[:, 1] > 258).any()
    assert dataset[0]["ids"][:5].tolist() == fastpack.PackedFile(path).data[:5].tolist()
    assert all(len(dataset[i]["ids"]) == 129 for i in range(len(dataset)))


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PackedMemMapDatasetMegatron(tmp_path / "missing.pbin", "ids", 4)
    write(tmp_path / "a.pbin", [5, 5, 5])
    with pytest.raises(ValueError, match="at least 2"):
        PackedMemMapDatasetMegatron(tmp_path / "a.pbin", "ids", 1)
    with pytest.raises(ValueError, match=r"choose .modalities-0\.5"):
        PackedMemMapDatasetMegatron(tmp_path / "a.pbin", "ids", 4, compat="0.4")  # type: ignore[arg-type]
    assert len(PackedMemMapDatasetMegatron(tmp_path / "a.pbin", "ids", 16)) == 0
    dataset = PackedMemMapDatasetMegatron(tmp_path / "a.pbin", "ids", 4)
    assert len(dataset) == 3
    for index in (3, -4):
        with pytest.raises(IndexError, match="out of range"):
            dataset[index]
        with pytest.raises(IndexError, match="out of range"):
            dataset.batch([index])


def test_an_index_merged_12_bytes_short_is_refused(tmp_path: Path) -> None:
    """Modalities' merge_packed_data writes the second file's documents 12 bytes too low."""
    tokens = np.arange(30, dtype="<u2")
    index = pickle.dumps([(0, 20), (20 - 12, 20), (40 - 12, 20)], protocol=4)
    path = tmp_path / "merged.pbin"
    path.write_bytes((60).to_bytes(8, "little") + (2).to_bytes(4, "little") + tokens.tobytes() + index)
    with pytest.raises(fastpack.FormatError, match="found document 1 at byte 8 of the data, expected it at 20"):
        PackedMemMapDatasetMegatron(path, "ids", 10)
    assert len(PackedMemMapDatasetMegatron(path, "ids", 10, compat="modalities-0.5")) == 3


def test_pickles_as_a_path_and_stays_closed(tmp_path: Path) -> None:
    write(tmp_path / "a.pbin", [7] * 20_000)
    dataset = PackedMemMapDatasetMegatron(tmp_path / "a.pbin", "ids", 20, eos_token_id=0)
    data = pickle.dumps(dataset)
    assert len(data) < 1000
    copy = pickle.loads(data)
    assert len(copy) == len(dataset) > 5000
    np.testing.assert_array_equal(copy[-1]["ids"], dataset[-1]["ids"])
    dataset.close()
    with pytest.raises(ValueError, match="closed"):
        dataset[0]
    with pytest.raises(ValueError, match="closed"):
        dataset.batch([0])


def test_under_the_loader(tmp_path: Path) -> None:
    write(tmp_path / "a.pbin", [7, 12, 30, 2] * 40)
    dataset = PackedMemMapDatasetMegatron(tmp_path / "a.pbin", "ids", 16)
    seen = [
        row.tolist() for batch in fastpack.StatefulDataLoader(dataset, 4, range(len(dataset))) for row in batch["ids"]
    ]
    assert seen == [dataset[i]["ids"].tolist() for i in range(len(dataset) // 4 * 4)]


@pytest.mark.parametrize("kind", [fastpack.PackedMemMapDatasetMegatron, fastpack.PackedMemMapDatasetBase])
def test_other_formats_are_refused_with_what_works(tmp_path: Path, kind: Any) -> None:
    np.save(tmp_path / "a.npy", np.arange(50, dtype=np.uint16))
    expected = rf"{kind.__name__} reads packed files \(.pbin\): open other formats as PackedMemMapDatasetContinuous"
    with pytest.raises(ValueError, match=expected):
        kind(tmp_path / "a.npy", "text", 8)
