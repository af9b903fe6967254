"""Post-processing for fast engines: special tokens, and texts for the reference tokenizer."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fastpack.tokenizers.postprocess import Frame, replace_texts
from fastpack.tokenizers.unicode_drift import UnicodeDrift

EOD = 7
IDS = st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6)
SIDE = st.lists(st.integers(0, 9), max_size=2).map(tuple)


def flat(documents: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array([i for document in documents for i in document], np.uint32)
    return ids, np.array([len(document) for document in documents], np.int64)


@given(IDS, SIDE, SIDE, st.sampled_from([None, EOD]), st.sampled_from([np.uint16, np.uint32]))
def test_frame_adds_special_tokens(
    documents: list[list[int]], before: tuple[int, ...], after: tuple[int, ...], eod: int | None, dtype: type
) -> None:
    expected = [[*before, *document, *after] for document in documents]
    if eod is not None:
        expected = [[*ids, eod] if ids and ids[-1] != eod else ids for ids in expected]
    frame = Frame(before, after, dtype)
    for tokens, lengths in (
        frame.surround(*flat(documents), eod),
        frame.join([np.array(document, np.uint32) for document in documents], eod),
    ):
        assert tokens.dtype == dtype
        assert tokens.tolist() == [i for ids in expected for i in ids]
        assert lengths.tolist() == [len(ids) for ids in expected]


@given(IDS, st.data())
def test_replace_texts_keeps_the_order(documents: list[list[int]], data: st.DataObject) -> None:
    places = [i for i in range(len(documents)) if data.draw(st.booleans())]
    others = [data.draw(st.lists(st.integers(0, 9), max_size=3)) for _ in places]
    tokens, lengths = replace_texts(flat(documents), places, flat(others))
    expected = list(documents)
    for i, other in zip(places, others, strict=True):
        expected[i] = other
    assert tokens.tolist() == [i for ids in expected for i in ids]
    assert lengths.tolist() == [len(ids) for ids in expected]


@pytest.mark.parametrize(
    ("character", "normalizes", "found"),
    [
        ("a", True, False),
        ("\u201c", True, False),
        ("\u4e2d", True, False),
        ("\u0915", True, False),  # Devanagari, in Unicode since 1.0
        ("\U0001f600", False, False),
        ("\u0301", True, False),
        ("\u088f", False, True),  # a letter since Unicode 17
        ("\U000323b0", False, True),
        ("\U00010940", False, True),
        ("\U0003fffd", False, False),  # reserved: never assigned
        ("\u08d3", False, False),  # a combining mark since Unicode 11
        ("\u08d3", True, True),
        ("\u07fd", True, True),
        ("\ud800", True, False),  # every engine rejects lone surrogates
    ],
)
def test_characters_affected_by_unicode_drift(character: str, normalizes: bool, found: bool) -> None:
    characters = UnicodeDrift(normalizes)
    texts = ["plain", f"caf\u00e9 {character}", "", character]
    assert characters.find(texts) == ([1, 3] if found else [])
    assert characters.find(["plain", ""]) == []
