"""`pack(record_lines=True)`: where each document comes from, and its use in `trace`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli

import fastpack
from fastpack.errors import FormatError
from fastpack.inspection.trace import TracedRun
from fastpack.tokens.document_lines import read_lines


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    """Two files with blank, faulty and empty lines."""
    first = ['{"text": "one"}', "", '{"text": ""}', '{"text": "two"}', "no JSON", '{"text": "three"}']
    (tmp_path / "a.jsonl").write_text("\n".join(first) + "\n")
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": f"text {k}"}) + "\n" for k in range(50)))
    return [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]


@pytest.mark.parametrize("format", ["pbin", "npy", "megatron"])
def test_lines_of_documents(tmp_path: Path, sources: list[Path], format: str) -> None:
    path = tmp_path / {"pbin": "x.pbin", "npy": "x.npy", "megatron": "x"}[format]
    result = fastpack.pack(sources, path, tokenizer="bytes", format=format, num_workers=1, record_lines=True)  # type: ignore[arg-type]
    lines = read_lines(str(result.path))
    assert lines is not None
    found = [lines.place(number) for number in range(len(lines.places))]
    expected = [(str(sources[0]), line) for line in (1, 4, 6)] + [(str(sources[1]), line) for line in range(1, 51)]
    assert found == expected
    assert result.documents == len(expected)
    with pytest.raises(FileExistsError):
        fastpack.pack(sources, path, tokenizer="bytes", format=format, num_workers=1, record_lines=True)  # type: ignore[arg-type]


def test_trace_shows_the_line(tmp_path: Path, sources: list[Path], cli: Cli) -> None:
    target = tmp_path / "x.pbin"
    cli("pack", *sources, "--tokenizer", "bytes", "-o", target, "--num-workers", 1, "--record-lines")
    dataset = fastpack.PackedMemMapDatasetContinuous(target, "tokens", 17, True, eos_token_id=256)
    sampler = fastpack.DistributedSampler(dataset, 1, 0, shuffle=False)
    loader = fastpack.StatefulDataLoader(dataset, 1, sampler, prefetch=0)
    (tmp_path / "run.json").write_text(json.dumps(loader.describe()))
    rows = cli.json("trace", tmp_path / "run.json", "--step", 0)["rows"]
    places = [(Path(row["corpus"]).name, row["line"]) for row in rows]
    assert places == [("a.jsonl", 1), ("a.jsonl", 4), ("a.jsonl", 6), ("b.jsonl", 1)]
    assert f"from {sources[0]}:4" in cli("trace", tmp_path / "run.json", "--step", 0).out


@pytest.mark.parametrize("format", ["pbin", "npy"])
def test_every_traced_document_is_a_row_of_its_corpus(tmp_path: Path, format: Any) -> None:
    """Parquet with empty and missing texts, and JSON lines with blank ones, by two workers: rows count from 1."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = [None if k % 7 == 3 else "" if k % 11 == 5 else f"row {k} of the table" for k in range(300)]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet", row_group_size=64)
    lines = ["" if k % 9 == 4 else json.dumps({"text": f"line {k} of the file"}) for k in range(300)]
    (tmp_path / "b.jsonl").write_text("\n".join(lines) + "\n")
    corpora = {
        str(tmp_path / "a.parquet"): texts,
        str(tmp_path / "b.jsonl"): [json.loads(line)["text"] if line else "" for line in lines],
    }
    target = tmp_path / f"x.{format}"
    fastpack.pack(list(corpora), target, tokenizer="bytes", format=format, num_workers=2, record_lines=True)
    if format == "pbin":
        dataset: Any = fastpack.PackedMemMapDatasetContinuous(target, "tokens", 40, True)
    else:
        dataset = fastpack.MemoryMappedDataset(target, 40, eos_token_id=256)
    sampler = fastpack.DistributedSampler(dataset, 1, 0, shuffle=False)
    traced = TracedRun(fastpack.StatefulDataLoader(dataset, 8, sampler, prefetch=0).describe())
    seen = set()
    for step in range(len(dataset) // 8):
        for entry in traced.rows(step):
            text = bytes(token for token in traced.tokens(entry).tolist() if token < 256).decode()
            assert text in (corpora[entry["corpus"]][entry["line"] - 1] or "nothing")
            seen.add((entry["corpus"], entry["line"]))
    expected = {(path, k + 1) for path, rows in corpora.items() for k, text in enumerate(rows) if text}
    assert len(expected - seen) < 20  # those of the last, incomplete batch
    assert seen <= expected


def test_an_error_leaves_no_file(tmp_path: Path, sources: list[Path]) -> None:
    with pytest.raises(ValueError, match="line 2"):
        fastpack.pack(sources, tmp_path / "x.pbin", tokenizer="bytes", on_error="raise", record_lines=True)
    assert not list(tmp_path.glob("x.pbin*"))
    with pytest.raises(ValueError, match="cannot be combined"):
        fastpack.pack(sources, tmp_path / "x.pbin", tokenizer="bytes", resume=True, record_lines=True)


def test_damaged_lines(tmp_path: Path) -> None:
    assert read_lines(str(tmp_path / "x.pbin")) is None
    for data in (b"FPLINES0" + bytes(8), b"FPLINES1" + (99).to_bytes(8, "little"), b"FPLINES1" + bytes(11), b"x"):
        (tmp_path / "x.pbin.lines").write_bytes(data)
        with pytest.raises(FormatError):
            read_lines(str(tmp_path / "x.pbin"))
