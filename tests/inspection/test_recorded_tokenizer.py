"""`info` shows the recorded tokenizer, and `verify` compares it with the file and the options."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack.cli import main
from fastpack.tokens.formats import FORMATS
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint, record_fingerprint

ONE = TokenizerFingerprint("one", "ab" * 32, 300, 256)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many([1, 256, 2, 256], [2, 2])
        writer.fingerprint = ONE
    return tmp_path / "a.pbin"


@pytest.mark.parametrize("name", [row.name for row in FORMATS if row.create is not None and row.name != "nanogpt"])
def test_inspect(path: Path, tmp_path: Path, name: str) -> None:
    suffix = {"npy": ".npy", "bin": ".bin", "pbin": ".pbin", "llmc": ".bin"}.get(name, "")
    output = fastpack.convert(path, tmp_path / f"out-{name}{suffix}", format=name).output
    assert fastpack.inspect(output)["fingerprint"] == {
        "tokenizer": "one",
        "sha256": "ab" * 32,
        "vocab_size": 300,
        "eos_token_id": 256,
    }


def test_without_a_side_file(path: Path) -> None:
    os.unlink(f"{path}.fptok")
    assert fastpack.inspect(path)["fingerprint"] is None
    assert fastpack.verify(path, vocab_size=257, eos_token_id=256).findings == []


def test_info(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(path)]) == 0
    assert "recorded tokenizer     one (300 ids, EOS 256, files abababababab)" in capsys.readouterr().out


def test_inspect_warns(path: Path, tmp_path: Path) -> None:
    assert fastpack.inspect(path, eos_token_id=1).warnings[-1] == "the tokenizer ended documents in token 256"
    for name, size in (("a", 300), ("b", 301)):
        np.save(tmp_path / f"{name}.npy", np.arange(9, dtype=np.uint16))
        record_fingerprint(tmp_path / f"{name}.npy", TokenizerFingerprint("one", "", size, 256))
    path.unlink()
    found = fastpack.inspect(tmp_path)
    assert found["fingerprint"] is None
    assert "have different tokenizers" in found.warnings[-1]
    Path(tmp_path, "b.npy.fptok").write_text("{")
    assert "b.npy.fptok is ignored: it is not JSON" in fastpack.inspect(tmp_path).warnings[-1]


def test_verify_uses_the_vocabulary(path: Path) -> None:
    assert fastpack.verify(path).findings == []
    record_fingerprint(path, TokenizerFingerprint("one", "", 200, 256))
    (finding,) = fastpack.verify(path).findings
    assert (finding.severity, finding.found) == ("error", "token 256")


def test_verify_compares_the_options(path: Path) -> None:
    (finding,) = fastpack.verify(path, vocab_size=299).findings
    assert (finding.severity, finding.file) == ("warning", f"{path}.fptok")
    assert finding.found == "a tokenizer of 300 ids"
    assert fastpack.verify(path, vocab_size=512, eos_token_id=256).findings == []
    findings = fastpack.verify(path, eos_token_id=2).findings
    assert findings[0].found == "a tokenizer whose EOS token is 256"


def test_verify_reports_side_files_that_do_not_match(path: Path) -> None:
    Path(f"{path}.fptok").write_text("[]")
    (finding,) = fastpack.verify(path).findings
    assert (finding.severity, finding.file) == ("warning", f"{path}.fptok")
    assert finding.found == "a side file that is not used: it is not a fingerprint of format 1"
