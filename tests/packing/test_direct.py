"""`fastpack.pack` writes what the command writes, and makes the index that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack.cli import main

EOD = "<|endoftext|>"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": f"words {k} " * (k % 9 + 1)}) + "\n" for k in range(200)))
    return path


@pytest.mark.parametrize("tokenizer", ["bytes", "folder", "file"])
def test_the_bytes_of_the_command(corpus: Path, golden: Path, tokenizer: str) -> None:
    folder = golden / "modalities" / "tokenizers" / "tok_bpe2000"
    named = {"bytes": "bytes", "folder": str(folder), "file": str(folder / "tokenizer.json")}[tokenizer]
    result = fastpack.pack(corpus, tokenizer=named, eod_token=EOD, num_cpus=1)
    assert result.path == str(corpus.with_suffix(".pbin"))
    assert result.documents == 200
    assert len(fastpack.read_raw_index(corpus.with_suffix(".idx"))) == 200
    words = ["pack", str(corpus), "--tokenizer", named, "--eod-token", EOD, "-o", str(corpus.parent / "c.pbin"), "-q"]
    assert main(words) == 0
    assert Path(result.path).read_bytes() == (corpus.parent / "c.pbin").read_bytes()


def test_options_reach_the_work(corpus: Path, tmp_path: Path) -> None:
    corpus.write_text('{"body": "a"}\nno JSON\n{"body": 3}\n{"body": "bc"}\n')
    seen: list[tuple[int, int]] = []
    with pytest.warns(UserWarning, match="faulty line"):
        result = fastpack.pack(
            str(corpus),
            tmp_path / "p.bin",
            tokenizer="bytes",
            index_path=tmp_path / "other.idx",
            jq_pattern=".body",
            progress=lambda done, total: seen.append((done, total)),
        )
    assert ([found["line"] for found in result.skipped], result.documents) == ([2, 3], 2)
    assert (tmp_path / "other.idx").is_file()
    assert not corpus.with_suffix(".idx").exists()
    assert seen[-1][0] == seen[-1][1]
    with fastpack.PackedFile(tmp_path / "p.bin") as file:
        np.testing.assert_array_equal(file.data, [97, 256, 98, 99, 256])


def test_several_sources_go_into_one_file(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(ValueError, match="dst_path is needed"):
        fastpack.pack(tmp_path, tokenizer="bytes")
    result = fastpack.pack([corpus, tmp_path / "more.jsonl"], tmp_path / "all.pbin", tokenizer="bytes")
    assert result.documents == 201
    assert not corpus.with_suffix(".idx").exists()  # several are read without


def test_what_is_wrong_is_said_before_the_work(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer: absent\.json is neither"):
        fastpack.pack(corpus, tokenizer="absent.json")
    with pytest.raises(ValueError, match=r"eod_token is needed: .* has the special tokens <\|endoftext\|>"):
        fastpack.pack(corpus, tokenizer=Path(__file__).parents[1] / "golden/modalities/tokenizers/tok_bpe2000")
    with pytest.raises(FileNotFoundError, match="absent"):
        fastpack.pack(tmp_path / "absent.jsonl", tokenizer="bytes")
    corpus.with_suffix(".pbin").touch()
    with pytest.raises(ValueError, match=r"exists\. Pass file_existence_policy"):
        fastpack.pack(corpus, tokenizer="bytes")
    assert not corpus.with_suffix(".idx").exists()
    assert fastpack.pack(corpus, tokenizer="bytes", file_existence_policy="override").documents == 200
    with pytest.raises(ValueError, match=r"^num_cpus: found 0, expected an int of at least 1"):
        fastpack.pack(corpus, tokenizer="bytes", num_cpus=0)


def test_a_source_that_is_no_json_leaves_nothing(corpus: Path, tmp_path: Path) -> None:
    corpus.write_text("plain\ntext\n")
    with pytest.warns(UserWarning, match="faulty line"), pytest.raises(fastpack.JobError, match="none of the 2 lines"):
        fastpack.pack(corpus, tokenizer="bytes")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl"]
