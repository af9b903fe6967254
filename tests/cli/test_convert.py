"""`fastpack convert`, and the arguments of `convert`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack.cli import main
from fastpack.cli.options import FORMATS as FORMAT_OPTIONS
from fastpack.tokens.formats import FORMATS
from fastpack.tokens.token_file import TokenFormat


def test_the_options_name_every_format() -> None:
    assert set(FORMAT_OPTIONS) == {row.name for row in FORMATS if row.create is not None}


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many([5, 6, 0, 7, 0], lengths=[3, 2])
    return tmp_path / "a.pbin"


def test_the_result_is_printed(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xxhash")
    out = packed.with_name("corpus")
    assert main(["convert", str(packed), str(packed), "-o", str(out), "--to", "megatron", "--digest", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["output"], found["format"], found["n_documents"], found["n_tokens"]) == (str(out), "megatron", 4, 10)
    assert main(["convert", str(out), "-o", str(packed.with_name("b.pbin")), "--digest"]) == 0
    assert found["digest"] in capsys.readouterr().out


@pytest.mark.parametrize("row", [row for row in FORMATS if row.create is not None], ids=lambda row: row.name)
def test_lost_boundaries_are_said(row: TokenFormat, packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = packed.with_name(f"lost{'' if row.name in ('megatron', 'litdata', 'mds') else row.suffixes[0]}")
    assert main(["convert", str(packed), "-o", str(output), "--to", row.name]) == 0
    assert ("stores no document boundaries" in capsys.readouterr().out) != row.stores_documents
    assert fastpack.open_tokens(output, format=row.name, dtype="uint16").n_documents == (
        2 if row.stores_documents else None
    )


def test_existing_outputs(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = packed.with_name("a.ds")
    assert main(["convert", str(packed), "-o", str(out)]) == 0
    before = out.stat().st_mtime_ns
    assert main(["convert", str(packed), "-o", str(out)]) == 1
    assert "--force" in capsys.readouterr().err
    assert main(["convert", str(packed), "-o", str(out), "--file-existence-policy", "skip"]) == 0
    assert out.stat().st_mtime_ns == before
    assert main(["convert", str(packed), "-o", str(out), "--force"]) == 0
    assert out.stat().st_mtime_ns > before


def test_an_id_that_does_not_fit_is_refused_before_writing(tmp_path: Path) -> None:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 4) as writer:
        writer.append([70_000, 0])
    with fastpack.PackedWriter(tmp_path / "b.pbin", 4) as writer:
        writer.append([1 << 31, 0])
    with pytest.raises(ValueError, match="token 70000 at position 0 does not fit uint16: nanogpt stores uint16"):
        fastpack.convert(tmp_path / "a.pbin", tmp_path / "out.bin", format="nanogpt")
    with pytest.raises(ValueError, match=f"token {1 << 31} at position 0 does not fit int32"):
        fastpack.convert([tmp_path / "a.pbin", tmp_path / "b.pbin"], tmp_path / "out", format="megatron")
    assert {path.name for path in tmp_path.iterdir()} == {"a.pbin", "b.pbin"}


def test_a_guessed_dtype_is_not_trusted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, tokens in (
        ("pairs", np.array([1, 0, 2, 0], np.uint16)),
        ("narrow", rng.integers(0, 50_000, 4000).astype(np.uint16)),
        ("small", np.tile(np.array([700, 0], np.uint16), 4000)[:-1]),
    ):
        tokens.tofile(tmp_path / f"{name}.bin")
        with pytest.raises(fastpack.FormatError, match="expected dtype=, the dtype of its tokens"):
            fastpack.convert(tmp_path / f"{name}.bin", tmp_path / "out.pbin", eos_token_id=0)
        result = fastpack.convert(tmp_path / f"{name}.bin", tmp_path / f"{name}.ds", eos_token_id=0, dtype="uint16")
        assert (result.dtype, result.n_tokens) == ("uint16", len(tokens))
    rng.integers(0, 50_000, 4001).astype(np.uint32).tofile(tmp_path / "wide.bin")
    assert fastpack.convert(tmp_path / "wide.bin", tmp_path / "wide.ds", eos_token_id=0).dtype == "uint32"
    rng.integers(0, 50_000, 4001).astype(np.uint16).tofile(tmp_path / "odd.bin")
    assert fastpack.convert(tmp_path / "odd.bin", tmp_path / "odd.ds", eos_token_id=0).dtype == "uint16"
    assert not (tmp_path / "out.pbin").exists()


def test_the_dtype_of_raw_tokens_is_that_of_the_source(tmp_path: Path) -> None:
    with fastpack.PackedWriter(tmp_path / "a.pbin", 4) as writer:
        writer.append_many([70_000, 6, 0, 7, 0], lengths=[3, 2])
    fastpack.convert(tmp_path / "a.pbin", tmp_path / "a.npy", format="olmo")
    golden = Path(__file__).parents[1] / "golden" / "interop" / "wide_mds_bytes"
    for source, given, dtype in ((tmp_path / "a.npy", "uint32", "int32"), (golden, "int32", "int32")):
        out = tmp_path / source.stem
        assert fastpack.convert(source, out, format="megatron", dtype=given).dtype == dtype
        assert fastpack.convert(source, out.with_suffix(".ds"), dtype=given).dtype == "uint32"


def test_an_output_that_is_a_source_is_refused(packed: Path) -> None:
    with pytest.raises(ValueError, match="belongs to a source"):
        fastpack.convert(packed, packed, if_exists="overwrite")
    fastpack.convert(packed, packed.with_name("m"), format="megatron")
    with pytest.raises(ValueError, match="belongs to a source"):
        fastpack.convert(packed.with_name("m"), packed.with_name("m.idx"), if_exists="overwrite")
    assert fastpack.open_tokens(packed.with_name("m")).n_documents == 2


def test_wrong_arguments(packed: Path) -> None:
    for options, match in (
        ({}, "its suffix is not that of a format"),
        ({"format": "manifest"}, "is not written by convert"),
        ({"format": "parquet"}, "unknown token format"),
        ({"format": "pbin", "if_exists": "never"}, "found .never., expected"),
        ({"format": "npy", "dtype": "int32"}, "npy does not store int32"),
    ):
        with pytest.raises(ValueError, match=match):
            fastpack.convert(packed, packed.with_name("out"), **options)
    with pytest.raises(ValueError, match="no sources"):
        fastpack.convert([], packed.with_name("out.pbin"))


def test_tokens_outside_documents_are_dropped_and_counted(tmp_path: Path) -> None:
    import gzip

    np.arange(10, dtype=np.uint16).tofile(tmp_path / "a.npy")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"0,3\n3,7\n"))
    result = fastpack.convert(tmp_path / "a.npy", tmp_path / "a.pbin", dtype="uint16")
    assert (result.n_documents, result.n_tokens, result.n_tokens_dropped) == (2, 7, 3)


def test_an_interrupted_conversion_leaves_nothing(packed: Path) -> None:
    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise StopError

    before = sorted(packed.parent.iterdir())
    for name in ("megatron", "datatrove", "olmo", "llmc", "litdata", "mds"):
        with pytest.raises(StopError):
            fastpack.convert(packed, packed.with_name("out"), format=name, progress=stop)
        assert sorted(packed.parent.iterdir()) == before
