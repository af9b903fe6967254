"""Loss masks in `verify`, `info` and `preview`."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Cli

import fastpack
from fastpack.tokens.mask_bits import MaskBits


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many(list(b"u:x\na:yz\nu:w\na:v\n"), [9, 8])
        writer.mask = MaskBits([byte in b"yzv" for byte in b"u:x\na:yz\nu:w\na:v\n"])
    return tmp_path / "a.pbin"


def test_info_shows_the_share_of_tokens_that_count(path: Path, cli: Cli) -> None:
    assert fastpack.inspect(path)["loss_tokens"] == 3
    assert cli.json("info", str(path))["loss_tokens"] == 3
    assert "3, 17.6% of all" in cli("info", str(path)).out


def test_preview_shows_the_tokens_that_count(path: Path, cli: Cli) -> None:
    out = cli("preview", str(path), "--tokenizer", "bytes").out
    assert [line.split(None, 1)[1] for line in out.splitlines() if line.split()[:1] == ["loss"]] == ["yz", "v"]
    documents = cli.json("preview", str(path), "--tokenizer", "none")["documents"]
    assert documents[0]["loss_mask"] == [False] * 6 + [True, True, False]


def errors(path: Path) -> list[fastpack.Finding]:
    return [finding for finding in fastpack.verify(path).findings if finding.severity == "error"]


def test_a_damaged_or_stale_mask_is_an_error(path: Path, cli: Cli) -> None:
    assert errors(path) == []
    side = Path(f"{path}.mask")
    data = bytearray(side.read_bytes())
    data[-1] ^= 1
    side.write_bytes(data)
    (finding,) = errors(path)
    assert finding.file == str(side)
    assert fastpack.inspect(path)["loss_tokens"] is None
    assert cli("verify", str(path), code=3).out


def test_without_a_mask_nothing_is_shown(tmp_path: Path, cli: Cli) -> None:
    with fastpack.PackedWriter(tmp_path / "b.pbin", 2) as writer:
        writer.append([1, 2])
    assert cli.json("info", str(writer.path))["loss_tokens"] is None
    assert "loss" not in cli("preview", str(writer.path), "--tokenizer", "none").out
