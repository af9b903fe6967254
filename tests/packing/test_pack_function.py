"""`fastpack.pack` writes the same bytes as the command and creates a missing index."""

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
def test_bytes_equal_those_of_the_command(corpus: Path, golden: Path, tokenizer: str) -> None:
    folder = golden / "modalities" / "tokenizers" / "tok_bpe2000"
    named = {"bytes": "bytes", "folder": str(folder), "file": str(folder / "tokenizer.json")}[tokenizer]
    result = fastpack.pack(corpus, tokenizer=named, eod_token=EOD, num_cpus=1)
    assert result.path == str(corpus.with_suffix(".pbin"))
    assert result.documents == 200
    assert len(fastpack.read_raw_index(corpus.with_suffix(".idx"))) == 200
    words = ["pack", str(corpus), "--tokenizer", named, "--eod-token", EOD, "-o", str(corpus.parent / "c.pbin"), "-q"]
    assert main(words) == 0
    assert Path(result.path).read_bytes() == (corpus.parent / "c.pbin").read_bytes()


def test_options_are_applied(corpus: Path, tmp_path: Path) -> None:
    corpus.write_text('{"body": "a"}\nno JSON\n{"body": 3}\n{"body": "bc"}\n')
    seen: list[tuple[int, int]] = []
    with pytest.warns(UserWarning, match="faulty line"):
        result = fastpack.pack(
            str(corpus),
            tmp_path / "p.pbin",
            tokenizer="bytes",
            index_path=tmp_path / "other.idx",
            jq_pattern=".body",
            progress=lambda done, total: seen.append((done, total)),
        )
    assert ([found["line"] for found in result.skipped], result.documents) == ([2, 3], 2)
    assert (tmp_path / "other.idx").is_file()
    assert not corpus.with_suffix(".idx").exists()
    assert seen[-1][0] == seen[-1][1]
    with fastpack.PackedFile(tmp_path / "p.pbin") as file:
        np.testing.assert_array_equal(file.data, [97, 256, 98, 99, 256])


def test_several_sources_are_packed_into_one_file(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(ValueError, match="output is needed"):
        fastpack.pack(tmp_path, tokenizer="bytes")
    result = fastpack.pack([corpus, tmp_path / "more.jsonl"], tmp_path / "all.pbin", tokenizer="bytes")
    assert result.documents == 201
    assert not corpus.with_suffix(".idx").exists()  # several sources need no index


def test_invalid_arguments_raise_before_packing(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer: absent\.json is neither"):
        fastpack.pack(corpus, tokenizer="absent.json")
    with pytest.raises(ValueError, match=r"eos_token is needed: .* has the special tokens <\|endoftext\|>"):
        fastpack.pack(corpus, tokenizer=Path(__file__).parents[1] / "golden/modalities/tokenizers/tok_bpe2000")
    with pytest.raises(FileNotFoundError, match="absent"):
        fastpack.pack(tmp_path / "absent.jsonl", tokenizer="bytes")
    corpus.with_suffix(".pbin").touch()
    with pytest.raises(ValueError, match=r"exists\. Pass if_exists='overwrite'"):
        fastpack.pack(corpus, tokenizer="bytes")
    assert not corpus.with_suffix(".idx").exists()
    assert fastpack.pack(corpus, tokenizer="bytes", if_exists="overwrite").documents == 200
    with pytest.raises(ValueError, match=r"^num_workers: found 0, expected an int of at least 1"):
        fastpack.pack(corpus, tokenizer="bytes", num_cpus=0)


def test_source_that_is_not_json_leaves_no_file(corpus: Path, tmp_path: Path) -> None:
    corpus.write_text("plain\ntext\n")
    with pytest.warns(UserWarning, match="faulty line"), pytest.raises(fastpack.JobError, match="none of the 2 lines"):
        fastpack.pack(corpus, tokenizer="bytes")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl"]


def test_former_argument_names_are_aliases(corpus: Path, tmp_path: Path) -> None:
    new = fastpack.pack(
        corpus,
        tmp_path / "new.pbin",
        tokenizer="bytes",
        eos_token=EOD,
        num_workers=1,
        if_exists="error",
        on_error="raise",
    )
    former = {"eod_token": EOD, "num_cpus": 1, "file_existence_policy": "error", "on_faulty": "error"}
    old = fastpack.pack(corpus, dst_path=tmp_path / "old.pbin", tokenizer="bytes", **former)  # type: ignore[call-arg]
    assert Path(new.path).read_bytes() == Path(old.path).read_bytes()
    with pytest.raises(TypeError, match="'num_workers' and its former name 'num_cpus'"):
        fastpack.pack(corpus, tokenizer="bytes", num_workers=1, num_cpus=1)  # type: ignore[call-arg]


def test_eos_token_id_selects_the_token_with_that_id(corpus: Path, golden: Path, tmp_path: Path) -> None:
    tokenizer = golden / "modalities" / "tokenizers" / "tok_bpe2000"
    by_text = fastpack.pack(corpus, tmp_path / "text.pbin", tokenizer=tokenizer, eos_token=EOD)
    eos_token_id = int(fastpack.PackedFile(by_text.path)[0][-1])
    by_id = fastpack.pack(corpus, tmp_path / "id.pbin", tokenizer=tokenizer, eos_token_id=eos_token_id)
    assert Path(by_id.path).read_bytes() == Path(by_text.path).read_bytes()
    with pytest.raises(ValueError, match="eos_token_id: the tokenizer has no token with the id 99999"):
        fastpack.pack(corpus, tmp_path / "x.pbin", tokenizer=tokenizer, eos_token_id=99999)


def test_text_field_and_format(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"a b": "x", "text": "long"}\n')
    result = fastpack.pack(source, tokenizer="bytes", text_field="a b", format="npy")
    assert result.path == str(tmp_path / "a.npy")
    np.testing.assert_array_equal(np.load(result.path), [120, 256])
    with pytest.raises(ValueError, match="is not the name of a file of the format 'pbin'"):
        fastpack.pack(source, tmp_path / "b.npy", tokenizer="bytes", format="pbin")


def test_command_accepts_an_eos_id_and_a_field(corpus: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = str(golden / "modalities" / "tokenizers" / "tok_bpe2000")
    words = ["pack", str(corpus), "--tokenizer", tokenizer, "--num-workers", "1", "-q"]
    assert main([*words, "--eos-token", EOD]) == 0
    expected = corpus.with_suffix(".pbin").read_bytes()
    eos_token_id = int(fastpack.PackedFile(corpus.with_suffix(".pbin"))[0][-1])
    assert main([*words, "--eos-token-id", str(eos_token_id), "--text-field", "text", "--force"]) == 0
    assert corpus.with_suffix(".pbin").read_bytes() == expected


def test_a_complete_target_is_not_resumed_with_another_tokenizer(corpus: Path, tmp_path: Path, golden: Path) -> None:
    folder = golden / "modalities" / "tokenizers" / "tok_bpe2000"
    fastpack.pack(corpus, tmp_path / "p.pbin", tokenizer="bytes")
    assert fastpack.pack(corpus, tmp_path / "p.pbin", tokenizer="bytes", resume=True).kept_existing
    before = (tmp_path / "p.pbin").read_bytes()
    with pytest.raises(ValueError, match=r"p\.pbin: complete, but packed with another tokenizer: vocabulary files"):
        fastpack.pack(corpus, tmp_path / "p.pbin", tokenizer=folder, eos_token=EOD, resume=True)
    assert (tmp_path / "p.pbin").read_bytes() == before


@pytest.mark.parametrize(("name", "formats"), [("x.bin", "bin or llmc or nanogpt or megatron"), ("x.ds", "datatrove")])
def test_the_suffix_of_another_format_needs_the_format(corpus: Path, tmp_path: Path, name: str, formats: str) -> None:
    with pytest.raises(ValueError, match=f"name the format: {formats}$"):
        fastpack.pack(corpus, tmp_path / name, tokenizer="bytes")
    assert not (tmp_path / name).exists()
