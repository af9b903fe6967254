"""Chunks: ranges, NumPy's order, seeds from hashes, and invalid arguments."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack.errors import DataWarning
from fastpack.io import TargetExists
from fastpack.tokens.edit import shuffle_order as orders
from fastpack.tokens.edit.chunk import create_shuffled_jsonl_dataset_chunk, read_file_list

WritePacked = Callable[..., Path]
Bytes = Callable[..., bytes]


def peers_range(m: int, c: int, n: int) -> tuple[int, int]:
    """The rule of the specification."""
    k, full = math.ceil(m / n), m % n or n
    start = k * min(full, c) + max(c - full, 0) * (k - 1)
    return start, start + (k if c < full else k - 1)


@given(m=st.integers(0, 500), n=st.integers(1, 60))
def test_ranges_match_modalities_and_cover_all_documents(m: int, n: int) -> None:
    ranges = [orders.chunk_range(m, c, n) for c in range(n)]
    assert ranges == [peers_range(m, c, n) for c in range(n)]
    assert [i for start, end in ranges for i in range(start, end)] == list(range(m))


@given(n=st.integers(0, 3000), seed=st.integers(0, 2**32 - 2))
def test_numpy_order_is_that_of_a_list(n: int, seed: int) -> None:
    expected = list(range(n))
    np.random.default_rng(seed).shuffle(expected)
    assert orders.numpy_order(n, seed).tolist() == expected


def test_seeds() -> None:
    wanted = sum(int(hashlib.sha256(text).hexdigest(), 16) for text in (b"-5", b"12")) % (2**32 - 1)
    assert orders.chunk_seed(-5, 12) == wanted
    assert orders.chunk_seed(None, 12) is None
    assert orders.chunk_seed(0, 0) is not None


def test_too_many_documents_are_rejected() -> None:
    with pytest.raises(ValueError, match="2147483648 documents: at most 2147483647"):
        orders.stdlib_order(1 << 31, 1)


@given(
    files=st.lists(
        st.tuples(st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=5), max_size=12), st.integers(1, 5)),
        min_size=1,
        max_size=4,
    ),
    num_chunks=st.integers(1, 4),
    data=st.data(),
)
def test_documents_of_files_of_all_generations(
    files: list[tuple[list[list[int]], int]],
    num_chunks: int,
    data: st.DataObject,
    write_packed: WritePacked,
    expected_bytes: Bytes,
) -> None:
    chunk_id, seed = data.draw(st.integers(0, num_chunks - 1)), data.draw(st.integers(0, 9))
    paths, chosen = [], []
    for number, (documents, generation) in enumerate(files):
        paths.append(write_packed(f"{number}.pbin", documents, 4, generation))
        chosen += documents[slice(*peers_range(len(documents), chunk_id, num_chunks))]
    target = paths[0].with_name("out")
    target.unlink(missing_ok=True)
    if not chosen:
        with pytest.raises(ValueError, match=f"Chunk {chunk_id} has no samples"):
            fastpack.create_shuffled_dataset_chunk(paths, target, chunk_id, num_chunks, global_seed=seed)
        assert not target.exists()
        return
    result = fastpack.create_shuffled_dataset_chunk(paths, target, chunk_id, num_chunks, "error", seed)
    expected = list(chosen)
    np.random.default_rng(orders.chunk_seed(seed, chunk_id)).shuffle(expected)  # type: ignore[arg-type]
    assert target.read_bytes() == expected_bytes(expected, 4)
    assert (result.documents, result.sources) == (len(chosen), len(paths))


def test_all_chunks_together_contain_every_line_once(tmp_path: Path) -> None:
    wanted, paths = [], []
    for number, n_lines in enumerate((10, 1, 0, 7)):
        lines = [b'{"n": %d%d}\n' % (number, i) for i in range(n_lines)]
        wanted += lines
        paths.append(tmp_path / f"{number}.jsonl")
        paths[-1].write_bytes(b"".join(lines)[: -1 if number else None])  # the last lines of some have no newline
    got: list[bytes] = []
    for chunk_id in range(3):
        target = tmp_path / f"chunk{chunk_id}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            create_shuffled_jsonl_dataset_chunk(paths, target, chunk_id, 3, "error", 8)
        got += target.read_bytes().splitlines()
    assert sorted(got) == sorted(line.rstrip() for line in wanted)


def test_without_a_seed_every_run_differs(tmp_path: Path, write_packed: WritePacked) -> None:
    source = write_packed("a.pbin", [[n] for n in range(200)])
    for name in ("one", "two"):
        fastpack.create_shuffled_dataset_chunk([source], tmp_path / name, 0, 1)
    assert (tmp_path / "one").read_bytes() != (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("make", [fastpack.create_shuffled_dataset_chunk, fastpack.create_shuffled_jsonl_chunk])
def test_what_is_refused(tmp_path: Path, write_packed: WritePacked, make: Callable[..., fastpack.EditResult]) -> None:
    source, target = write_packed("a.pbin", [[10], [2]]), tmp_path / "out"
    for chunk_id, num_chunks in ((0, 0), (0, -1), (2, 2), (-1, 2)):
        with pytest.raises(ValueError, match=r"Number of chunks|Chunk ID"):
            make([source], target, chunk_id, num_chunks)
    with pytest.raises(ValueError, match="no file"):
        make([], target, 0, 1)
    with pytest.raises(FileNotFoundError):
        make([source, tmp_path / "none"], target, 0, 1)
    with pytest.raises(ValueError, match="must be different"):
        make([source], source, 0, 1, "override")
    assert not target.exists()
    target.write_bytes(b"old")
    with pytest.raises(TargetExists):
        make([source], target, 0, 1)
    assert make([source], target, 0, 1, "skip").kept_existing
    assert target.read_bytes() == b"old"


def test_token_sizes_must_agree(tmp_path: Path, write_packed: WritePacked) -> None:
    paths = [write_packed("a.pbin", [[1]], 2), write_packed("b.pbin", [[1]], 4)]
    with pytest.raises(ValueError, match=r"same token size in bytes: it is 2 in .*a\.pbin, 4 in .*b\.pbin"):
        fastpack.create_shuffled_dataset_chunk(paths, tmp_path / "out", 0, 1)


def test_a_list_of_files(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a/x.jsonl\n  y.z.jsonl \nplain\n")
    assert read_file_list(tmp_path / "list.txt", tmp_path, ".pbin") == [
        tmp_path / "a/x.pbin",
        tmp_path / "y.z.pbin",
        tmp_path / "plain.pbin",
    ]
