"""`pack` into every token format: the same documents as the packed file, and the files of the other systems."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from command_line import Cli
from pack_sources import BYTES, interrupt, tokenizer_of

import fastpack
from fastpack.distributed.pack_tasks import collect_pack, plan_pack
from fastpack.distributed.ranks import run_rank
from fastpack.io import TargetExists, as_path
from fastpack.packing.modalities_config import load_pack_settings
from fastpack.packing.output_formats import RESUMABLE, PackFormat
from fastpack.tokens.formats import FORMATS
from fastpack.tokens.interop_formats import output_files

WRITABLE = [row.name for row in FORMATS if row.create is not None]
OTHERS = [name for name in WRITABLE if name not in RESUMABLE]
EOD = 256


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    texts = [f"{'word ' * (number % 9)}{number}" for number in range(400)]
    path.write_text("".join(json.dumps({"text": text if k % 50 else ""}) + "\n" for k, text in enumerate(texts)))
    return path


def output_of(folder: Path, name: PackFormat | str) -> Path:
    suffixes = {"npy": ".npy", "olmo": ".npy", "bin": ".bin", "llmc": ".bin", "nanogpt": ".bin", "pbin": ".pbin"}
    return folder / f"out{suffixes.get(name, '')}"


def pack(corpus: Path, name: str, output: Path | None = None, **options: Any) -> fastpack.PackResult:
    given = output_of(corpus.parent, name) if output is None else output
    return fastpack.pack(corpus, given, tokenizer="bytes", format=name, num_workers=1, **options)  # type: ignore[arg-type]


def contents(name: str, path: str) -> dict[str, bytes]:
    found = {file.name: file.read_bytes() for file in map(Path, output_files(name, as_path(path)))}
    return {file: re.sub(rb'"updated_at": "[^"]*"', b"", data) for file, data in found.items()}  # of litData


def test_the_formats_are_those_that_have_a_writer() -> None:
    assert set(get_args(PackFormat)) == set(WRITABLE)


@pytest.mark.parametrize("name", WRITABLE)
def test_the_files_are_those_of_the_converted_packed_file(corpus: Path, tmp_path: Path, name: str) -> None:
    packed = pack(corpus, "pbin", tmp_path / "reference.pbin")
    (tmp_path / "converted").mkdir()
    converted = fastpack.convert(packed.path, output_of(tmp_path / "converted", name), format=name)
    result = pack(corpus, name)
    assert (result.documents, result.tokens, len(result.skipped)) == (392, packed.tokens, 8)
    expected = contents(name, converted.output)
    assert list(contents(name, result.path).values()) == list(expected.values())
    with fastpack.open_tokens(result.path, format=name, dtype=converted.dtype, eos_token_id=EOD) as tokens:
        assert tokens.n_documents == 392
        assert tokens.document(0).tolist() == [*b"word 1", EOD]


def test_names_of_megatron(corpus: Path, tmp_path: Path) -> None:
    result = fastpack.pack(corpus, tokenizer="bytes", format="megatron")
    assert result.path == str(tmp_path / "corpus_text_document.bin")
    for output, stem in (("a", "a_text_document"), ("b.bin", "b"), ("c.idx", "c")):
        assert Path(pack(corpus, "megatron", tmp_path / output).path).name == f"{stem}.bin"
        assert (tmp_path / f"{stem}.idx").read_bytes() == (tmp_path / "corpus_text_document.idx").read_bytes()


@pytest.mark.parametrize("exists", [False, True])
def test_the_index_of_a_source_is_not_overwritten(corpus: Path, tmp_path: Path, exists: bool) -> None:
    index = tmp_path / "corpus.idx"
    if exists:
        fastpack.create_raw_index(corpus)
    before = index.read_bytes() if exists else None
    with pytest.raises(ValueError, match=r"corpus\.idx would be Megatron's index and that of .*corpus\.jsonl"):
        pack(corpus, "megatron", tmp_path / "corpus.bin", if_exists="overwrite")
    assert (index.read_bytes() if index.exists() else None) == before
    assert not (tmp_path / "corpus.bin").exists()


def test_the_index_of_another_jsonl_file_is_not_overwritten(corpus: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_bytes(corpus.read_bytes())
    fastpack.create_raw_index(other)
    before = (tmp_path / "other.idx").read_bytes()
    with pytest.raises(TargetExists, match="perhaps the index of a JSONL file"):
        pack(corpus, "megatron", tmp_path / "other.bin", if_exists="overwrite")
    assert (tmp_path / "other.idx").read_bytes() == before


@pytest.mark.parametrize(("n_words", "dtype"), [(65_499, "uint16"), (65_500, "int32")])
def test_the_dtype_of_megatron_follows_its_rule(tmp_path: Path, n_words: int, dtype: str) -> None:
    vocabulary = [f"w{number}" for number in range(n_words - 1)]
    tokenizer_of(tmp_path, vocabulary, ["<eod>"])
    (tmp_path / "c.jsonl").write_text('{"text": "w1 w65000"}\n')
    result = fastpack.pack(
        tmp_path / "c.jsonl", tmp_path / "c", tokenizer=tmp_path, eos_token="<eod>", format="megatron", num_workers=1
    )
    with fastpack.open_tokens(result.path) as tokens:
        assert (str(tokens.dtype), tokens.document(0).tolist()) == (dtype, [1, 65_000, n_words - 1])


def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    tokenizer_of(tmp_path, [f"w{number}" for number in range(65_536)], ["<eod>"])
    (tmp_path / "c.jsonl").write_text('{"text": "w1"}\n')
    with pytest.raises(ValueError, match="nanogpt stores uint16, which cannot hold the ids of 65,537 tokens"):
        fastpack.pack(tmp_path / "c.jsonl", tmp_path / "c.bin", tokenizer=tmp_path, eos_token="<eod>", format="nanogpt")
    assert not (tmp_path / "c.bin").exists()


@pytest.mark.parametrize("name", OTHERS)
def test_resume_is_refused(corpus: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"resume continues runs that write pbin and npy: a run that writes {name}"):
        pack(corpus, name, resume=True)
    assert [path.name for path in corpus.parent.iterdir()] == ["corpus.jsonl"]


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_remains_of_an_interrupted_run(corpus: Path, tmp_path: Path, name: str) -> None:
    fastpack.create_raw_index(corpus)
    with pytest.raises(KeyboardInterrupt):
        pack(corpus, name, progress=interrupt)
    assert {path.name for path in tmp_path.iterdir()} == {"corpus.jsonl", "corpus.idx"}


@pytest.mark.parametrize("name", WRITABLE)
def test_ranks_write_the_same_files(corpus: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "ranks").mkdir()
    fastpack.create_raw_index(corpus)
    config = {
        "settings": {"src_path": corpus, "jq_pattern": ".text", "eod_token": "<|endoftext|>"},
        "tokenizer": BYTES,
    }
    settings = load_pack_settings(config, output=output_of(tmp_path / "ranks", name), format=name)  # type: ignore[arg-type]
    plan = plan_pack(settings, bytes_per_task=3000)
    assert len(plan.tasks) > 2
    run_rank(plan, 0, 1)
    (result,) = collect_pack(plan)
    assert contents(name, result.path) == contents(name, pack(corpus, name).path)


def test_one_file_per_source(corpus: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "more.jsonl").write_bytes(corpus.read_bytes())
    cli("pack", corpus, tmp_path / "more.jsonl", "--tokenizer", "bytes", "--per-source", "--format", "megatron", "-q")
    for stem in ("corpus", "more"):
        assert fastpack.open_tokens(tmp_path / f"{stem}_text_document").n_documents == 392


def test_the_command(corpus: Path, tmp_path: Path, cli: Cli) -> None:
    found = cli.json("pack", corpus, "--tokenizer", "bytes", "--format", "mds", "-o", tmp_path / "m", "--dry-run")
    assert (found["files"][0]["path"], (tmp_path / "m").exists()) == (str(tmp_path / "m"), False)
    assert cli.json("pack", corpus, "--tokenizer", "bytes", "--format", "mds", "-o", tmp_path / "m")["documents"] == 392
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n')
    words = ["pack", str(tmp_path / "empty.jsonl"), "--tokenizer", "bytes", "--format"]
    for name in ("megatron", "litdata"):
        before = {path.name for path in tmp_path.iterdir()} | {"empty.idx"}
        assert cli(*words, name, "-o", tmp_path / "e", code=1)
        assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(("name", "output"), [("megatron", "x.pbin"), ("pbin", "x.npy"), ("datatrove", "x.bin")])
def test_the_suffix_of_another_format_is_refused(corpus: Path, tmp_path: Path, name: str, output: str) -> None:
    with pytest.raises(ValueError, match=f"{output} is not the name of a file of the format '{name}'"):
        pack(corpus, name, tmp_path / output)
