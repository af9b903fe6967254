"""Parquet, Arrow, CSV and plain text are packed as JSON Lines with the same texts are."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra arrow")

import pyarrow as pa
from text_sources import FORMATS, SEPARATOR, write_arrow, write_jsonl, write_parquet, write_texts

import fastpack
from fastpack.cli import main
from fastpack.errors import FormatError

RANDOM = random.Random(0)
TEXTS = ["".join(RANDOM.choices('ab é\N{GRINNING FACE}"\n,\t', k=RANDOM.choice((1, 9, 200)))) for _ in range(300)]


@pytest.fixture
def expected(tmp_path: Path) -> bytes:
    """Return the packed file of TEXTS as JSON Lines."""
    result = fastpack.pack(write_jsonl(tmp_path / "expected.jsonl", TEXTS), tokenizer="bytes")
    return Path(result.path).read_bytes()


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("format", FORMATS)
def test_bytes_are_those_of_json_lines(
    format: str, num_workers: int, expected: bytes, tmp_path: Path, small_batches: None
) -> None:
    source = write_texts(tmp_path, format, TEXTS)
    split_on = SEPARATOR if format == "text" else None
    result = fastpack.pack(source, tokenizer="bytes", split_on=split_on, num_workers=num_workers)
    assert (result.documents, result.skipped) == (len(TEXTS), [])
    assert Path(result.path).read_bytes() == expected


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_types_of_strings(kind: pa.DataType, expected: bytes, tmp_path: Path) -> None:
    source = write_arrow(tmp_path / "a.arrow", TEXTS, stream=True, kind=kind)
    assert Path(fastpack.pack(source, tokenizer="bytes").path).read_bytes() == expected


@pytest.mark.parametrize("format", ["parquet", "arrow_file", "text"])
def test_tokenizers_that_take_bytes_and_those_that_take_strings(format: str, golden: Path, tmp_path: Path) -> None:
    tokenizer = golden / "modalities/tokenizers/tok_bpe2000/tokenizer.json"
    options = {"tokenizer": tokenizer, "eos_token": "<|endoftext|>", "num_workers": 1}
    expected = fastpack.pack(write_jsonl(tmp_path / "expected.jsonl", TEXTS), **options)
    source = write_texts(tmp_path, format, TEXTS)
    for engine in ("tokenizers", "gigatoken"):
        result = fastpack.pack(
            source,
            tmp_path / f"{engine}.pbin",
            engine=engine,
            split_on=SEPARATOR if format == "text" else None,
            audit=1.0,
            **options,
        )
        assert Path(result.path).read_bytes() == Path(expected.path).read_bytes()
        assert result.audited_documents == (len(TEXTS) if engine == "gigatoken" else 0)


@pytest.mark.parametrize("special", ["split", "skip"])
def test_special_tokens_in_texts(special: str, golden: Path, tmp_path: Path) -> None:
    texts = ["a<|endoftext|>b", "c", "d<|endoftext|>"]
    tokenizer = golden / "modalities/tokenizers/tok_bpe2000/tokenizer.json"
    options = {"tokenizer": tokenizer, "eos_token": "<|endoftext|>", "special_tokens_in_text": special}
    expected = fastpack.pack(write_jsonl(tmp_path / "expected.jsonl", texts), **options)
    result = fastpack.pack(write_parquet(tmp_path / "a.parquet", texts), **options)
    assert Path(result.path).read_bytes() == Path(expected.path).read_bytes()
    assert [found["line"] for found in result.skipped] == [found["line"] for found in expected.skipped]


def test_nested_field(expected: bytes, tmp_path: Path) -> None:
    sources = [
        write_parquet(tmp_path / "a.parquet", TEXTS),
        write_arrow(tmp_path / "b.arrow", TEXTS, stream=False),
        write_jsonl(tmp_path / "c.jsonl", TEXTS),
    ]
    for source in sources:
        assert Path(fastpack.pack(source, tokenizer="bytes", text_field="meta.text").path).read_bytes() == expected


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_rows_without_a_text_are_listed(format: str, tmp_path: Path) -> None:
    texts = [*TEXTS[:60], None, "", *TEXTS[60:], None]
    path = tmp_path / f"a.{format}"
    source = write_parquet(path, texts) if format == "parquet" else write_arrow(path, texts, stream=True)
    result = fastpack.pack(source, tokenizer="bytes")
    null = "the value is null, expected a string"
    assert [(found["line"], found["reason"]) for found in result.skipped] == [
        (61, null),
        (62, "empty text"),
        (len(texts), null),
    ]
    assert result.documents == len(TEXTS)
    with pytest.raises(ValueError, match=rf"{path}: row 61: {null}"):
        fastpack.pack(source, tmp_path / "b.pbin", tokenizer="bytes", on_error="raise")
    assert not (tmp_path / "b.pbin").exists()


def test_invalid_utf8_affects_its_row_only(tmp_path: Path) -> None:
    values = [b"good", b"\xff\xfe", "caf\u00e9".encode(), b"caf\xc3", b"\xa9"]
    path = tmp_path / "a.arrow"
    table = pa.table({"text": pa.array(values, pa.binary())})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    result = fastpack.pack(path, tokenizer="bytes")
    assert result.documents == 2
    assert [(found["line"], found["reason"]) for found in result.skipped] == [
        (2, "not UTF-8: byte 0xff at byte 0 of the text"),
        (4, "not UTF-8: byte 0xc3 at byte 3 of the text"),
        (5, "not UTF-8: byte 0xa9 at byte 0 of the text"),
    ]


def test_csv_rows_with_other_columns_are_listed(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text('id,text\n1,hello\n2,"a\nb"\n3\n\n4,x,y\n5,\n6,z\n7\n')
    result = fastpack.pack(source, tokenizer="bytes")
    wrong = "the row has more or fewer columns than the header"
    assert [(found["line"], found["reason"]) for found in result.skipped] == [
        (3, wrong),
        (4, "empty text"),
        (5, wrong),
        (6, "empty text"),
        (8, wrong),
    ]
    assert result.documents == 3


@pytest.mark.parametrize("format", ["parquet", "arrow_stream", "csv"])
def test_wrong_column_lists_the_columns(format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_texts(tmp_path, format, TEXTS[:3])
    with pytest.raises(ValueError, match=r"has no column 'content'; it has: id, text") as raised:
        fastpack.pack(source, tokenizer="bytes", text_field="content")
    assert str(source) in str(raised.value)
    assert main(["pack", str(source), "--tokenizer", "bytes", "--text-field", "content", "-q"]) == 1
    assert "has no column 'content'" in capsys.readouterr().err
    if format != "csv":
        with pytest.raises(ValueError, match=r"column 'id' has values of type int64, expected strings"):
            fastpack.pack(source, tokenizer="bytes", text_field="id")
    assert not source.with_suffix(".pbin").exists()


def test_sources_of_several_formats_in_order(tmp_path: Path) -> None:
    sources = [write_texts(tmp_path, kind, TEXTS[i::3], str(i)) for i, kind in enumerate(("parquet", "csv"))]
    sources.insert(1, write_jsonl(tmp_path / "2.jsonl", [*TEXTS[2::3], None]))
    result = fastpack.pack(sources, tmp_path / "all.pbin", tokenizer="bytes")
    expected = fastpack.pack(
        write_jsonl(tmp_path / "one.jsonl", TEXTS[::3] + TEXTS[2::3] + TEXTS[1::3]), tokenizer="bytes"
    )
    assert Path(result.path).read_bytes() == Path(expected.path).read_bytes()
    assert [(found["source"], found["line"]) for found in result.skipped] == [(str(sources[1]), 101)]


def test_directory_of_one_format(expected: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "crawl"
    folder.mkdir()
    for number, start in enumerate(range(0, 300, 100)):
        write_parquet(folder / f"{number}.parquet", TEXTS[start : start + 100])
    (folder / "README.txt").write_text("about")
    for source in (folder, f"{folder}/*.parquet"):
        result = fastpack.pack(source, tmp_path / "all.pbin", tokenizer="bytes", if_exists="overwrite")
        assert Path(result.path).read_bytes() == expected
    write_jsonl(folder / "a.jsonl", TEXTS)
    with pytest.raises(ValueError, match=r"several formats \(jsonl, parquet\)"):
        fastpack.pack(folder, tmp_path / "b.pbin", tokenizer="bytes")


def test_directory_of_plain_texts(expected: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, text in enumerate(TEXTS):
        (folder / f"{number:03}.txt").write_text(text, newline="")
    assert Path(fastpack.pack(folder, tmp_path / "a.pbin", tokenizer="bytes").path).read_bytes() == expected


def test_saved_dataset(expected: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    names = [f"data-{number:05}-of-00011.arrow" for number in range(11)]
    for number, name in enumerate(names):
        write_arrow(folder / name, TEXTS[number * 30 : number * 30 + 30], stream=True)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    result = fastpack.pack(folder, tmp_path / "a.pbin", tokenizer="bytes")
    assert Path(result.path).read_bytes() == expected
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["saved"]}')
    result = fastpack.pack(tmp_path, tmp_path / "b.pbin", tokenizer="bytes")
    assert Path(result.path).read_bytes() == expected
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(ValueError, match="contains the splits train, test"):
        fastpack.pack(tmp_path, tmp_path / "c.pbin", tokenizer="bytes")


@pytest.mark.parametrize("key", ["_indices_data_files", "_indices_files"])
def test_rows_selected_by_indices_are_refused(key: str, tmp_path: Path) -> None:
    write_arrow(tmp_path / "data.arrow", TEXTS[:30], stream=True)
    state: dict[str, object] = {"_data_files": [{"filename": "data.arrow"}], key: [{"filename": "indices.arrow"}]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(fastpack.FormatError, match="flatten_indices"):
        fastpack.pack(tmp_path, tmp_path / "a.pbin", tokenizer="bytes")
    (tmp_path / "state.json").write_text(json.dumps({**state, key: None}))
    assert fastpack.pack(tmp_path, tmp_path / "a.pbin", tokenizer="bytes").documents == 30


def test_what_datasets_saves(expected: bytes, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the library datasets is not installed")
    dataset = datasets.Dataset.from_dict({"id": list(range(300)), "text": TEXTS})
    dataset.save_to_disk(tmp_path / "saved", num_shards=3)
    datasets.DatasetDict(train=dataset).save_to_disk(tmp_path / "splits")
    for name in ("saved", "splits"):
        result = fastpack.pack(tmp_path / name, tmp_path / f"{name}.pbin", tokenizer="bytes")
        assert Path(result.path).read_bytes() == expected


@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_truncated_files_are_errors(name: str, tmp_path: Path) -> None:
    source = tmp_path / name
    if name == "a.parquet":
        write_parquet(source, TEXTS)
    else:
        write_arrow(source, TEXTS, stream=name == "stream.arrow")
    content = source.read_bytes()
    for size in (0, 3, 10, len(content) // 2, len(content) - 8, len(content) - 1):
        source.write_bytes(content[:size])
        with pytest.raises(FormatError, match=str(source)):
            fastpack.pack(source, tokenizer="bytes")
        assert not source.with_suffix(".pbin").exists()


def test_content_that_contradicts_the_name(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "a.parquet", TEXTS)
    source.rename(tmp_path / "a.jsonl")
    with pytest.raises(FormatError, match=r"found b'PAR1.*expected a jsonl file, as its name says"):
        fastpack.pack(tmp_path / "a.jsonl", tokenizer="bytes")
    (tmp_path / "a.jsonl").rename(tmp_path / "a.data")  # without a known suffix, the content decides
    assert fastpack.pack(tmp_path / "a.data", tokenizer="bytes").documents == len(TEXTS)
    with pytest.raises(ValueError, match="is a parquet file"):
        fastpack.create_raw_index(tmp_path / "a.data")


def test_options_for_other_formats_are_refused(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "a.parquet", TEXTS)
    with pytest.raises(ValueError, match="split_on is for plain text files"):
        fastpack.pack(source, tokenizer="bytes", split_on="x")
    with pytest.raises(ValueError, match="does not name a column"):
        fastpack.pack(source, tokenizer="bytes", jq_pattern=".text | ascii_downcase")
    with pytest.raises(ValueError, match="index_path needs a single JSON Lines source"):
        fastpack.pack(source, tokenizer="bytes", index_path=tmp_path / "a.idx")


def test_ranks_give_the_same_bytes(expected: bytes, tmp_path: Path) -> None:
    sources = [write_texts(tmp_path, kind, TEXTS) for kind in ("parquet", "arrow_file", "csv")]
    one = fastpack.pack(sources, tmp_path / "one.pbin", tokenizer="bytes")
    words = ["pack", *map(str, sources), "--tokenizer", "bytes", "-q", "-o", str(tmp_path / "ranks.pbin")]
    for rank in range(3):
        assert main([*words, "--part-bytes", "4096", "--rank", str(rank), "--world-size", "3"]) == 0
    assert main([*words, "--part-bytes", "4096", "--collect"]) == 0
    assert (tmp_path / "ranks.pbin").read_bytes() == Path(one.path).read_bytes()


def test_dry_run_counts_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_parquet(tmp_path / "a.parquet", TEXTS)
    assert main(["pack", str(source), "--tokenizer", "bytes", "--dry-run", "--json"]) == 0
    (planned,) = json.loads(capsys.readouterr().out)["files"]
    assert planned["lines"] == len(TEXTS)
    assert planned["estimated_tokens"] == fastpack.pack(source, tokenizer="bytes").tokens


def test_unescaped_separator(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n\n\n\nfour\n\n")
    assert main(["pack", str(tmp_path / "a.txt"), "--tokenizer", "bytes", "--split-on", r"\n\n", "-q"]) == 0
    assert len(fastpack.PackedFile(tmp_path / "a.pbin")) == 3


def test_json_lines_named_txt_are_named_in_a_warning(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "a.txt", TEXTS[:3])
    with pytest.warns(fastpack.DataWarning, match=r"begins like JSON Lines, but is read as plain text"):
        assert fastpack.pack(source, tokenizer="bytes").documents == 1


@pytest.mark.parametrize("format", FORMATS)
def test_progress_ascends_to_the_size(format: str, tmp_path: Path, small_batches: None) -> None:
    source = write_texts(tmp_path, format, TEXTS)
    seen: list[tuple[int, int]] = []
    fastpack.pack(
        source,
        tokenizer="bytes",
        num_workers=1,
        split_on=SEPARATOR if format == "text" else None,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert seen[-1] == (source.stat().st_size, source.stat().st_size)
