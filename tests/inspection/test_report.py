"""`report`: its numbers compared with plain Python, the structure of its page, escaped names, errors."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from html_pages import Page

import fastpack
from fastpack.analysis.options import InspectOptions
from fastpack.cli import main
from fastpack.inspection.curation.look import Source
from fastpack.inspection.page import draw_page
from fastpack.inspection.report_data import MAX_BARS, SEQ_LENS, gather

GOLDEN = Path(__file__).parents[1] / "golden"
PACKED = GOLDEN / "modalities" / "pbin" / "docs_bpe2000.pbin"


def make_shards(folder: Path, lengths: list[list[int]], eos: int = 1) -> list[list[int]]:
    """Write shards `<number>.npy` of documents with these lengths, including EOS; return their tokens."""
    folder.mkdir(parents=True)
    written = []
    for number, one in enumerate(lengths):
        tokens = [token for k, n in enumerate(one) for token in [*(2 + (k + i) % 7 for i in range(n - 1)), eos]]
        np.save(folder / f"{number:05d}.npy", np.array(tokens, np.uint16))
        written.append(tokens)
    return written


def test_numbers_of_a_mixture(tmp_path: Path) -> None:
    lengths = {"a": [[3000, 5, 5000], [1], [2100] * 4], "b": [[40_000, 200_000], [9000], [7]]}
    tokens = {name: make_shards(tmp_path / name, one) for name, one in lengths.items()}
    sources = [Source(str(tmp_path / "a"), "a", 3.0), Source(str(tmp_path / "b"), "b", 1.0)]
    found = gather(sources, InspectOptions(), vocab_size=12, check=True)
    files = [one for name in tokens for one in tokens[name]]
    documents = [n for name in lengths for one in lengths[name] for n in one]
    total = sum(documents)
    assert (found["documents"], found["tokens"], found["warnings"]) == (len(documents), total, [])
    assert found["lengths"]["summary"]["median"] == sorted(documents)[-(-len(documents) // 2) - 1]
    assert sum(one["total"] for one in found["lengths"]["bins"]) == total
    for row, seq_len in zip(found["packing"], SEQ_LENS, strict=True):
        blocks = sum(len(one) // seq_len for one in files)
        cut = 0
        for one in [one for name in lengths for one in lengths[name]]:
            ends = np.cumsum(one).tolist()
            cut += sum((end - n) // seq_len != (end - 1) // seq_len for n, end in zip(one, ends, strict=True))
        assert (row["seq_len"], row["blocks"]) == (seq_len, blocks)
        assert row["tokens_in_blocks"] == pytest.approx(blocks * seq_len / total)
        assert row["documents_cut"] == pytest.approx(cut / len(documents))
        padding = sum(max(0, seq_len - n) for n in documents) / (seq_len * len(documents))
        assert row["padding"] == pytest.approx(padding)
        assert row["cut_off"] == pytest.approx(sum(max(0, n - seq_len) for n in documents) / total)
    flat = [token for one in files for token in one]
    ids = found["ids"]
    assert (ids["distinct"], ids["largest"], ids["vocab_size"], ids["tokens"]) == (8, 8, 12, total)
    assert ids["top"][0]["tokens"] == max(flat.count(token) for token in range(9))
    assert ids["ranks"][-1] == {"rank": 8, "tokens": len(documents), "share_so_far": 1.0}
    first, second = found["mixture"]["parts"]
    size = sum(map(sum, lengths["a"]))
    assert (first["size"], first["weight"], second["weight"]) == (size, 0.75, 0.25)
    assert first["repeat"] == pytest.approx(0.75 * total / size)
    assert [bar["size"] for bar in found["files"]["bars"]] == list(map(len, files))
    page = Page(draw_page(found, "a mixture"))
    page.check()
    graphs = [attrs["aria-labelledby"] for tag, attrs in page.elements if tag == "svg" and "role" in attrs]
    names = ["lengths", "cumulative", "packing", "ids", "mixture-size", "mixture-weight", "files"]
    assert graphs == [f"{name}-t {name}-d" for name in names]


@pytest.mark.parametrize(
    "path",
    [
        PACKED,
        GOLDEN / "modalities" / "legacy" / "v0.2.0" / "docs_escaped_bpe2000.v0.2.0.pbin",
        GOLDEN / "modalities" / "jsonl" / "many.jsonl",
        GOLDEN / "energon" / "jsonl" / "plain.jsonl.idx",
        GOLDEN / "energon" / "jsonl" / "empty.jsonl",
        GOLDEN / "kempnerforge" / "shards" / "npy_u16",
        GOLDEN / "kempnerforge" / "shards" / "bin_u16_even",
        GOLDEN / "modalities" / "pbin",
    ],
    ids=lambda path: path.name,
)
def test_a_page_of_each_kind(tmp_path: Path, path: Path) -> None:
    result = fastpack.report(path, tmp_path / "r.html")
    assert result.numbers is not None
    json.dumps(result.numbers)
    text = (tmp_path / "r.html").read_text()
    Page(text).check()
    assert len(text) < 60_000


def test_a_prepared_webdataset(prepared: Path, tmp_path: Path) -> None:
    result = fastpack.report([prepared, PACKED], tmp_path / "r.html")
    assert result.numbers is not None
    assert [one["kind"] for one in result.numbers["sources"]] == ["webdataset", "pbin"]
    assert result.numbers["mixture"]["unit"] == "bytes"
    assert result.numbers["lengths"]["of"] == 1  # lengths in tokens
    Page((tmp_path / "r.html").read_text()).check()


def test_the_page_stays_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    make_shards(tmp_path / "s", [[int(n) + 1 for n in rng.lognormal(3, 2, 5)] for _ in range(1000)])
    paths = [tmp_path / "s", *(tmp_path / "s" / f"{k:05d}.npy" for k in range(150))]
    result = fastpack.report(paths, tmp_path / "r.html", check=False)
    assert result.numbers is not None
    assert len(result.numbers["files"]["bars"]) <= MAX_BARS
    assert (tmp_path / "r.html").stat().st_size < 200_000


def test_names_are_escaped_in_html(tmp_path: Path) -> None:
    names = [
        b"<script>alert(1)</script>",
        b"\"' onload='x()",
        b"&lt;b&gt;",
        b"a\nb\x1b[2J",
        b"\xff\xfe",
        "‮gnp".encode(),
    ]
    folders = []
    for name in names:
        folder = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name.replace(b"/", b"!"))))
        make_shards(folder, [[3, 4], [5]])
        folders.append(folder)
    fastpack.report(folders, tmp_path / "r.html", title="</title><script>")
    page = Page((tmp_path / "r.html").read_text())
    page.check()
    texts = "".join(page.texts)
    for shown in ("<script>alert(1)<!script>", "&lt;b&gt;", "a\\u000ab\\u001b[2J", "\\udcff\\udcfe", "\\u202egnp"):
        assert shown in texts
    fastpack.report(folders[0], tmp_path / "r.html", if_exists="overwrite")
    Page((tmp_path / "r.html").read_text()).check()


def test_kempnerforge_configuration(tmp_path: Path) -> None:
    for name in ("x", "y"):
        make_shards(tmp_path / name, [[10, 20]])
    sources = "".join(
        f'[[data.datasets]]\npath = "{tmp_path / name}"\nweight = {w}\n' for name, w in (("x", 3), ("y", 1))
    )
    (tmp_path / "c.toml").write_text(f"[data]\n{sources}")
    result = fastpack.report(tmp_path / "c.toml", tmp_path / "r.html")
    assert result.numbers is not None
    assert [(one["name"], one["weight"]) for one in result.numbers["mixture"]["parts"]] == [("x", 0.75), ("y", 0.25)]
    (tmp_path / "c.toml").write_text(f'[data]\ndataset_path = "{tmp_path / "x"}"\n')
    fastpack.report(tmp_path / "c.toml", tmp_path / "one.html")
    for text, message in (("[data]\n", "has neither datasets"), ("[[data.datasets]]\nhf_name = 'far/off'", "far/off")):
        (tmp_path / "c.toml").write_text(text)
        with pytest.raises(fastpack.JobError, match=message):
            fastpack.report(tmp_path / "c.toml", tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


def test_the_page_contains_the_findings_of_verify(tmp_path: Path) -> None:
    make_shards(tmp_path / "s", [[10, 20]])
    result = fastpack.report(tmp_path / "s", tmp_path / "r.html", vocab_size=5)
    assert result.numbers is not None
    assert any("ids below the vocabulary's 5" in one["text"] for one in result.numbers["warnings"])
    assert "ids below the vocabulary" in (tmp_path / "r.html").read_text()
    clean = fastpack.report(tmp_path / "s", tmp_path / "r.html", check=False, if_exists="overwrite")
    assert clean.numbers is not None
    assert clean.numbers["warnings"] == []


def test_existing_pages_and_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "r.html"
    assert main(["report", str(PACKED), "-o", str(page)]) == 0
    assert capsys.readouterr().out.startswith(f"{page}: ")
    before = page.read_bytes()
    assert main(["report", str(PACKED), "-o", str(page)]) == 1
    assert "exists. Pass --force to overwrite it." in capsys.readouterr().err
    assert main(["report", str(PACKED), "-o", str(page), "--if-exists", "skip", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(page), "written": False, "kept_existing": True}
    assert main(["report", str(PACKED), "-o", str(page), "--force", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["written"], found["documents"]) == (True, found["sources"][0]["documents"])
    assert page.read_bytes() == before
    bad = tmp_path / "bad.pbin"
    bad.write_bytes(PACKED.read_bytes()[:-9])
    assert main(["report", str(bad), "-o", str(page), "--force"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "bad.pbin" in err
    assert page.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.pbin", "r.html"]
    with pytest.raises(fastpack.JobError, match="at least one path"):
        fastpack.report([], page, if_exists="overwrite")
