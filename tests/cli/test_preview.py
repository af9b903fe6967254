"""The command `fastpack preview`: output for every kind of file, and errors."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import Cli

from fastpack.cli import main

TEXTS = ["Hello world", "Grün|日本\nnext line", "third", "fourth"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text, "n": {"t": text.upper()}}) + "\n" for text in TEXTS))
    return path


@pytest.fixture
def tokenizer(golden: Path) -> str:
    return str(golden / "modalities" / "tokenizers" / "tok_bpe2000" / "tokenizer.json")


def test_packed_documents_are_shown(corpus: Path, tokenizer: str, cli: Cli) -> None:
    cli("pack", corpus, "--tokenizer", tokenizer, "--eod-token", "<|endoftext|>", "-q")
    packed = corpus.with_suffix(".pbin")
    out, err = cli("preview", packed, "--tokenizer", tokenizer, "--eod-token", "<|endoftext|>")
    assert err == ""
    assert [line.split(":")[0] for line in out.splitlines() if line[0] != " "] == [
        "document 0, from token 0",
        "document 1, from token 9",
        "document 2, from token 28",
    ]
    assert "  tokens    G|r|\\xc3|\\xbc|n|\\||\\xe6" in out
    assert "  text      Grün|日本\n            next line<|endoftext|>\n" in out
    found = cli.json("preview", packed, "--tokenizer", tokenizer, "-n", "9")
    assert [one["text"] for one in found["documents"]] == [f"{text}<|endoftext|>" for text in TEXTS]
    out, err = cli("preview", packed, "-n", "1", "--max-tokens", "2", "--start", "3")
    assert out.splitlines()[0] == "document 3, from token 32: 5 tokens, the first 2 shown"
    assert err == "token ids only. Pass --tokenizer T to decode them to text\n"
    assert cli("preview", packed, "-q") == ("", "")


def test_texts_are_selected_as_in_packing(corpus: Path, cli: Cli) -> None:
    out, err = cli("preview", corpus, "-n", "2")
    assert (out.splitlines()[1], err) == ("  text      Hello world", "")
    assert "HELLO" in cli("preview", corpus, "--jq-pattern", ".n.t", "--max-characters", "5")[0]
    (found,) = cli.json("preview", corpus, "--tokenizer", "bytes", "-n1")["lines"]
    assert found["ids"] == [*b"Hello world", 256]
    assert found["pieces"][-1] == "<|endoftext|>"


def test_shards(tmp_path: Path, tokenizer: str, cli: Cli) -> None:
    np.array([40, 0, 41, 0], np.uint16).tofile(tmp_path / "tokenized_0.bin")
    out, err = cli("preview", tmp_path)
    assert out.startswith(
        "1 file, uint32 by the size of the first file (override with --dtype)\ntokenized_0.bin, from token 0:"
    )
    assert "Pass --eos-token-id ID, the token that ends a document" in err
    assert "1 file, uint16 by --dtype\n" in cli("preview", tmp_path, "--dtype", "uint16", "--eos-token-id", "0")[0]
    fields = {"name": "x", "dataset_path": "x", "description": "x", "date_downloaded": "x", "download_source": "x"}
    info = {"tokenizer": "t5-base", "file_prefix": "/x/tokenized"}
    metadata: dict[str, Any] = {**fields, "data_content": "text", "tokenized_info": info}
    (tmp_path / "metadata.json").write_text(json.dumps(metadata))
    out, err = cli("preview", tmp_path)
    assert out.startswith("1 file, uint16 by tatm's metadata\n")
    assert "names the tokenizer 't5-base', which is not a file on this machine" in err
    (tmp_path / "tokenizer.json").write_bytes(Path(tokenizer).read_bytes())
    out, err = cli("preview", tmp_path, "--eos-token-id", "0", "-n", "1")
    assert (out.splitlines()[3], err) == ("  tokens    H|[EOS 0]", "")
    assert "  tokens  " not in cli("preview", tmp_path, "--tokenizer", "none")[0]
    found = cli.json("preview", tmp_path)
    assert (found["dtype"], found["dtype_from"], found["tokenizer"]) == (
        "uint16",
        "metadata",
        str(tmp_path / "tokenizer.json"),
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["absent.pbin"], 1, "absent.pbin: No such file or directory"),
        (["a.pbin", "--start", "9"], 1, "there is no document 9: the file has 1, counted from 0"),
        (["a.pbin", "--tokenizer", "nowhere"], 1, "nowhere is neither a directory nor a tokenizer.json"),
        (["a.pbin", "--tokenizer", "bytes"], 1, "a.pbin: token 300 at position 0 is none of the 257 of the tokenizer"),
        (["a.pbin", "--eod-token", "</s>"], 1, "--eod-token </s> requires --tokenizer"),
        (["a.pbin", "--tokenizer", "bytes", "--eod-token", "</s>"], 1, "has one special token"),
        (["a.jsonl", "--index-path", "absent.idx"], 1, "absent.idx: No such file"),
        (["a.jsonl", "--jq-pattern", ".["], 1, "jq rejects the pattern '.['"),
        (["a.bin", "--dtype", "text"], 1, "dtype 'text' is unknown: uint16 or uint32"),
        (["empty.bin"], 1, "cannot mmap an empty file: empty.bin"),
    ],
)
def test_errors_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
    words: list[str],
    code: int,
    message: str,
) -> None:
    from fastpack.tokens.pbin.packed_writer import PackedWriter

    monkeypatch.chdir(tmp_path)
    with PackedWriter("a.pbin", 2) as writer:
        writer.append([300, 5])
    Path("a.jsonl").write_text("{}\n")
    Path("a.bin").write_bytes(b"1234")
    Path("empty.bin").touch()
    out, err = cli("preview", *words, code=code)
    assert message in err
    assert err.count("fastpack: error: ") == 1
    assert "internal" not in err
    assert "{" not in out


@pytest.mark.parametrize("option", ["--start", "-n", "--max-tokens", "--max-characters"])
def test_negative_numbers_are_usage_errors(option: str, cli: Cli) -> None:
    assert "-1 is not at least 0" in cli("preview", "x.pbin", f"{option}=-1" if option != "-n" else "-n-1", code=2).err


@pytest.mark.parametrize(
    ("encoding", "environment", "shaded"),
    [("utf-8", {}, True), ("utf-8", {"NO_COLOR": "1"}, False), ("latin-1", {}, False)],
)
def test_a_terminal_asks_for_more(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, environment: dict[str, str], shaded: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding)
    out.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    answers = iter(["y", "n"])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert main(["preview", str(corpus), "--tokenizer", "bytes"]) == 0
    text = raw.getvalue().decode(encoding)
    assert ("\x1b[38;5;16;48;5;153mH\x1b[0m" in text) == shaded
    assert ("H|e|l|l|o" in text) != shaded
    assert text.count("\nline ") + text.startswith("line ") == 2
    assert ("日本" in text) == (encoding == "utf-8")
    assert ("\\u65e5" in text) == (encoding != "utf-8")


def test_warnings_are_one_line_each(tmp_path: Path, tokenizer: str, cli: Cli) -> None:
    from fastpack.io import pickled_index

    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x"}\n' * 5000)
    rows = np.array([(14 * number, 13) for number in range(5000)])
    path.with_suffix(".idx").write_bytes(pickled_index.encode(rows) + b"more")
    out, err = cli("preview", path, "--start", "4999", "-n", "1")
    assert out.startswith("line 4999: 13 bytes\n")
    assert err.startswith(f"warning: {path.with_suffix('.idx')}: 4 bytes after the index, at byte ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("start", [0, 2, 4, 30_000])
def test_a_stale_index_is_an_error(corpus: Path, cli: Cli, start: int) -> None:
    """Also if the missing lines are after the shown ones, once the end of the index was read."""
    if start == 30_000:
        corpus.write_text('{"text": "short"}\n' * start)
    cli("index", corpus)
    with corpus.open("a") as file:
        file.write('{"text": "more"}\n')
    assert "corpus.idx is not the index of" in cli("preview", corpus, "--start", start, code=1).err
    corpus.write_text("\n" + corpus.read_text())
    assert "corpus.idx is not the index of" in cli("preview", corpus, "-n", "1", code=1).err
