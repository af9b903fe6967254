"""`info`, `preview` and `report` on Parquet, Arrow, CSV, TSV and plain text sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="needs the extra arrow")

import pyarrow as pa
import pyarrow.parquet as pq
from text_sources import FORMATS, SEPARATOR, write_arrow, write_jsonl, write_parquet, write_texts

import fastpack
from fastpack.cli import main
from fastpack.errors import FormatError, JobError

TEXTS = [f"text {number} " + "\N{BLACK SQUARE}" * (number % 9) for number in range(120)]
SIZES = [len(text.encode()) for text in TEXTS]


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> dict[str, Any]:
    """Return the JSON result of a command that succeeds."""
    assert main([*map(str, words), "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.parametrize("format", FORMATS)
def test_facts(format: str, tmp_path: Path) -> None:
    source = write_texts(tmp_path, format, TEXTS)
    found = fastpack.inspect(source, split_on=SEPARATOR)
    kind = {"arrow_file": "arrow", "arrow_stream": "arrow", "csv.gz": "csv"}.get(format, format)
    assert (found.kind, found.files, found.bytes, found.rows) == (kind, 1, source.stat().st_size, len(TEXTS))
    assert (found.nulls, found.warnings) == (0, [])
    summary = found.text_bytes
    assert (summary["min"], summary["max"]) == (min(SIZES), max(SIZES))
    assert summary["median"] == np.percentile(SIZES, 50, method="inverted_cdf")
    assert sum(one["documents"] for one in found.histogram["bins"]) == len(TEXTS)
    assert found.text_field == (None if kind == "text" else "text")
    assert found.row_groups == (3 if kind in ("parquet", "arrow") else None)
    if kind != "text":
        assert found.columns["text"] == "string"
        assert found.columns["id"] == "int64"
    compression = {"parquet": ["snappy"], "arrow": None, "csv.gz": ["gzip"]}
    assert found.compression == compression.get(format if format == "csv.gz" else kind, ["none"])


def test_quick_facts_do_not_need_the_texts(tmp_path: Path) -> None:
    found = fastpack.inspect(write_parquet(tmp_path / "a.parquet", TEXTS), quick=True)
    assert (found.rows, found.row_groups, found.text_bytes, found.nulls) == (len(TEXTS), 3, None, None)
    assert fastpack.inspect(write_texts(tmp_path, "csv", TEXTS), quick=True).rows is None


def test_rows_without_a_text(tmp_path: Path) -> None:
    found = fastpack.inspect(write_parquet(tmp_path / "a.parquet", ["a", None, "", None]))
    assert (found.rows, found.nulls, found.text_bytes["min"]) == (4, 2, 0)
    assert found.warnings == ["2 rows without a text, which packing skips"]


def test_another_column(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "a.parquet", TEXTS)
    assert fastpack.inspect(source, text_field="meta.text").text_bytes["max"] == max(SIZES)
    with pytest.raises(ValueError, match=r"no column 'body'; it has: id, text, meta\.text, meta\.n"):
        fastpack.inspect(source, text_field="body")
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"body": TEXTS}), other)
    found = fastpack.inspect(other)
    assert (found.columns, found.rows, found.text_bytes) == ({"body": "string"}, len(TEXTS), None)
    assert "pass --text-field" in found.warnings[0]


def test_folders_patterns_and_saved_datasets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    for number in range(2):
        write_arrow(folder / f"data-{number}.arrow", TEXTS[number * 60 : number * 60 + 60], stream=True)
    names = [{"filename": f"data-{number}.arrow"} for number in range(2)]
    (folder / "state.json").write_text(json.dumps({"_data_files": names}))
    for given in (folder, folder / "data-*.arrow"):
        found = fastpack.inspect(given)
        assert (found.files, found.rows, found.text_bytes["max"]) == (2, len(TEXTS), max(SIZES))
        shown = run(capsys, "preview", given, "--start", 59, "-n", 2)
        assert [(row["file"], row["row"], row["text"]) for row in shown["rows"]] == [
            ("data-0.arrow", 59, TEXTS[59]),
            ("data-1.arrow", 0, TEXTS[60]),
        ]
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["saved", "test"]}))
    with pytest.raises(ValueError, match="contains the splits saved, test"):
        fastpack.inspect(tmp_path)
    with pytest.raises(FileNotFoundError):
        fastpack.inspect(tmp_path / "*.parquet")


@pytest.mark.parametrize("format", FORMATS)
def test_previews_are_those_of_json_lines(format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_texts(tmp_path, format, TEXTS)
    lines = write_jsonl(tmp_path / "lines.jsonl", TEXTS)
    split = ["--split-on", SEPARATOR] if format == "text" else []
    for options in (["-n", 5], ["-n", 200, "--start", 55, "--tokenizer", "bytes", "--max-tokens", 7]):
        found = run(capsys, "preview", source, *options, *split)
        expected = run(capsys, "preview", lines, *options, "--text-field", "meta.text")
        assert found["files"] == 1
        for row, line in zip(found["rows"], expected["lines"], strict=True):
            assert (row.pop("file"), row.pop("row")) == (source.name, line.pop("line"))
            assert row.pop("bytes") == len(row["text"].encode())
            del line["start"], line["bytes"]
            assert row == line
    assert main(["preview", str(source), "--start", "120", *split]) == 1
    assert "there is no row 120" in capsys.readouterr().err


def test_previews_say_why_packing_skips_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({"body": pa.array([None, b"", b"\xff", b"good\x1b[2J"], pa.binary())}), source)
    rows = run(capsys, "preview", source, "--text-field", "body", "-n", 9)["rows"]
    skipped = fastpack.pack(source, text_field="body", tokenizer="bytes").skipped
    assert [row["error"] for row in rows][:3] == [one["reason"] for one in skipped]
    assert (rows[3]["text"], rows[3]["error"]) == ("good\\u001b[2J", None)
    assert main(["preview", str(source), "--text-field", "body", "-n", "1"]) == 0
    assert capsys.readouterr().out == "a.parquet, row 0\n  left out  the value is null, expected a string\n"


def test_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [write_texts(tmp_path, kind, TEXTS) for kind in ("parquet", "csv", "text")]
    page = tmp_path / "r.html"
    found = run(capsys, "report", *tables, "-o", page, "--split-on", SEPARATOR)
    assert [source["kind"] for source in found["sources"]] == ["parquet", "csv", "text"]
    assert (found["documents"], found["tokens"], found["warnings"]) == (3 * len(TEXTS), None, [])
    assert (found["lengths"]["unit"], found["lengths"]["total"]) == ("bytes", 3 * sum(SIZES))
    assert "corpus.parquet" in page.read_text()


def test_damaged_and_unknown_files(tmp_path: Path) -> None:
    damaged = write_parquet(tmp_path / "a.parquet", TEXTS)
    damaged.write_bytes(damaged.read_bytes()[:-9])
    for function in (fastpack.inspect, lambda path: main(["preview", str(path)])):
        if function is fastpack.inspect:
            with pytest.raises(FormatError):
                function(damaged)
        else:
            assert function(damaged) == 1
    (tmp_path / "x.csv").write_bytes(b"PAR1")
    with pytest.raises(FormatError, match="a csv file, as its name says"):
        fastpack.inspect(tmp_path / "x.csv")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/x.jsonl").write_text("{}\n")
    with pytest.raises(JobError, match="in this folder"):
        fastpack.inspect(tmp_path / "folder")
