"""The encoder gives the same tokens and faults whether lines are parsed in batches or one by one."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fastpack.packing.encoder import Batch, Encoded, Encoder, EncoderSpec
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

SPEC = EncoderSpec(".text", TokenizerSpec("builtin_bytes"), 256, 2)
LINES = st.sampled_from(
    ['{"text": "a b"}', '{"text": ""}', '{"text": null}', "", "{", '{"text": "\\ud800"}', '{"x": 1}']
)


def encode(batch: Batch) -> Encoded:
    return _encoder().encode(batch)


@cache
def _encoder() -> Encoder:
    return Encoder(SPEC)


def rows_of(lines: list[str]) -> np.ndarray:
    lengths = np.array([len(line.encode()) for line in lines], np.int64)
    return np.stack([np.cumsum(lengths + 1) - lengths - 1, lengths], axis=1)


def by_hand(lines: list[str]) -> tuple[list[int], list[int]]:
    """Return the expected tokens and the positions of the faulty lines."""
    tokens: list[int] = []
    faulty: list[int] = []
    for position, line in enumerate(lines):
        try:
            text: Any = json.loads(line).get("text")
            data = text.encode() if text else b""
        except (ValueError, AttributeError):
            data = b""
        tokens += [*data, 256] if data else []
        faulty += [] if data else [position]
    return tokens, faulty


@given(
    st.lists(st.one_of(LINES, st.text(st.characters(exclude_categories=["Cs"])).map(lambda t: json.dumps({"text": t}))))
)
def test_batch_gives_the_tokens_of_its_lines(lines: list[str]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    encoded = encode(Batch("x", rows_of(lines), data))
    tokens, faulty = by_hand(lines)
    assert encoded.tokens.tolist() == tokens
    assert [position for position, _ in encoded.faulty] == faulty
    assert int(encoded.lengths.sum()) == len(tokens)
    assert encoded.tokens.dtype == np.dtype("<u2")


@pytest.mark.parametrize("n_bytes", [10, 2000])
def test_short_and_long_lines_in_any_order(n_bytes: int, tmp_path: Path) -> None:
    lines = [json.dumps({"text": str(i) * n_bytes}) for i in range(5)]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    encoder = Encoder(SPEC)
    for rows in (rows_of(lines), rows_of(lines)[::-1], rows_of(lines)[1:3]):
        encoded = encoder.encode(Batch(str(path), rows))
        data = path.read_bytes()
        texts = [json.loads(data[start : start + n])["text"].encode() for start, n in rows]
        assert encoded.tokens.tolist() == [i for text in texts for i in (*text, 256)]
        assert encoded.faulty == []
