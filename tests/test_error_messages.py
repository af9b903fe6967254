"""Errors and results as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastpack.errors import FormatError, MissingExtra


def test_errors_can_be_pickled() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(FormatError("a.bin", 12, "5 bytes", "8 bytes")))
    assert (error.path, error.offset, error.found, error.expected) == ("a.bin", 12, "5 bytes", "8 bytes")
    assert str(error) == "a.bin: at byte 12: found 5 bytes, expected 8 bytes"
    missing = pickle.loads(pickle.dumps(MissingExtra("jq", "jq", "the pattern .a[]")))
    assert str(missing) == "the pattern .a[] needs the package 'jq': pip install 'fastpack-llm[jq]'"


@pytest.mark.parametrize(("number", "text"), [(0, "0 lines"), (1, "1 line"), (2000, "2,000 lines")])
def test_nouns_agree_with_their_number(number: int, text: str) -> None:
    from fastpack.errors import counted

    assert counted(number, "line") == text


def test_results_with_one_item_are_in_the_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fastpack.cli import main

    (tmp_path / "a.jsonl").write_bytes(b'{"text": "ab"}\n')
    assert main(["index", str(tmp_path / "a.jsonl")]) == 0
    assert "1 line, 15 bytes indexed" in capsys.readouterr().out
    assert main(["pack", str(tmp_path / "a.jsonl"), "--tokenizer", "bytes"]) == 0
    assert "1 document, 3 tokens" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "a.jsonl")]) == 0
    assert "1 line" in (out := capsys.readouterr().out)
    assert "1 lines" not in out
    assert "1 entry" in out or "1 entries" not in out
