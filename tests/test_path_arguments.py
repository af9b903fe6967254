"""Every path argument accepts str, pathlib.Path, and other objects with `__fspath__`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack


class OnlyFspath:
    """A path that is neither str nor pathlib.Path."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __fspath__(self) -> str:
        return self._path


KINDS: dict[str, Callable[[Path], Any]] = {"str": str, "Path": lambda path: path, "OnlyFspath": OnlyFspath}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x.jsonl").write_text("".join(f'{{"text": "document {i}"}}\n' for i in range(20)))
    fastpack.create_raw_index(tmp_path / "x.jsonl")
    for name in ("a.pbin", "b.pbin"):
        with fastpack.PackedWriter(tmp_path / name, 2) as writer:
            writer.append_many(np.arange(100), [5] * 20)
    (tmp_path / "shards").mkdir()
    np.save(tmp_path / "shards" / "a.npy", np.arange(100, dtype=np.uint16))
    return tmp_path


TOKENIZER = {"component_key": "tokenizer", "variant_key": "builtin_bytes", "config": {}}


def packing(source: Any, target: Any) -> dict[str, Any]:
    settings = {"src_path": source, "dst_path": target, "eod_token": "<|endoftext|>", "jq_pattern": ".text"}
    return {"settings": settings, "tokenizer": TOKENIZER}


def planned_rows(source: Any, target: Any) -> Any:
    fastpack.plan(source, target, seq_length=5)
    return fastpack.PlannedDataset(target)


CALLS: dict[str, Callable[[Callable[[str], Any]], Any]] = {
    "create_raw_index": lambda at: fastpack.create_raw_index(at("x.jsonl"), at("new.idx")),
    "create_raw_data_index": lambda at: fastpack.create_raw_data_index(at("x.jsonl"), at("new.idx")),
    "read_raw_index": lambda at: fastpack.read_raw_index(at("x.idx")),
    "write_raw_index": lambda at: fastpack.write_raw_index(at("new.idx"), np.zeros((0, 2), np.int64)),
    "LargeFileLinesReader": lambda at: fastpack.LargeFileLinesReader(at("x.jsonl"), at("x.idx"))[0],
    "MemMapDataset": lambda at: fastpack.MemMapDataset(at("x.jsonl"), list, "ids", at("x.idx"))[0],
    "PackedFile": lambda at: fastpack.PackedFile(at("a.pbin"))[0],
    "PackedWriter": lambda at: fastpack.PackedWriter(at("new.pbin"), 2).close(),
    "PackedMemMapDatasetBase": lambda at: fastpack.PackedMemMapDatasetBase(at("a.pbin"), "ids")[0],
    "PackedMemMapDatasetContinuous": lambda at: fastpack.PackedMemMapDatasetContinuous(at("a.pbin"), "ids", 5, True)[0],
    "PackedMemMapDatasetMegatron": lambda at: fastpack.PackedMemMapDatasetMegatron(at("a.pbin"), "ids", 5)[0],
    "MemoryMappedDataset": lambda at: fastpack.MemoryMappedDataset(at("shards"), 5)[0],
    "PlannedDataset": lambda at: planned_rows(at("a.pbin"), at("a.plan"))[0],
    "merge_packed_data": lambda at: fastpack.merge_packed_data([at("a.pbin"), at("b.pbin")], at("new.pbin")),
    "merge_packed_data_files": lambda at: fastpack.merge_packed_data_files([at("a.pbin")], at("new.pbin")),
    "shuffle_tokenized_data": lambda at: fastpack.shuffle_tokenized_data(at("a.pbin"), at("new.pbin"), seed=1),
    "shuffle_jsonl_data": lambda at: fastpack.shuffle_jsonl_data(at("x.jsonl"), at("new.jsonl"), seed=1),
    "filter_packed_data": lambda at: fastpack.filter_packed_data(at("a.pbin"), at("new.pbin"), lambda *_: True),
    "pack_encoded_data": lambda at: fastpack.pack_encoded_data(packing(at("x.jsonl"), at("new.pbin"))),
    "pack": lambda at: fastpack.pack(at("x.jsonl"), at("new.pbin"), tokenizer="bytes"),
    "write_manifest": lambda at: fastpack.write_manifest(at("shards"), at("new.fpm")),
    "write_checksums": lambda at: fastpack.write_checksums(at("a.pbin")),
    "inspect": lambda at: fastpack.inspect(at("a.pbin")),
    "verify": lambda at: fastpack.verify(at("a.pbin")),
    "index_webdataset_jsonl": lambda at: fastpack.index_webdataset_jsonl(at("x.jsonl")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_public_functions(folder: Path, name: str, kind: str) -> None:
    CALLS[name](lambda file: KINDS[kind](folder / file))


def tokenizer_file(folder: Path) -> Path:
    """Return the directory of a word-level tokenizer."""
    vocabulary = {"a": 0, "b": 1, "<unk>": 2}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    content = {"version": "1.0", "model": model, "pre_tokenizer": {"type": "Whitespace"}, "added_tokens": []}
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.json").write_text(json.dumps(content))
    return folder / "tokenizer"


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizers_of_hugging_face(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("tokenizers")
    path = tokenizer_file(tmp_path)
    for place in (path, path / "tokenizer.json"):
        assert fastpack.PreTrainedHFTokenizer(KINDS[kind](place)).tokenize("a b a") == [0, 1, 0]
    source = tmp_path / "x.jsonl"
    source.write_text('{"text": "a b"}\n')
    fastpack.create_raw_index(source)
    config = packing(KINDS[kind](source), KINDS[kind](tmp_path / "x.pbin"))
    config["settings"]["eod_token"] = "<unk>"
    config["tokenizer"] = {
        "component_key": "tokenizer",
        "variant_key": "pretrained_hf_tokenizer",
        "config": {"pretrained_model_name_or_path": KINDS[kind](path)},
    }
    fastpack.pack_encoded_data(config)
    assert fastpack.PackedFile(tmp_path / "x.pbin")[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizers_of_sentencepiece(tmp_path: Path, kind: str) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    (tmp_path / "text").write_text("a b c d e f\n" * 50)
    options = {
        "vocab_size": 12,
        "hard_vocab_limit": False,
        "minloglevel": 2,
        "model_prefix": os.fspath(tmp_path / "sp"),
    }
    sentencepiece.SentencePieceTrainer.Train(input=os.fspath(tmp_path / "text"), **options)
    assert fastpack.PreTrainedSPTokenizer(KINDS[kind](tmp_path / "sp.model")).tokenize("a b")
