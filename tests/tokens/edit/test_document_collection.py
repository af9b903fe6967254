"""Documents written in any order, in small windows, on every backend."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack.io import map_bytes
from fastpack.tokens.edit import document_collection as spans
from fastpack.tokens.edit.document_collection import DocumentCollection
from fastpack.tokens.token_file import DocumentSpans


@pytest.fixture
def tiny_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("MIN_WINDOW", 50),
        ("MAX_WINDOW", 200),
        ("_DROP_BYTES", 64),
        ("_MIN_ROWS", 9),
        ("_BLOCK_ROWS", 4),
    ):
        monkeypatch.setattr(spans, name, value)
    monkeypatch.setattr(spans, "_READAHEAD_BYTES", 16)


def written(sources: list[DocumentSpans], order: np.ndarray) -> tuple[bytes, list[int], list[tuple[int, int]]]:
    blocks: list[bytes] = []
    lengths: list[int] = []
    seen: list[tuple[int, int]] = []
    collection = DocumentCollection(sources)
    collection.write(
        order.astype(np.int32),
        lambda block, sizes: (blocks.append(block.tobytes()), lengths.extend(sizes.tolist())),
        lambda *done: seen.append(done),
    )
    return b"".join(blocks), lengths, seen


@given(data=st.data(), seed=st.integers(0, 2**32))
def test_any_order_of_any_documents(
    backend: str, tiny_windows: None, data: st.DataObject, seed: int, tmp_path: Path
) -> None:
    """Files with overlapping and unordered documents, some big-endian, some empty."""
    rng = np.random.default_rng(seed)
    sources, documents = [], []
    for number in range(data.draw(st.integers(1, 4))):
        swap, base = data.draw(st.sampled_from([1, 1, 2, 4])), data.draw(st.sampled_from([0, 8, 12]))
        path = tmp_path / f"{number}"
        path.write_bytes(rng.integers(0, 256, 12 + 400, dtype=np.uint8).tobytes())
        file = map_bytes(path)
        rows = np.empty((data.draw(st.integers(0, 30)), 2), np.int64)
        rows[:, 0] = rng.integers(0, 90, len(rows)) * 4
        rows[:, 1] = rng.integers(0, 10, len(rows)) * 4
        if data.draw(st.booleans()):
            rows = rows[np.argsort(rows[:, 0])]
        sources.append(DocumentSpans(file, rows, base, swap))
        for start, length in rows.tolist():
            document = file[base + start : base + start + length].copy()
            documents.append(document.view(f">u{swap}").astype(f"<u{swap}").tobytes())
    order = np.arange(len(documents))
    random.Random(seed).shuffle(order)  # type: ignore[arg-type]
    got, lengths, seen = written(sources, order)
    assert got == b"".join(documents[i] for i in order)
    assert lengths == [len(documents[i]) for i in order]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert not seen or seen[-1] == (len(got), len(got))


def test_a_subset_of_the_documents(backend: str, tiny_windows: None) -> None:
    source = DocumentSpans(np.arange(100, dtype=np.uint8), np.array([[n, 10] for n in range(0, 100, 10)]))
    assert written([source], np.array([9, 0]))[0] == bytes([*range(90, 100), *range(10)])
    assert written([source], np.array([], np.int64)) == (b"", [], [])


def test_no_documents() -> None:
    assert written([], np.array([])) == (b"", [], [])
    nothing = DocumentSpans(np.empty(0, np.uint8), np.empty((0, 2), np.int64))
    assert written([nothing, nothing], np.array([])) == (b"", [], [])
    empty = DocumentSpans(np.zeros(3, np.uint8), np.zeros((3, 2), np.int64))
    assert written([empty], np.array([2, 0, 1]))[:2] == (b"", [0, 0, 0])


def test_a_document_larger_than_a_window(backend: str, tiny_windows: None) -> None:
    data = np.arange(1000).astype(np.uint8)
    source = DocumentSpans(data, np.array([[0, 5], [5, 990], [995, 5]]))
    assert written([source], np.array([2, 1, 0]))[0] == b"".join(
        part.tobytes() for part in (data[995:], data[5:995], data[:5])
    )
