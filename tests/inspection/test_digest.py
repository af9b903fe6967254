"""The digest that `inspect` and `info` report."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Cli

import fastpack
from fastpack.tokens.formats import FORMATS

xxhash = pytest.importorskip("xxhash", reason="digests need xxhash")

DETECTED = [row.name for row in FORMATS if row.create is not None and row.name != "nanogpt"]


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many([1, 2, 0, 3, 0], [3, 2])
    return tmp_path / "a.pbin"


@pytest.mark.parametrize("name", DETECTED)
def test_it_is_equal_in_every_format(packed: Path, tmp_path: Path, name: str) -> None:
    suffix = {"npy": ".npy", "bin": ".bin", "llmc": ".bin", "pbin": ".pbin"}.get(name, "")
    output = fastpack.convert(packed, tmp_path / f"b{suffix}", format=name).output
    dtype = "uint16" if name in ("bin", "olmo") else None
    found = fastpack.inspect(output, digest=True, eos_token_id=0, dtype=dtype)
    numbers = b"".join(number.to_bytes(8, "little") for number in (1, 2, 0, 3, 0, 3, 5))
    assert found.digest == xxhash.xxh3_128(numbers).hexdigest()
    assert fastpack.inspect(output, eos_token_id=0, dtype=dtype).digest is None


def test_without_document_boundaries_only_tokens_count(packed: Path, tmp_path: Path) -> None:
    output = fastpack.convert(packed, tmp_path / "b.npy").output
    numbers = b"".join(number.to_bytes(8, "little") for number in (1, 2, 0, 3, 0))
    assert fastpack.inspect(output, digest=True)["digest"] == xxhash.xxh3_128(numbers).hexdigest()


def test_the_command(packed: Path, tmp_path: Path, cli: Cli) -> None:
    digest = fastpack.convert(packed, tmp_path / "m", format="mds").digest
    assert cli.json("info", packed, "--digest")["digest"] == digest
    assert f"digest                 {digest}" in cli("info", tmp_path / "m", "--digest").out
    assert "digest" not in cli("info", packed).out


def test_other_files_have_none(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl is not a token file: it has no digest"):
        fastpack.inspect(tmp_path / "a.jsonl", digest=True)
    with pytest.raises(FileNotFoundError):
        fastpack.inspect(tmp_path / "none.pbin", digest=True)
