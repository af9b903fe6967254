"""`report`: samples, duplicates, odd documents, shares and media, compared with what was written; nothing runs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Cli
from html_pages import Page
from hypothesis import given
from hypothesis import strategies as st
from webdatasets import Maker, make

import fastpack
from fastpack.inspection.curation import duplicates
from fastpack.inspection.curation.documents import TokenDocuments, hash_blocks
from fastpack.inspection.curation.duplicates import HashSample, find_duplicates
from fastpack.inspection.curation.scripts import script_shares

__all__ = ["make"]

TOKENIZER = Path(__file__).parents[1] / "golden" / "modalities" / "tokenizers" / "tok_bpe2000"
ATTACK = "</div><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;\x00\x1b[2J\u202e"


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_packed(path: Path, documents: list[list[int]]) -> Path:
    with fastpack.PackedWriter(path, 2) as writer:
        for tokens in documents:
            writer.append(tokens)
    return path


def contents(path: Path, **options: Any) -> dict[str, Any]:
    result = fastpack.report(path, path.parent / "page.html", if_exists="overwrite", **options)
    assert result.numbers is not None
    found: dict[str, Any] = result.numbers["sources"][0]["contents"]
    return found


def test_texts(tmp_path: Path) -> None:
    rows: list[Any] = [{"text": text, "source": "web"} for text in ("one", "two", "one", "", "a\x00b\tc\n", "one")]
    rows += [{"text": "x" * (1 << 20), "source": {"deep": 1}}, {"source": "web"}, {"text": "ab " * 400}]
    found = contents(write_lines(tmp_path / "a.jsonl", rows), by="source")
    assert (found["documents"], found["without_text"], found["empty"]) == (8, 1, 1)
    copies = found["duplicates"]
    assert (copies["documents"], copies["share"], copies["amount"], copies["sampled"]) == (2, 2 / 8, 6, 1)
    assert copies["groups"] == [{"first": 0, "count": 3, "length": 3, "text": "one"}]
    assert found["very_long"] == {"limit": 1 << 20, "documents": 1}
    assert found["controls"] == {"count": 1, "documents": 1, "first": 4}
    groups = {one["value"]: (one["documents"], one["amount"]) for one in found["groups"]["values"]}
    assert groups == {"web": (6, 18), '{"deep":1}': (1, 1 << 20), "(no value)": (1, 1200)}
    by_kind: dict[str, list[int]] = {}
    for one in found["samples"]:
        by_kind.setdefault(one["why"], []).append(one["number"])
    assert by_kind["first"] == [0, 1]
    assert (by_kind["longest"], by_kind["shortest"]) == ([6, 8], [0, 1])
    assert by_kind["most repetitive"] == [6, 8]
    assert len(by_kind["random"]) == 5
    assert contents(tmp_path / "a.jsonl", samples=0)["samples"] == []
    assert contents(tmp_path / "a.jsonl")["groups"] is None


def test_parquet_has_the_same_contents(tmp_path: Path) -> None:
    rows = [{"text": f"text {number % 7}", "source": "ab"[number % 2]} for number in range(40)]
    lines = contents(write_lines(tmp_path / "a.jsonl", rows), by="source")
    pq.write_table(pa.table({name: [row[name] for row in rows] for name in ("source", "text")}), tmp_path / "a.parquet")
    table = contents(tmp_path / "a.parquet", by="source")
    assert table == lines | {"files": table["files"]}
    assert [part["groups"] for part in table["places"]["parts"]][:2] == [[6, 0, 0], [0, 6, 0]]
    (tmp_path / "a.csv").write_text("text,source\na,b\n")
    with pytest.raises(ValueError, match="JSON Lines, Parquet and Arrow"):
        contents(tmp_path / "a.csv", by="source")


def test_tokens_with_and_without_a_tokenizer(tmp_path: Path) -> None:
    texts = ["hello world", "\u041f\u0440\u0438\u0432\u0435\u0442", "bell\x07", "hello world", ATTACK]
    source = write_lines(tmp_path / "a.jsonl", [{"text": text} for text in texts])
    fastpack.pack(source, tokenizer=str(TOKENIZER), eos_token="<|endoftext|>", num_workers=1)
    plain = contents(tmp_path / "a.pbin")
    assert (plain["text"], plain["controls"]) == (None, None)
    assert plain["samples"][0]["pieces"] is None
    found = contents(tmp_path / "a.pbin", tokenizer=str(TOKENIZER))
    assert "".join(found["samples"][0]["pieces"]) == "hello world<|endoftext|>"
    assert found["duplicates"]["documents"] == plain["duplicates"]["documents"] == 1
    assert found["controls"]["documents"] == 2
    scripts = {one["script"]: one["share"] for one in found["text"]["scripts"]}
    assert scripts["Latin"] > scripts["Cyrillic"] > 0
    page = (tmp_path / "page.html").read_text()
    assert "<span>hello</span>" in page or "<span>h" in page
    numbers = fastpack.report(tmp_path / "a.pbin", tmp_path / "ids.html", tokenizer=str(TOKENIZER)).numbers
    assert numbers is not None
    assert numbers["ids"]["top"][0]["text"] is not None
    lines = contents(source, tokenizer=str(TOKENIZER))
    assert "".join(lines["samples"][0]["pieces"]) == "hello world"
    wrong = fastpack.report(tmp_path / "a.pbin", tmp_path / "wrong.html", tokenizer="bytes").numbers
    assert wrong is not None
    assert any("it is another tokenizer" in one["text"] for one in wrong["warnings"])


def test_a_recorded_tokenizer_is_found(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [{"text": "hi"}])
    fastpack.pack(source, tokenizer="bytes", num_workers=1)
    assert contents(tmp_path / "a.pbin")["samples"][0]["pieces"] == ["h", "i", "<|endoftext|>"]
    small = TOKENIZER.parent / "tok_char250"
    (tmp_path / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    fastpack.pack(source, tmp_path / "b.pbin", tokenizer=str(small), eos_token="<|endoftext|>", num_workers=1)
    assert contents(tmp_path / "b.pbin")["samples"][0]["pieces"] is not None
    for other in (b"{}", (TOKENIZER / "tokenizer.json").read_bytes()):
        (tmp_path / "tokenizer.json").write_bytes(other)
        assert contents(tmp_path / "b.pbin")["samples"][0]["pieces"] is None


def test_eos_and_places(tmp_path: Path) -> None:
    documents = [[1, 9], [9, 1, 9], [1], [9], [], [2, 9, 9]] + [[5, 6, 9]] * 200
    path = write_packed(tmp_path / "a.pbin", documents)
    found = contents(path, eos_token_id=9)
    assert found["eos"] == {"inside": 2, "documents": 2, "documents_without": 1}
    parts = found["places"]["parts"]
    assert sum(part["documents"] for part in parts) == len(documents)
    assert sum(part["amount"] for part in parts) == sum(map(len, documents))
    assert sum(part["duplicates"] for part in parts) == found["duplicates"]["documents"] == 199
    assert found["places"]["width"] == 2


def test_formats_and_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    documents = [[*rng.integers(1, 50, int(n)).tolist(), 0] for n in rng.integers(0, 30, 100)] * 2
    source = write_packed(tmp_path / "a.pbin", documents)
    expected = contents(source, eos_token_id=0)
    for name, kind in (("m", "megatron"), ("d.ds", "datatrove"), ("l", "litdata"), ("o.npy", "olmo"), ("s", "mds")):
        output = fastpack.convert(source, tmp_path / name, format=kind).output
        found = contents(Path(output), eos_token_id=0)
        assert found == expected | {"files": found["files"]}
    fastpack.convert(source, tmp_path / "shards" / "x.npy", shard_tokens=1000)
    files = contents(tmp_path / "shards", eos_token_id=0)["files"]
    assert sum(row["amount"] for row in files["rows"]) == sum(map(len, documents))
    assert files["count"] > 2


def test_several_sources(tmp_path: Path) -> None:
    one = write_packed(tmp_path / "a.pbin", [[1, 2], [3], [3]])
    two = write_packed(tmp_path / "b.pbin", [[3], [4], [1, 2]])
    numbers = fastpack.report([one, two], tmp_path / "page.html").numbers
    assert numbers is not None
    assert numbers["across"] == {"documents": 2, "share": 2 / 6}
    assert "2 documents (33.3\u00a0%) are equal to one of an earlier dataset." in (tmp_path / "page.html").read_text()
    lines = write_lines(tmp_path / "a.jsonl", [{"text": "x"}])
    mixed = fastpack.report([one, lines], tmp_path / "mixed.html").numbers
    assert mixed is not None
    assert mixed["across"] is None


def test_a_sample_of_hashes_estimates_the_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MAX_HASHES", 1000)
    path = write_packed(tmp_path / "a.pbin", [[number % 10_000] * 60 for number in range(20_000)])
    whole = contents(path)
    parts, found = whole["places"]["parts"], whole["duplicates"]
    assert whole["places"]["width"] == 256  # documents come in several blocks
    assert [part["documents"] for part in parts] == [256] * 78 + [20_000 - 78 * 256]
    assert sum(part["duplicates"] for part in parts[:39]) == 0
    assert found["sampled"] == 1 / 32
    assert found["share"] == pytest.approx(0.5, abs=0.1)
    assert found["amount"] == 60 * found["documents"]
    assert "Estimated from" in (tmp_path / "page.html").read_text()


@given(st.lists(st.lists(st.integers(0, 1), max_size=3), max_size=12))
def test_duplicates_are_counted_as_by_python(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]]
) -> None:
    path = tmp_path_factory.mktemp("d") / "a.npy"
    np.save(path, np.array([token for one in documents for token in [*one, 7]], np.uint16))
    sample = HashSample()
    with fastpack.open_tokens(path, eos_token_id=7) as tokens:
        for part in hash_blocks(TokenDocuments([tokens])):
            sample.add(part)
    found = find_duplicates(sample.kept())
    seen: set[tuple[int, ...]] = set()
    copies = [number for number, one in enumerate(documents) if tuple(one) in seen or seen.add(tuple(one))]  # type: ignore[func-returns-value]
    assert found.copies.numbers.tolist() == copies


def test_quick_reads_nothing(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a.pbin", [[1, 2], [3]])
    numbers = fastpack.report(path, tmp_path / "page.html", quick=True).numbers
    assert numbers is not None
    assert (numbers["sources"][0]["contents"], numbers["ids"], numbers["documents"]) == (None, None, 2)


def test_scripts_of_characters() -> None:
    found = script_shares(["ab\u3042\u6f22\uac00 1.\ufffd\n"])
    assert found["Latin"] == 0.2
    for name in ("Hiragana", "Hangul", "Digits", "Replacement character (broken encoding)"):
        assert found[name] == 0.1
    assert sum(found.values()) == pytest.approx(1)


def test_nothing_in_the_data_becomes_markup(tmp_path: Path, make: Maker) -> None:
    rows = [{"text": ATTACK, "source": ATTACK}, {"text": ATTACK, "source": "b"}]
    lines = write_lines(tmp_path / "a.jsonl", rows)
    images = make({"0.tar": [("a.jpg", picture(9, 9)), ("a.txt", ATTACK.encode()), (f"b.{'x' * 5}<b>", b"1")]})
    for tokenizer in ("bytes", None):
        options = {"by": "source", "title": ATTACK, "tokenizer": tokenizer}
        fastpack.report([lines, images], tmp_path / f"{tokenizer}.html", **options)
        text = (tmp_path / f"{tokenizer}.html").read_text()
        for markup in ("<script", "<img src=x", "onerror=alert(2)>", "\x00", "\x1b", "\u202e", "<b>"):
            assert markup not in text
        assert text.index("Content-Security-Policy") < text.index("alert")
        page = Page(text)
        page.check()
        assert [tag for tag, _ in page.elements].count("img") == 1
        shown = "".join(page.texts)
        assert "</div><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;\\u0000\\u001b[2J\\u202e" in shown


def picture(width: int, height: int) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 30)).save(out, "JPEG")
    return out.getvalue()


def test_images_captions_and_durations(make: Maker, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("av")
    from media_files import media

    members: list[tuple[str, bytes]] = []
    for number, (width, height) in enumerate(((10, 40), (20, 20), (60, 40), (90, 30))):
        members.append((f"{number}.jpg", picture(width, height)))
        if number:
            members.append((f"{number}.txt", b"  " if number == 1 else b"a caption"))
    members += [("8.wav", media("wav")), ("9.jpg", b"no image")]
    numbers = fastpack.report(make({"0.tar": members}), tmp_path / "page.html").numbers
    assert numbers is not None
    found = numbers["sources"][0]["media"]
    assert {one["name"]: one["missing"] for one in found["fields"]} == {"jpg": 1, "txt": 3, "wav": 5}
    assert (found["samples"], found["looked_at"], found["unreadable"]) == (6, 6, 1)
    images = found["images"]
    assert (images["count"], images["width"]["max"], images["height"]["min"]) == (4, 90, 20)
    assert [one["count"] for one in images["shapes"]] == [1, 1, 1, 1]
    assert (found["captions"]["count"], found["captions"]["empty"]) == (3, 1)
    assert [one["kind"] for one in found["durations"]] == ["audio"]
    assert found["durations"][0]["total"] == pytest.approx(2, abs=0.1)
    assert len(found["thumbnails"]) == 4
    page = (tmp_path / "page.html").read_text()
    assert page.count("<img ") == 4
    assert 'alt="a caption"' in page
    silent = fastpack.report(tmp_path / "dataset", tmp_path / "none.html", samples=0).numbers
    assert silent is not None
    assert silent["sources"][0]["media"]["thumbnails"] == []


def test_errors_and_warnings(tmp_path: Path, cli: Cli) -> None:
    packed = write_packed(tmp_path / "a.pbin", [[1]])
    done = cli("report", packed, "-o", tmp_path / "x.html", "--by", "source", code=1)
    assert "no source has a field 'source'" in done.err
    lines = write_lines(tmp_path / "a.jsonl", [{"body": "x"}])
    found = cli.json("report", lines, "-o", tmp_path / "y.html", "--no-verify")
    assert found["sources"][0]["contents"] is None
    assert any("--text-field" in one["text"] for one in found["warnings"])
    assert cli.json("report", lines, "-o", tmp_path / "z.html", "--text-field", "body")["sources"][0]["contents"]
