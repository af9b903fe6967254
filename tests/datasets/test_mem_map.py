"""MemMapDataset: documents tokenized on access, with the ids that packing writes."""

from __future__ import annotations

import json
import multiprocessing
import operator
import pickle
from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack import FormatError, MemMapDataset, create_raw_index

tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers to compare with")


class Characters:
    """A tokenizer with Modalities' one method."""

    def tokenize(self, text: str) -> list[int]:
        return [ord(character) for character in text]


def words(text: str) -> list[int]:
    return [len(word) for word in text.split()]


def write(folder: Path, lines: list[str]) -> Path:
    path = folder / "x.jsonl"
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    create_raw_index(path)
    return path


TEXTS = ["ab", "", "é\u2028😀", "x y"]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return write(tmp_path, [json.dumps({"text": text, "meta": {"n": [text * 2]}}) for text in TEXTS])


def test_items(backend: str, raw: Path) -> None:
    with MemMapDataset(raw, Characters(), "ids") as dataset:
        expected = [[ord(character) for character in text] for text in TEXTS]
        assert len(dataset) == 4
        assert [dataset[i] for i in range(4)] == list(dataset) == expected
        assert [dataset[i] for i in range(-4, 0)] == expected
        assert dataset[np.int64(3)] == expected[3]
        assert dataset.__getitems__([2, 0]) == [expected[2], expected[0]]
        assert type(dataset[0]) is list
        for i in (4, -5):
            with pytest.raises(IndexError):
                dataset[i]
        assert dataset.state_dict() == {"epoch": 0, "total_samples": 4}
        assert (dataset.sample_key, dataset.text(1)) == ("ids", "")
    with pytest.raises(ValueError, match="closed"):
        dataset[0]


@pytest.mark.parametrize("pattern", [".meta.n[0]", '.meta["n"] | first'])
def test_patterns_and_functions(raw: Path, tmp_path: Path, pattern: str) -> None:
    if "|" in pattern:
        pytest.importorskip("jq", reason="a pattern that is more than a path needs jq")
    index = raw.with_suffix(".idx").rename(tmp_path / "other.idx")
    dataset = MemMapDataset(raw, words, "ids", index, pattern)
    assert list(dataset) == [words(text * 2) for text in TEXTS]
    copy = pickle.loads(pickle.dumps(dataset))
    assert list(copy) == list(dataset)


def test_token_ids_equal_those_of_packing(golden: Path) -> None:
    """The golden file is packed by Modalities, which appends an end-of-document token."""
    folder = golden / "modalities"
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizers" / "tok_bpe2000" / "tokenizer.json"))
    packed = fastpack.PackedMemMapDatasetBase(folder / "pbin" / "docs_bpe2000.pbin", "ids")
    dataset = MemMapDataset(
        folder / "jsonl" / "docs.jsonl",
        lambda text: tokenizer.encode(text).ids,
        "ids",
        folder / "idx" / "docs.idx",
    )
    assert len(dataset) == len(packed) > 10
    for i in range(len(dataset)):
        document = packed[i]["ids"].tolist()
        assert dataset[i] in (document, document[:-1])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": null}', r"null \(or no such key\)"),
        ('{"body": "x"}', r"null \(or no such key\)"),
        ('{"text": 5}', "a number"),
        ('["x"]', "no 'text' in an array|Cannot index array"),
    ],
)
def test_errors_locate_a_faulty_document(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path, ['{"text": "a"}', line, '{"text": "b"}'])
    dataset = MemMapDataset(path, Characters(), "ids")
    assert (dataset[0], dataset[2]) == ([97], [98])
    with pytest.raises(FormatError, match=reason) as caught:
        dataset[-2]
    assert isinstance(caught.value, ValueError)
    assert (caught.value.path, caught.value.offset) == (str(path), 14)
    assert "line 1" in str(caught.value)


def test_errors(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Raw data file does not exist"):
        MemMapDataset(tmp_path / "none.jsonl", Characters(), "ids")
    with pytest.raises(FileNotFoundError, match="Index file does not exist"):
        MemMapDataset(raw, Characters(), "ids", tmp_path / "none.idx")
    with pytest.raises(TypeError, match="a str is not a tokenizer"):
        MemMapDataset(raw, "gpt2", "ids")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_other_processes(raw: Path, method: str) -> None:
    dataset = MemMapDataset(raw, str.encode, "ids")  # a class of this module is not found in a spawned process
    assert len(pickle.dumps(dataset)) < 1000
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(operator.getitem, (dataset, 0)) == b"ab"


def test_under_the_loader_with_a_collate_fn_that_pads(raw: Path) -> None:
    def pad(samples: list[list[int]]) -> np.ndarray:
        out = np.zeros((len(samples), max(map(len, samples))), np.int64)
        for row, sample in zip(out, samples, strict=True):
            row[: len(sample)] = sample
        return out

    dataset = MemMapDataset(raw, Characters(), "ids")
    loader = fastpack.StatefulDataLoader(dataset, 2, range(len(dataset)), collate_fn=pad)
    assert [batch.tolist() for batch in loader] == [[[97, 98], [0, 0]], [[233, 0x2028, 0x1F600], [120, 32, 121]]]
