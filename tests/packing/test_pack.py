"""`pack_encoded_data` writes the bytes of Modalities and loses no documents."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import example, given, settings
from pack_sources import as_tokens, batch_bytes, config_of, line, pack_lines, write_source
from packed_files import documents_of

from fastpack.documents.raw_index import read_raw_index, repair_raw_index
from fastpack.errors import FormatError
from fastpack.packing import source_batches
from fastpack.packing.pack import pack_encoded_data
from fastpack.packing.pack_result import PackResult

CONFIGS = ("docs_bpe2000", "docs_char250", "docs_crlf_bpe2000", "one_bpe2000")


@pytest.fixture
def modalities_folder(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the working directory in which Modalities wrote the golden files, without its output."""
    shutil.copytree(golden / "modalities", tmp_path / "peer", ignore=shutil.ignore_patterns("expected", "legacy"))
    monkeypatch.chdir(tmp_path / "peer")
    Path("pbin").rename("golden_pbin")
    return tmp_path / "peer"


@pytest.mark.parametrize("name", CONFIGS)
def test_modalities_configuration_gives_modalities_bytes(name: str, modalities_folder: Path, backend: str) -> None:
    result = pack_encoded_data(f"configs/{name}.yaml")
    assert result.skipped == []
    assert Path(f"pbin/{name}.pbin").read_bytes() == Path(f"golden_pbin/{name}.pbin").read_bytes()
    assert result.documents == len(documents_of(result.path))
    assert result.tokens == sum(map(len, documents_of(result.path)))


@pytest.mark.parametrize("num_cpus", [2, 3])
@pytest.mark.parametrize("name", ["docs_bpe2000", "docs_char250"])
def test_bytes_do_not_depend_on_the_number_of_processes(
    name: str, num_cpus: int, modalities_folder: Path, small_batches: None
) -> None:
    config = yaml.safe_load(Path(f"configs/{name}.yaml").read_text())
    config["settings"]["num_cpus"] = num_cpus
    seen: list[tuple[int, int]] = []
    result = pack_encoded_data(config, progress=lambda done, total: seen.append((done, total)))
    assert Path(result.path).read_bytes() == Path(f"golden_pbin/{name}.pbin").read_bytes()
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


def test_bytes_do_not_depend_on_the_batch_size(modalities_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = yaml.safe_load(Path("configs/docs_bpe2000.yaml").read_text())
    config["settings"]["num_cpus"] = 1
    expected = Path("golden_pbin/docs_bpe2000.pbin").read_bytes()
    for n_bytes, n_lines in ((1, 16_384), (3000, 2), (1 << 20, 7)):
        batch_bytes(monkeypatch, n_bytes, checkpoints=False)
        monkeypatch.setattr(source_batches, "MAX_BATCH_LINES", n_lines)
        assert Path(pack_encoded_data(config, if_exists="overwrite").path).read_bytes() == expected


FAULTY = {
    "empty text": (line(""), "empty text"),
    "null": (line(None), "the result is null (or no such key), expected a string"),
    "missing key": (b"{}", "the result is null (or no such key), expected a string"),
    "number": (line(5), "the result is a number, expected a string"),
    "list": (line(["x"]), "the result is an array, expected a string"),
    "lone surrogate": (b'{"text": "\\ud800"}', "lone surrogate escape"),
    "invalid UTF-8": (b'{"text": "\xff"}', "not UTF-8: byte 0xff at byte 10 of the line"),
    "surrogate bytes": (b'{"text": "\xed\xa0\x80"}', "not UTF-8: byte 0xed at byte 10 of the line"),
    "no object": (b"[1]", "no 'text' in an array"),
    "blank": (b"", "blank line"),
}


@pytest.mark.parametrize("kind", FAULTY)
@pytest.mark.parametrize("place", [0, 35, 99])
def test_faulty_document_does_not_affect_others(kind: str, place: int, tmp_path: Path) -> None:
    bad, reason = FAULTY[kind]
    lines = [line(f"document {i}") for i in range(100)]
    lines[place] = bad
    result, found = pack_lines(tmp_path, lines)
    assert result.skipped == [{"line": place + 1, "reason": reason}]
    assert found == [as_tokens(f"document {i}") for i in range(100) if i != place]
    assert (result.documents, result.tokens) == (99, sum(map(len, found)))


def test_jq_filter_skips_documents(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"d{i}", "n": i}).encode() for i in range(10)]
    result, found = pack_lines(tmp_path, lines, jq_pattern="select(.n % 2 == 0) | .text")
    assert found == [as_tokens(f"d{i}") for i in range(0, 10, 2)]
    assert result.skipped == [{"line": i, "reason": "jq gives no result"} for i in range(2, 11, 2)]


@pytest.mark.parametrize("num_cpus", [1, 2])
def test_on_error_raise_names_the_first_faulty_line_and_writes_nothing(
    num_cpus: int, tmp_path: Path, small_batches: None
) -> None:
    lines = [line("x" * 600) for _ in range(60)]
    lines[40] = line("")
    lines[50] = line(None)
    source = write_source(tmp_path, lines)
    offset = sum(len(row) + 1 for row in lines[:40])
    with pytest.raises(ValueError, match=re.escape(f"{source}: line 41 at byte {offset}: empty text")):
        pack_encoded_data(config_of(source, num_cpus=num_cpus), on_faulty="error")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["src.idx", "src.jsonl"]


def test_unknown_on_error_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="on_error: found 'ignore', expected 'skip' or 'raise'"):
        pack_encoded_data(config_of(tmp_path / "x"), on_faulty="ignore")  # type: ignore[arg-type]


def test_empty_input_gives_a_17_byte_file(tmp_path: Path) -> None:
    result, found = pack_lines(tmp_path, [])
    assert (result.documents, result.tokens, found) == (0, 0, [])
    expected = bytes(8) + (2).to_bytes(4, "little") + pickle.dumps([], protocol=4)
    assert Path(result.path).read_bytes() == expected
    assert len(expected) == 17
    result, _ = pack_lines(tmp_path, [line(""), b"{}"])
    assert Path(result.path).read_bytes() == expected
    assert [s["line"] for s in result.skipped] == [1, 2]


texts = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
lines_good_or_bad = st.one_of(texts.map(line), st.sampled_from([bad for bad, _ in FAULTY.values()]))


@settings(max_examples=60)
@given(st.lists(lines_good_or_bad, max_size=30), st.integers(1, 300))
@example([line("a"), b"", line("b")], 1)
def test_skipping_faulty_documents_equals_packing_the_valid_ones(
    tmp_path: Path, lines: list[bytes], batch: int
) -> None:
    bad = {row for row, _ in FAULTY.values()}
    with pytest.MonkeyPatch.context() as patch:
        batch_bytes(patch, batch, checkpoints=False)
        mixed, _ = pack_lines(tmp_path, lines)
        mixed_bytes = Path(mixed.path).read_bytes()
    good, found = pack_lines(tmp_path, [row for row in lines if row not in bad])
    assert mixed_bytes == Path(good.path).read_bytes()
    assert [s["line"] for s in mixed.skipped] == [i for i, row in enumerate(lines, 1) if row in bad]
    assert found == [as_tokens(json.loads(row)["text"]) for row in lines if row not in bad]


def test_existence_policies(tmp_path: Path) -> None:
    source = write_source(tmp_path, [line("new")])
    target = tmp_path / "deep" / "er" / "out.pbin"
    config = config_of(source, dst_path=target)
    assert pack_encoded_data(config) == PackResult(str(target), 1, 4)
    target.write_bytes(b"old")
    with pytest.raises(ValueError, match=r"exists\. Pass if_exists='overwrite' to overwrite it\."):
        pack_encoded_data(config)
    with pytest.raises(FileExistsError):
        pack_encoded_data(config)
    assert pack_encoded_data(config, if_exists="skip") == PackResult(str(target), 0, 0, kept_existing=True)
    assert target.read_bytes() == b"old"
    pack_encoded_data(config, if_exists="overwrite")
    assert documents_of(target) == [as_tokens("new")]


def test_mismatched_index_is_an_error(tmp_path: Path) -> None:
    source = write_source(tmp_path, [line("a"), line("b")])
    source.write_bytes(source.read_bytes()[:-3])
    with pytest.raises(FormatError, match="entry 1 ends at byte"):
        pack_encoded_data(config_of(source))
    assert not source.with_suffix(".pbin").exists()


def test_index_in_characters_is_rejected_with_the_repair_command(golden: Path, modalities_folder: Path) -> None:
    """Modalities 0.5.0 truncates or drops such lines; fastpack packs nothing until the index is repaired."""
    source, legacy = Path("jsonl/docs_crlf.jsonl"), Path("docs_crlf.v0.2.0.idx")
    shutil.copy(golden / "modalities" / "legacy" / "v0.2.0" / legacy, legacy)
    config = config_of(source, dst_path="out.pbin", index_path=str(legacy))
    with pytest.raises(ValueError, match="--repair-legacy"):
        pack_encoded_data(config)
    assert not Path("out.pbin").exists()
    repair_raw_index(source, legacy)
    assert pack_encoded_data(config).documents == len(read_raw_index(legacy))
