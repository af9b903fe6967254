"""`fastpack index` and its old names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastpack import read_raw_index
from fastpack.cli import main


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"text":"a"}\n{oops\n[]\n')
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.jsonl"
    path.write_bytes(b"{}\n[]\n")
    return path


@pytest.mark.parametrize(
    "words", [["index"], ["create_raw_index"], ["data", "create_raw_index"], ["create_memmap_index"]]
)
@pytest.mark.parametrize("option", [None, "--index-path", "--index_path"])
def test_index(good: Path, capsys: pytest.CaptureFixture[str], words: list[str], option: str | None) -> None:
    target = good.with_name("y.idx") if option else good.with_suffix(".idx")
    assert main([*words, str(good), *([option, str(target)] if option else [])]) == 0
    assert read_raw_index(target).tolist() == [[0, 2], [3, 2]]
    out, err = capsys.readouterr()
    assert out == f"{target}: 2 lines, 6 bytes indexed\n"
    assert err == ""


def test_json(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(good), "--json", "--threads", "2"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "path": str(good.with_suffix(".idx")),
        "entries": 2,
        "dropped": 0,
        "source_bytes": 6,
        "written": True,
        "kept_existing": False,
        "dry_run": False,
    }


def test_faulty_line(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(raw)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"{raw}: line 2 at byte 13: Expecting property name" in err
    assert "faulty line \"b'{oops'\", skipping..." in err
    assert not raw.with_suffix(".idx").exists()


def test_messages_about_long_lines_are_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"a' + b"x" * 60_000)
    assert main(["index", str(tmp_path / "x.jsonl")]) == 1
    assert len(capsys.readouterr().err) < 1000


def test_drop_faulty(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(raw), "--drop-faulty"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{raw.with_suffix('.idx')}: 2 lines, 1 faulty line skipped, 22 bytes indexed\n"
    assert err == "faulty line \"b'{oops'\", skipping...\n"
    assert read_raw_index(raw.with_suffix(".idx")).tolist() == [[0, 12], [19, 2]]


def test_no_validate_and_quiet(raw: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(raw), "--no-validate", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert len(read_raw_index(raw.with_suffix(".idx"))) == 3


def test_policies(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = good.with_suffix(".idx")
    target.write_bytes(b"old")
    assert main(["index", str(good)]) == 1
    assert "exists. Pass --force to overwrite it." in capsys.readouterr().err
    assert main(["index", str(good), "--file_existence_policy", "skip"]) == 0
    assert capsys.readouterr().out == f"{target}: exists, kept\n"
    assert target.read_bytes() == b"old"
    assert main(["index", str(good), "--file-existence-policy", "override"]) == 0
    assert main(["index", str(good), "--force"]) == 0
    assert len(read_raw_index(target)) == 2


def test_missing_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(tmp_path / "none.jsonl")]) == 1
    assert capsys.readouterr().err == f"fastpack: error: Raw data file does not exist: {tmp_path}/none.jsonl\n"


@pytest.mark.parametrize("words", [["index"], ["index", "x", "--threads", "two"], ["index", "x", "--nope"]])
def test_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2


def test_repair_legacy(golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, index = golden / "modalities/jsonl/docs_crlf.jsonl", tmp_path / "x.idx"
    index.write_bytes((golden / "modalities/legacy/v0.2.0/docs_crlf.v0.2.0.idx").read_bytes())
    assert main(["index", str(raw), "--index-path", str(index), "--repair-legacy"]) == 0
    assert capsys.readouterr().out == f"{index}: 15 line lengths corrected\n"
    assert index.read_bytes() == (golden / "modalities/idx/docs_crlf.idx").read_bytes()
    assert main(["index", str(raw), "--index-path", str(index), "--repair-legacy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(index), "changed": 0}
    assert main(["index", str(tmp_path / "none.jsonl"), "--repair-legacy"]) == 1
    assert "No such file" in capsys.readouterr().err


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for name in ("a.jsonl", "sub/b.jsonl"):
        (tmp_path / "shards" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "shards" / name).write_bytes(b"{}\n[]\n")
    (tmp_path / "shards" / "c.jsonl.gz").write_bytes(b"")
    return tmp_path / "shards"


@pytest.mark.parametrize("threads", ["1", "3"])
def test_several_files(threads: str, shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(shards), "--threads", threads]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [f"{shards / name}: 2 lines, 6 bytes indexed" for name in ("a.idx", "sub/b.idx")]
    assert err == ""
    assert main(["index", str(shards / "*.jsonl"), "--json", "--force"]) == 0
    assert [file["entries"] for file in json.loads(capsys.readouterr().out)["files"]] == [2]


@pytest.mark.parametrize("option", ["--dry-run", "--dry_run"])
def test_a_dry_run_writes_nothing(option: str, shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(shards), option]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{shards / 'a.idx'}: would index 6 bytes of {shards / 'a.jsonl'}"
    assert len(lines) == 2
    assert not list(shards.rglob("*.idx"))


@pytest.mark.parametrize("option", [["--index-path", "x.idx"], ["--repair-legacy"]])
def test_options_for_a_single_file(option: list[str], shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(shards), *option]) == 2
    assert capsys.readouterr().err == f"fastpack: error: {option[0]} takes one source file\n"


def test_compressed_files_are_refused(shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(shards / "c.jsonl.gz")]) == 1
    assert "is compressed" in capsys.readouterr().err
