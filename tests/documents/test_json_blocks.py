"""Texts of blocks of lines: the same as line by line, or none."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given

from fastpack.documents.json_blocks import SHORT_LINE, BlockReader, compile_block_pattern
from fastpack.documents.json_fields import FaultyDocument, compile_pattern


def rows_of(lines: list[bytes]) -> npt.NDArray[np.int64]:
    lengths = np.array([len(line) for line in lines], np.int64)
    return np.stack([np.cumsum(lengths + 1) - lengths - 1, lengths], axis=1)


def read(lines: list[bytes], pattern: str = ".text") -> list[str] | None:
    reader = compile_block_pattern(pattern)
    assert reader is not None
    return reader(memoryview(b"\n".join(lines) + b"\n"), rows_of(lines))


def one_by_one(lines: list[bytes]) -> list[str] | None:
    text_of = compile_pattern(".text")
    try:
        return [text_of(line) for line in lines]
    except FaultyDocument:
        return None


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
DOCUMENT = st.fixed_dictionaries({"id": st.integers(-9, 9), "text": TEXT}, optional={"x": st.lists(st.none())})


@given(st.lists(DOCUMENT, min_size=1), st.booleans())
def test_valid_lines_are_parsed(documents: list[dict[str, Any]], ascii_only: bool) -> None:
    lines = [json.dumps(document, ensure_ascii=ascii_only).encode() for document in documents]
    short = sum(map(len, lines)) <= SHORT_LINE * len(lines)
    assert read(lines) == ([document["text"] for document in documents] if short else None)


_PARTS = [
    b'{"text":"a"}',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b'"text":',
    b'"a"',
    b'{"text":',
    b'{"text":[',
    b"]}",
    b"1",
    b" ",
    b"\r",
]
_PARTS += [
    b'{"text":null}',
    b"null",
    b'{"text":"a"},{"text":"b"}',
    b'{"a":[{"text":"b"}',
    b'{"text":"c"}]}',
    b'"x',
    b"NaN",
]


@given(st.lists(st.lists(st.sampled_from(_PARTS), max_size=3).map(b"".join), min_size=1, max_size=5))
def test_blocks_give_the_same_texts_as_single_lines(lines: list[bytes]) -> None:
    found = read(lines)
    assert found is None or found == one_by_one(lines)


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"text":"a"}', b"", b'{"text":"b"}'],
        [
            b'{"a":[{"text":"b"}',
            b'{"text":"c"}]}',
            b'{"text":"d"},{"text":"e"}',
        ],  # three lines, three values, none good
        [b'{"text":"a"},0,{"text":"b"}', b'{"text":[1', b"2]}"],
        [b'{"text":null}'],
        [b'{"other":"a"}'],
        [b'["text"]'],
        [b'"text"'],
        [b'{"text":"\\ud800"}'],
        [b'{"text":"' + b"x" * SHORT_LINE + b'"}'],
    ],
)
def test_lines_that_need_special_treatment(lines: list[bytes]) -> None:
    assert read(lines) is None


def test_rows_that_are_not_consecutive_lines() -> None:
    lines = [b'{"text":"a"}', b'{"text":"b"}', b'{"text":"c"}']
    data, rows = memoryview(b"\n".join(lines)), rows_of(lines)
    reader: BlockReader | None = compile_block_pattern(".text")
    assert reader is not None
    assert reader(data, rows) == ["a", "b", "c"]
    assert reader(data, rows[1:]) == ["b", "c"]
    assert reader(data, rows[::2]) is None
    assert reader(data, rows[::-1]) is None
    assert reader(data, rows[:0]) is None
    assert reader(data, np.array([[0, len(data)]])) is None  # a row over three lines is no line


@pytest.mark.parametrize("pattern", [".", ".a.b", ".[0]", ".text | ascii_downcase", "x"])
def test_patterns_that_are_not_one_key(pattern: str) -> None:
    assert compile_block_pattern(pattern) is None


def test_a_key_in_quotes() -> None:
    assert read([b'{"odd key":"a"}'], '."odd key"') == ["a"]
