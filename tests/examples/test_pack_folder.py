"""The example packs a folder of texts, and the tokens decode to the same texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import fastpack

TEXTS = {
    "a.txt": "The first text, of one line.\n",
    "below/b.txt": "Ein zweiter, mit Umlauten: äöü, und 😀.\n" * 20,
    "below/c.txt": "for i in range(10):\n\tprint(i)\n" * 10,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    notes = tmp_path / "notes"
    for name, text in TEXTS.items():
        (notes / name).parent.mkdir(parents=True, exist_ok=True)
        (notes / name).write_bytes(text.encode())
    (notes / "d.txt").write_bytes(b"caf\xe9")
    (notes / "e.md").write_text("does not match the pattern")
    return notes


@pytest.mark.parametrize("bytes_only", [False, True])
def test_the_tokens_decode_to_the_texts(
    bytes_only: bool,
    folder: Path,
    tmp_path: Path,
    load_example: Callable[[str], ModuleType],
    capsys: pytest.CaptureFixture[str],
) -> None:
    example, output = load_example("pack_folder"), tmp_path / "packed"
    words = [str(folder), "-o", str(output), "--seq-len", "16", "--vocabulary", "400"]
    assert example.main([*words, "--bytes"] if bytes_only else words) == 0
    printed = capsys.readouterr()
    assert f"skipped {folder / 'd.txt'}: 'utf-8' codec" in printed.err
    assert "3 documents" in printed.out
    assert repr(TEXTS["a.txt"]) in printed.out
    assert "input_ids [4, 16], labels [4, 16], doc_ids [4, 16]" in printed.out

    lines = [json.loads(line) for line in (output / "corpus.jsonl").read_text().splitlines()]
    assert [line["path"] for line in lines] == list(TEXTS)
    documents = fastpack.PackedMemMapDatasetBase(output / "corpus.pbin", "tokens")
    tokenizer = None if bytes_only else output / "tokenizer.json"
    ids = [documents[number]["tokens"].tolist() for number in range(3)]
    assert [example.decode(document[:-1], tokenizer) for document in ids] == list(TEXTS.values())
    assert len({document[-1] for document in ids}) == 1
    if bytes_only:
        assert ids[0] == [*TEXTS["a.txt"].encode(), 256]
    else:
        assert max(map(max, ids)) < 400
        assert len(ids[1]) < len(TEXTS["below/b.txt"].encode()) / 3  # the tokenizer was trained on this text


def test_a_second_run_replaces_the_first(
    folder: Path, tmp_path: Path, load_example: Callable[[str], ModuleType]
) -> None:
    example, words = load_example("pack_folder"), [str(folder), "-o", str(tmp_path / "packed"), "--bytes"]
    assert example.main(words) == 0
    (folder / "b.txt").write_text("another text")
    assert example.main(words) == 0
    assert len(fastpack.PackedMemMapDatasetBase(tmp_path / "packed" / "corpus.pbin", "tokens")) == 4


def test_a_folder_without_matching_files_is_an_error(
    folder: Path, tmp_path: Path, load_example: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    assert load_example("pack_folder").main([str(folder), "-o", str(tmp_path / "p"), "--pattern", "*.rst"]) == 1
    assert f"no file *.rst with text in {folder}" in capsys.readouterr().err
