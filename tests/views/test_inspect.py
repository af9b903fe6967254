"""inspect() on golden files and on files with something odd about them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack.views.inspect import summary

GOLDEN = Path(__file__).parents[1] / "golden"


def test_packed_file(backend: str) -> None:
    path = GOLDEN / "modalities" / "pbin" / "docs_bpe2000.pbin"
    lengths = np.load(GOLDEN / "modalities" / "expected" / "docs_bpe2000.base.npz")["lengths"]
    found = fastpack.inspect(path)
    assert found["kind"] == "pbin"
    assert (found["documents"], found["tokens"]) == (len(lengths), lengths.sum())
    assert (found["generation"], found["token_size_in_bytes"]) == (5, 2)
    assert found["document_tokens"]["max"] == lengths.max()
    assert found["warnings"] == []
    json.dumps(found)


def test_old_generation_is_said() -> None:
    found = fastpack.inspect(GOLDEN / "modalities" / "legacy" / "v0.2.0" / "docs_escaped_bpe2000.v0.2.0.pbin")
    assert found["generation"] == 4
    assert "does not read its documents rightly" in found["warnings"][0]


def test_jsonl_with_and_without_its_index(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "many.jsonl"
    shutil.copy(GOLDEN / "modalities" / "jsonl" / "many.jsonl", path)
    n_lines = len(path.read_bytes().splitlines())
    assert fastpack.inspect(path) == {
        "path": str(path),
        "kind": "jsonl",
        "bytes": path.stat().st_size,
        "lines": n_lines,
        "index": None,
        "line_bytes": None,
        "warnings": [],
    }
    fastpack.create_raw_index(path)
    found = fastpack.inspect(path)
    assert found["index"] == str(tmp_path / "many.idx")
    assert found["line_bytes"]["min"] == min(map(len, path.read_bytes().splitlines()))
    path.write_bytes(path.read_bytes() + b'{"text": "one more, without a newline"}')
    assert f"the index has {n_lines} entries, the file {n_lines + 1} lines" in fastpack.inspect(path)["warnings"]
    assert fastpack.inspect(tmp_path / "many.idx")["entries"] == n_lines


@pytest.mark.parametrize(("name", "files", "tokens"), [("npy_u16", 7, 495), ("bin_u32", 12, 678)])
def test_folder_of_shards(name: str, files: int, tokens: int) -> None:
    found = fastpack.inspect(GOLDEN / "kempnerforge" / "shards" / name)
    assert (found["kind"], found["format"], found["files"], found["tokens"]) == ("shards", name[:3], files, tokens)


def test_traps_are_named() -> None:
    found = fastpack.inspect(GOLDEN / "kempnerforge" / "shards" / "bin_u16_even")
    assert any('give dtype="uint16"' in text for text in found["warnings"])


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fastpack.inspect(tmp_path / "missing.pbin")
    with pytest.raises(fastpack.JobError, match=r"no \.bin or \.npy files"):
        fastpack.inspect(tmp_path)
    (tmp_path / "a.txt").touch()
    with pytest.raises(fastpack.JobError, match=r"nor one of \.jsonl"):
        fastpack.inspect(tmp_path / "a.txt")
    (tmp_path / "a.pbin").write_bytes(b"no packed file")
    with pytest.raises(fastpack.FormatError):
        fastpack.inspect(tmp_path / "a.pbin")


def test_summary_of_lengths() -> None:
    assert summary(np.array([], np.int64)) is None
    assert summary(np.arange(1, 101)) == {"min": 1, "median": 50, "mean": 50.5, "p90": 90, "max": 100}
