"""Pack with tokenizers of all sizes: token width, end-of-document token, truncation, padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pack_sources import config_of, line, tokenizer_of, write_source
from packed_files import documents_of

from fastpack.errors import DataWarning
from fastpack.packing.pack import pack_encoded_data
from fastpack.tokens.pbin.packed_file import PackedFile


@pytest.mark.parametrize(("vocab_size", "token_size"), [(200, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_token_sizes(vocab_size: int, token_size: int, tmp_path: Path) -> None:
    words = ["<unk>", "<eod>", *(f"w{i}" for i in range(2, vocab_size))]
    tokenizer = tokenizer_of(tmp_path, words)
    source = write_source(tmp_path, [line(f"w2 w{vocab_size - 1} nothing")])
    result = pack_encoded_data(config_of(source, tokenizer, eod_token="<eod>"))
    with PackedFile(result.path) as file:
        assert file.token_size_in_bytes == token_size
        assert file[0].tolist() == [2, vocab_size - 1, 0, 1]


def test_end_of_document_rule(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, ["<unk>", "a", "b"], ["<eod>"])
    lines = [line(text) for text in ("a b", "a <eod>", "a <eod> <eod>", "<eod>", "<eod> a")]
    with pytest.warns(DataWarning, match="2 EOS tokens inside documents: 2 documents would be read as more"):
        result = pack_encoded_data(config_of(write_source(tmp_path, lines), tokenizer, eod_token="<eod>"))
    assert documents_of(result.path) == [[1, 2, 3], [1, 3], [1, 3, 3], [3], [3, 1, 3]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"truncation": True, "max_length": 2}, [[1, 2, 3], [1, 3]]),
        ({"padding": "max_length", "max_length": 4}, [[1, 2, 1, 3], [1, 3, 3, 3]]),
        ({"padding": "max_length", "max_length": 2, "truncation": True}, [[1, 2, 3], [1, 3]]),
        ({"padding": True}, [[1, 2, 1, 3], [1, 3]]),
        ({"max_length": 1}, [[1, 2, 1, 3], [1, 3]]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*EOS tokens inside documents:fastpack.errors.DataWarning")
def test_truncation_and_padding(options: dict[str, Any], expected: list[list[int]], tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, ["<unk>", "a", "b"], ["<eod>"], **options)
    source = write_source(tmp_path, [line("a b a"), line("a")])
    result = pack_encoded_data(config_of(source, tokenizer, eod_token="<eod>"))
    assert documents_of(result.path) == expected


def test_token_that_does_not_fit_skips_only_its_document(tmp_path: Path) -> None:
    words = ["<unk>", "<eod>", *(f"w{i}" for i in range(2, 256))]
    tokenizer = tokenizer_of(tmp_path, words, ["<large>"])
    lines = [line("w2"), line("w3 <large> w4 <large>"), line("w5")]
    result = pack_encoded_data(config_of(write_source(tmp_path, lines), tokenizer, eod_token="<eod>"))
    assert documents_of(result.path) == [[2, 1], [5, 1]]
    assert result.skipped == [{"line": 2, "reason": "token 256 does not fit into 1 byte(s)"}]


def test_end_of_document_token_that_does_not_fit_raises_at_once(tmp_path: Path) -> None:
    words = ["<unk>", *(f"w{i}" for i in range(1, 256))]
    config = config_of(
        write_source(tmp_path, [line("w1")]), tokenizer_of(tmp_path, words, ["<eod>"]), eod_token="<eod>"
    )
    with pytest.raises(ValueError, match="has the id 256, which does not fit into the 1 byte"):
        pack_encoded_data(config)
    assert not (tmp_path / "src.pbin").exists()
