"""`compare`: what is added, removed and changed, compared with plain Python; formats, ids, pages, errors."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Cli
from hypothesis import given, settings
from hypothesis import strategies as st

import fastpack
from fastpack.inspection.curation.documents import hash_names
from fastpack.inspection.curation.matching import match

FORMATS = ["pbin", "megatron", "datatrove", "olmo", "litdata", "mds", "npy", "bin", "llmc", "nanogpt"]
EOS = 7
DOCUMENTS = [[1, 2, EOS], [3, EOS], [1, 2, EOS], [4, 5, 6, EOS]]


def write_packed(path: Path, documents: list[list[int]]) -> Path:
    with fastpack.PackedWriter(path, 2) as writer:
        for tokens in documents:
            writer.append(tokens)
    return path


def write_lines(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def counts(result: fastpack.CompareResult) -> tuple[int, int, int, int]:
    return result.unchanged, result.changed, result.added, result.removed


small = st.lists(st.lists(st.integers(0, 2), max_size=2), max_size=7)


@settings(max_examples=15)
@given(first=small, second=small)
def test_unchanged_documents_are_those_of_both_multisets(
    tmp_path_factory: pytest.TempPathFactory, first: list[list[int]], second: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("compare")
    texts = [[{"text": "".join(map(str, one))} for one in some] for some in (first, second)]
    old, new = (write_lines(folder / f"{number}.jsonl", rows) for number, rows in enumerate(texts))
    result = fastpack.compare(old, new)
    one, two = Counter(map(tuple, first)), Counter(map(tuple, second))
    assert result.unchanged == (one & two).total()
    assert result.removed + result.changed == (one - two).total()
    assert result.added + result.changed == (two - one).total()
    assert result.same == (first == second)


def test_a_document_is_changed_if_another_is_at_its_place(tmp_path: Path) -> None:
    old = write_packed(tmp_path / "a.pbin", [[1], [2], [3], [4], [5]])
    new = write_packed(tmp_path / "b.pbin", [[9], [1], [8], [3], [5]])
    found = fastpack.compare(old, new)
    assert counts(found) == (3, 1, 1, 1)  # 2 became 8 after 1; 9 is before all; 4 is gone
    kinds = {one["change"]: (one["first"], one["second"]) for one in found.numbers["examples"]}
    assert kinds == {"changed": (1, 2), "added": (None, 0), "removed": (3, None)}
    moved = fastpack.compare(old, write_packed(tmp_path / "c.pbin", [[5], [4], [3], [2], [1]]))
    assert counts(moved) == (5, 0, 0, 0)
    assert (moved.same, moved.numbers["same_order"]) == (False, False)


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_documents_in_another_format_are_the_same(tmp_path: Path, format: str) -> None:
    source = write_packed(tmp_path / "a.pbin", DOCUMENTS)
    suffix = {"llmc": ".bin", "megatron": ""}.get(format, f".{format}")
    output = fastpack.convert(source, tmp_path / f"out/x{suffix}", format=format).output
    if format == "nanogpt":
        return  # never detected: its files look like `bin`
    dtype = "uint16" if format == "bin" else None
    result = fastpack.compare(source, output, eos_token_id=EOS, dtype=dtype)
    assert (result.same, result.unchanged) == (True, 4)
    assert result.numbers["first"]["duplicates"] == result.numbers["second"]["duplicates"] == 1


def test_the_width_of_tokens_does_not_matter(tmp_path: Path) -> None:
    source = write_packed(tmp_path / "a.pbin", DOCUMENTS)
    for number, dtype in enumerate(("uint16", "uint32")):
        np.save(tmp_path / f"{number}.npy", np.array([one for some in DOCUMENTS for one in some], dtype))
        assert fastpack.compare(source, tmp_path / f"{number}.npy", eos_token_id=EOS).same


def test_texts_by_content_and_by_id(tmp_path: Path) -> None:
    old = write_lines(
        tmp_path / "a.jsonl", [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}, {"id": 3, "text": "x"}]
    )
    rows = [{"id": 3, "text": "x"}, {"id": 2, "text": "zwei"}, {"id": 4, "text": "one"}]
    new = write_lines(tmp_path / "b.jsonl", rows)
    assert counts(fastpack.compare(old, new)) == (2, 0, 1, 1)
    found = fastpack.compare(old, new, id_field="id")
    assert counts(found) == (1, 1, 1, 1)
    assert not found.numbers["same_order"]
    texts = [(one["change"], one["first_text"], one["second_text"]) for one in found.numbers["examples"]]
    assert texts == [("changed", "two", "zwei"), ("removed", "one", None), ("added", None, "one")]
    pq.write_table(pa.table({"id": [4, 2, 3], "text": ["one", "zwei", "x"]}), tmp_path / "b.parquet")
    again = fastpack.compare(new, tmp_path / "b.parquet", id_field="id")
    assert (counts(again), again.same) == ((3, 0, 0, 0), False)


def test_a_removed_copy_leaves_the_others_in_order(tmp_path: Path) -> None:
    old = write_lines(tmp_path / "a.jsonl", [{"text": text} for text in ("a", "same", "b", "same", "c")])
    new = write_lines(tmp_path / "b.jsonl", [{"text": text} for text in ("a", "b", "same", "c")])
    found = fastpack.compare(old, new)
    assert counts(found) == (4, 0, 0, 1)
    assert (found.same, found.numbers["same_order"]) == (False, True)


def test_examples_show_the_difference(tmp_path: Path) -> None:
    start = "a" * 3000
    old = write_lines(tmp_path / "a.jsonl", [{"text": start + "old" + "b" * 500}])
    new = write_lines(tmp_path / "b.jsonl", [{"text": start + "new"}])
    (one,) = fastpack.compare(old, new).numbers["examples"]
    assert one["first_text"].startswith("..." + "a" * 40 + "oldb")
    assert len(one["first_text"]) < 210
    assert one["second_text"] == "..." + "a" * 40 + "new"


def test_missing_and_repeated_ids_and_rows_without_a_text(tmp_path: Path) -> None:
    old = write_lines(
        tmp_path / "a.jsonl", [{"id": 1, "text": "a"}, {"id": 1, "text": "b"}, {"text": "c"}, {"text": "d"}, {"n": 1}]
    )
    new = write_lines(
        tmp_path / "b.jsonl", [{"id": 1, "text": "a"}, {"id": 1, "text": "x"}, {"text": "d"}, {"text": "c"}]
    )
    found = fastpack.compare(old, new, id_field="id")
    assert counts(found) == (3, 1, 0, 0)
    assert (found.numbers["repeated_ids"], found.numbers["without_id"]) == (2, 4)
    assert found.numbers["first"]["without_text"] == 1
    text = "\n".join(found.numbers["warnings"])
    assert all(word in text for word in ("1 documents with an id (id)", "without an id", "1 rows without a text"))


def test_a_document_longer_than_a_block(tmp_path: Path) -> None:
    long = np.arange(3_000_000) % 60_000
    paths = [tmp_path / "a.pbin", tmp_path / "b.pbin"]
    for path, last in zip(paths, (1, 2), strict=True):
        with fastpack.PackedWriter(path, 2) as writer:
            writer.append_many(np.concatenate([[3], long, [last], [5]]), [1, len(long) + 1, 0, 1])
    found = fastpack.compare(*paths)
    assert counts(found) == (3, 1, 0, 0)


def test_shards_and_folders(tmp_path: Path) -> None:
    source = write_packed(tmp_path / "a.pbin", DOCUMENTS * 20)
    fastpack.convert(source, tmp_path / "shards" / "x.npy", shard_tokens=50)
    assert fastpack.compare(source, tmp_path / "shards", eos_token_id=EOS).same
    (tmp_path / "packed").mkdir()
    for number, some in enumerate((DOCUMENTS * 12, DOCUMENTS * 8)):
        write_packed(tmp_path / "packed" / f"{number}.pbin", some)
    assert fastpack.compare(source, tmp_path / "packed").same


def test_pages_and_exit_codes(tmp_path: Path, cli: Cli) -> None:
    texts = ["<script>alert(1)</script>", "same", "\u202egone\x00"]
    old = write_lines(tmp_path / "a.jsonl", [{"text": text} for text in texts])
    new = write_lines(tmp_path / "b.jsonl", [{"text": text} for text in texts[1:]])
    page = tmp_path / "page.html"
    found = cli.json("compare", old, new, "-o", page)
    assert (found["removed"], found["page"], found["same"]) == (1, str(page), False)
    html = page.read_text()
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "Content-Security-Policy" in html
    assert "- removed: document 0" in cli("compare", old, new, "-o", page, "--force").out
    cli("compare", old, new, "-o", page, code=1)
    cli("compare", old, new, "--exit-code", code=3)
    assert "the same 3 documents" in cli("compare", old, old, "--exit-code").out


def test_examples_of_tokens_are_decoded_with_the_recorded_tokenizer(tmp_path: Path) -> None:
    for name, texts in (("a", ["hello", "world"]), ("b", ["hello", "w\u00f6rld"])):
        write_lines(tmp_path / f"{name}.jsonl", [{"text": text} for text in texts])
        fastpack.pack(tmp_path / f"{name}.jsonl", tokenizer="bytes", num_workers=1)
    found = fastpack.compare(tmp_path / "a.pbin", tmp_path / "b.pbin").numbers
    (one,) = found["examples"]
    assert one["first_text"].startswith("world")
    assert one["second_text"].startswith("w\u00f6rld")
    assert {row["text"] for row in found["ids"]} >= {"o", "\\xc3"}
    silent = fastpack.compare(tmp_path / "a.pbin", tmp_path / "b.pbin", tokenizer="none", examples=1).numbers
    assert silent["examples"][0]["first_text"] is None


def test_errors(tmp_path: Path, cli: Cli, prepared: Path) -> None:
    packed = write_packed(tmp_path / "a.pbin", DOCUMENTS)
    lines = write_lines(tmp_path / "a.jsonl", [{"text": "a"}])
    np.save(tmp_path / "a.npy", np.zeros(4, np.uint16))
    for arguments, message in (
        ((packed, lines), "cannot be compared"),
        ((packed, tmp_path / "absent.pbin"), "absent.pbin"),
        ((packed, prepared), "prepared WebDataset"),
        ((packed, packed, "--id-field", "id"), "no field 'id'"),
        ((packed, tmp_path / "a.npy"), "--eos-token-id"),
    ):
        done = cli("compare", *arguments, code=1)
        assert message in done.err
        assert done.out == ""
    (tmp_path / "a.csv").write_text("text,id\na,1\n")
    with pytest.raises(ValueError, match="JSON Lines, Parquet and Arrow"):
        fastpack.compare(tmp_path / "a.csv", lines, id_field="id")
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="'id'"):
        fastpack.compare(tmp_path / "a.parquet", lines, id_field="id")


def test_matching_counts_copies() -> None:
    first, second = (hash_names(names) for names in (["a", "b", "a", "a"], ["a", "c", "a"]))
    assert [flags.tolist() for flags in match(first, second)] == [[True, False, True, False], [True, False, True]]
