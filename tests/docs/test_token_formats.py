"""The table of token formats on the documentation site: every cell is compared with what the formats do."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack.tokens.formats import FORMATS, detect_format
from fastpack.tokens.interop_formats import output_path
from fastpack.tokens.token_file import TokenFormat

pytest.importorskip("sphinx", reason="sphinx is not installed; `pip install -e '.[docs]'`")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_extensions"))

import token_format_table

GOLDEN = Path(__file__).parents[1] / "golden" / "interop"
WRITABLE = [row for row in FORMATS if row.create is not None]
DTYPES = ("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def _write(folder: Path, row: TokenFormat, dtype: str, documents: list[list[int]]) -> Path:
    path = folder / f"a{''.join(row.suffixes[:1])}"
    assert row.create is not None
    with row.create(path, np.dtype(dtype), "error") as writer:
        flat = [token for document in documents for token in document]
        writer.append_many(flat, [len(document) for document in documents])
    return Path(output_path(row.name, path))


def test_every_format_has_a_row() -> None:
    lines = list(token_format_table.table())
    assert [line.split("`")[1] for line in lines[2:]] == [row.name for row in FORMATS]
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize("row", WRITABLE, ids=lambda row: row.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_cells_read_write_and_dtypes(tmp_path: Path, row: TokenFormat, dtype: str) -> None:
    _, _, read, write, _, dtypes, _ = token_format_table.cells(row)
    assert (read, write) == ("yes", "yes")
    if dtype in dtypes.split(", "):
        path = _write(tmp_path, row, dtype, [[1, 2, 0], [100, 0]])
        with fastpack.open_tokens(path, format=row.name, dtype=dtype, eos_token_id=0) as tokens:
            assert (str(tokens.dtype), tokens.document(1).tolist()) == (dtype, [100, 0])
    else:
        (tmp_path / "s").mkdir()
        source = _write(tmp_path / "s", next(r for r in FORMATS if r.name == "mds"), "uint16", [[1, 2, 0]])
        with pytest.raises(ValueError, match=f"{row.name} does not store {dtype}"):
            fastpack.convert(source, tmp_path / "a", format=row.name, dtype=dtype)
        assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("row", WRITABLE, ids=lambda row: row.name)
def test_the_cell_document_boundaries(tmp_path: Path, row: TokenFormat) -> None:
    path = _write(tmp_path, row, row.dtypes[-1], [[1, 2], [100, 0]])
    boundaries = token_format_table.cells(row)[4]
    with fastpack.open_tokens(path, format=row.name, dtype=row.dtypes[-1]) as tokens:
        assert tokens.n_documents == (2 if boundaries == "stored" else None)
    pbin = tmp_path / "out.pbin"
    if boundaries != "stored":
        with pytest.raises(ValueError, match="pass eos_token_id"):
            fastpack.convert(path, pbin, source_format=row.name, dtype=row.dtypes[-1] if row.name == "bin" else None)
        assert not pbin.exists()


@pytest.mark.parametrize("row", WRITABLE, ids=lambda row: row.name)
def test_the_cell_what_is_lost(tmp_path: Path, row: TokenFormat) -> None:
    lost = token_format_table.cells(row)[6]
    with fastpack.PackedWriter(tmp_path / "source.pbin", 2) as writer:
        writer.append_many([1, 2, 3, 0], [2, 0, 2])
    result = fastpack.convert(tmp_path / "source.pbin", tmp_path / "out", format=row.name)
    assert result.n_tokens == 4
    assert (result.n_empty_dropped == 1) == ("empty documents" in lost)
    with fastpack.open_tokens(result.output, format=row.name, dtype="uint16") as tokens:
        assert ("document boundaries" in lost) == (tokens.n_documents is None)


def test_manifests_are_read_only(tmp_path: Path) -> None:
    row = next(row for row in FORMATS if row.name == "manifest")
    _, _, read, write, boundaries, dtypes, lost = token_format_table.cells(row)
    assert (read, write, boundaries, dtypes) == ("yes", "no", "with `--eos-token-id`", "those of the shards")
    assert "not written by `convert`" in lost
    np.save(tmp_path / "a.npy", np.array([1, 2, 0, 3, 0], np.uint32))
    fastpack.write_manifest(tmp_path)
    manifest = next(tmp_path.glob("*.fpm"))
    with fastpack.open_tokens(manifest, eos_token_id=0) as tokens:
        assert (tokens.dtype, tokens.document(1).tolist()) == (np.uint32, [3, 0])
    with fastpack.open_tokens(manifest) as tokens:
        assert tokens.n_documents is None
    with pytest.raises(ValueError, match="is not written by convert"):
        fastpack.convert(tmp_path / "a.npy", tmp_path / "b.fpm", format="manifest")


@pytest.mark.parametrize("row", WRITABLE, ids=lambda row: row.name)
def test_the_cell_files(tmp_path: Path, row: TokenFormat) -> None:
    description = token_format_table.cells(row)[1]
    path = _write(tmp_path, row, row.dtypes[-1], [[1, 2, 0]])
    suffixes = {suffix for suffix in (".pbin", ".npy", ".bin", ".idx", ".ds", ".csv.gz") if suffix in description}
    if row.name in ("npy", "bin"):
        suffixes = {f".{row.name}"}  # one cell describes both
    if row.name == "datatrove":
        suffixes |= {".ds.index", ".ds.metadata"}
    if "folder of" in description and not suffixes:
        assert path.is_dir()
        assert (path / "index.json").exists()
    else:
        assert {f".{file.name.partition('.')[2]}" for file in tmp_path.iterdir()} == suffixes


LIMITS = {  # formats -> what the cell "what is lost" says about limits, and the test of it
    "llmc": ("at most 2^31 - 1 tokens", [1 << 31]),
    "litdata": ("chunks must be smaller than 4 GiB", [1 << 31]),
    "mds": ("shards smaller than 4 GiB", [1 << 31]),
}


@pytest.mark.parametrize("row", WRITABLE, ids=lambda row: row.name)
def test_the_limits_in_the_cell_what_is_lost(tmp_path: Path, row: TokenFormat) -> None:
    lost = token_format_table.cells(row)[6]
    limit, lengths = LIMITS.get(row.name, ("", []))
    assert limit in lost
    assert bool(limit) == ("2^31" in lost or "4 GiB" in lost)
    if limit:
        assert row.create is not None
        writer = row.create(tmp_path / "a", np.dtype(np.uint16), "error")
        with pytest.raises(ValueError, match=r"at most|smaller than 4 GiB"):
            writer.append_blocks(iter(()), np.array(lengths))


def test_what_is_lost_of_megatron(tmp_path: Path) -> None:
    lost = _lost("megatron")
    assert "sequence boundaries inside documents, and modes" in lost
    assert "there is no uint32" in lost
    for name in ("sentences", "modes"):
        result = fastpack.convert(GOLDEN / name, tmp_path / name, format="megatron")
        with fastpack.open_tokens(GOLDEN / name) as source:
            n_sequences = int.from_bytes((tmp_path / f"{name}.idx").read_bytes()[18:26], "little")
            assert n_sequences == source.n_documents == result.n_documents
    assert (GOLDEN / "modes.idx").stat().st_size == (tmp_path / "modes.idx").stat().st_size + 5  # a byte per sequence


def test_what_is_lost_of_datatrove(tmp_path: Path) -> None:
    assert _lost("datatrove") == "the name of the tokenizer"
    for suffix in (".ds", ".ds.index", ".ds.metadata"):
        (tmp_path / f"a{suffix}").write_bytes((GOLDEN / f"narrow{suffix}").read_bytes())
    metadata = (tmp_path / "a.ds.metadata").read_text().replace("Unknown Tokenizer|2", "gpt2")
    (tmp_path / "a.ds.metadata").write_text(metadata)
    fastpack.convert(tmp_path / "a.ds", tmp_path / "b.ds")
    assert sorted(path.name for path in tmp_path.glob("b*")) == ["b.ds", "b.ds.index", "b.ds.metadata"]
    assert (tmp_path / "b.ds.metadata").read_text() == metadata.replace("gpt2", "Unknown Tokenizer")


def test_what_is_lost_of_olmo(tmp_path: Path) -> None:
    assert "ids and sources of documents in the side file; tokens after its last document are dropped" in _lost("olmo")
    np.arange(5, dtype=np.uint16).tofile(tmp_path / "a.npy")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"0,3,id,made.json,0\n"))
    result = fastpack.convert(tmp_path / "a.npy", tmp_path / "b.npy", format="olmo", dtype="uint16")
    assert (result.n_tokens, result.n_tokens_dropped) == (3, 2)
    assert gzip.decompress((tmp_path / "b.csv.gz").read_bytes()) == b"0,3\n"


def test_what_is_lost_of_mds_bin_and_nanogpt(tmp_path: Path) -> None:
    assert "columns other than the tokens" in _lost("mds")
    result = fastpack.convert(GOLDEN / "fixed_mds", tmp_path / "mds", format="mds")
    columns = json.loads(Path(result.output, "index.json").read_text())["shards"][0]["column_names"]
    assert columns == ["tokens"]
    assert "never detected, because it looks like `bin`" in _lost("nanogpt")
    assert detect_format(GOLDEN / "nanogpt_train.bin").name == "bin"
    assert "the dtype, unless tatm's metadata states it" in _lost("bin")
    with pytest.raises(fastpack.FormatError, match="expected dtype="):
        fastpack.convert(GOLDEN / "nanogpt_train.bin", tmp_path / "a.npy")
    assert _lost("pbin") == "nothing"
    assert _lost("litdata").startswith("nothing")


def _lost(name: str) -> str:
    return token_format_table.cells(next(row for row in FORMATS if row.name == name))[6]
