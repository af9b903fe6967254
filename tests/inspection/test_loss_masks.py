"""Loss masks in `verify`, `info` and `preview`."""

from __future__ import annotations

import random
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from command_line import Cli
from hypothesis import given
from hypothesis import strategies as st

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


def test_info_summarises_the_turns_and_tokens_that_count(path: Path, cli: Cli) -> None:
    found = cli.json("info", str(path))
    assert (found["loss_per_document"]["min"], found["loss_per_document"]["max"]) == (1, 2)
    assert (found["turns_per_document"]["min"], found["turns_per_document"]["max"]) == (1, 1)
    assert "turns per document" in cli("info", str(path)).out
    quick = fastpack.inspect(path, quick=True)
    assert (quick["loss_tokens"], quick["turns_per_document"]) == (3, None)


@given(st.lists(st.lists(st.booleans(), max_size=9), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_counts_are_those_of_each_document(masks: list[list[bool]], rng: random.Random) -> None:
    """Documents of any length, in any order, and overlapping."""
    with TemporaryDirectory() as folder:
        with fastpack.PackedWriter(f"{folder}/a.pbin", 2) as writer:
            writer.append_many([7] * sum(map(len, masks)), list(map(len, masks)))
            writer.mask = MaskBits(list(chain.from_iterable(masks)))
        fastpack.shuffle_tokenized_data(writer.path, f"{folder}/b.pbin", batch_size=1, seed=rng.randrange(99))
        expected = [[sum(mask) for mask in masks], [sum(1 for counts, _ in groupby(mask) if counts) for mask in masks]]
        for name in ("a", "b"):
            found = fastpack.inspect(f"{folder}/{name}.pbin")
            for key, counts in zip(("loss_per_document", "turns_per_document"), expected, strict=True):
                assert found[key]["min"] == min(counts)
                assert found[key]["max"] == max(counts)
                assert found[key]["mean"] == round(sum(counts) / len(counts), 2)


def test_a_report_shows_the_share_that_counts(path: Path, tmp_path: Path) -> None:
    with fastpack.PackedWriter(tmp_path / "b.pbin", 2) as writer:
        writer.append([1, 2, 3])
    result = fastpack.report([path, writer.path], tmp_path / "r.html")
    assert result.numbers is not None
    assert result.numbers["loss_tokens"] == 3 + 3  # all tokens of a file without a mask count
    assert [source["loss_tokens"] for source in result.numbers["sources"]] == [3, None]
    assert result.numbers["sources"][0]["turns_per_document"]["mean"] == 1
    page = Path(result.path).read_text(encoding="utf-8")
    assert "Tokens in the loss" in page
    assert "30.0" in page  # percent of 20 tokens
    fastpack.report(writer.path, tmp_path / "s.html")
    assert "Tokens in the loss" not in (tmp_path / "s.html").read_text(encoding="utf-8")


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
    assert "a.pbin.mask" in fastpack.inspect(path)["warnings"][-1]
    assert cli("verify", str(path), code=3).out


@pytest.mark.parametrize("byte", [1 << 7, 0])
def test_stray_bits_and_wrong_counts_are_errors(tmp_path: Path, byte: int) -> None:
    """Of a mask whose checksums are right."""
    mask = MaskBits([True] * 9)
    mask.restore(8, bytes([1 | byte]), 9)
    mask.n_counted = 9 + (byte == 0)
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append([1] * 9)
        writer.mask = mask
    (finding,) = errors(writer.path)
    assert "bits that are not" in finding.found
    with pytest.raises(fastpack.FormatError, match="bits that are not"), fastpack.PackedFile(writer.path) as file:
        _ = file.loss_mask


def test_without_a_mask_nothing_is_shown(tmp_path: Path, cli: Cli) -> None:
    with fastpack.PackedWriter(tmp_path / "b.pbin", 2) as writer:
        writer.append([1, 2])
    assert cli.json("info", str(writer.path))["loss_tokens"] is None
    assert "loss" not in cli("preview", str(writer.path), "--tokenizer", "none").out
