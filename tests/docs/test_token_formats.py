"""The table of token formats on the documentation site: every cell is compared with what the formats do."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack.tokens.formats import FORMATS
from fastpack.tokens.interop_formats import output_path
from fastpack.tokens.token_file import TokenFormat

pytest.importorskip("sphinx", reason="sphinx is not installed; `pip install -e '.[docs]'`")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_extensions"))

import token_format_table

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


def test_manifests_are_read_only() -> None:
    row = next(row for row in FORMATS if row.name == "manifest")
    assert token_format_table.cells(row)[3] == "no"
