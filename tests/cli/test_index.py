"""`fastpack index` and its old names."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Cli

from fastpack import read_raw_index


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
def test_index(good: Path, cli: Cli, words: list[str], option: str | None) -> None:
    target = good.with_name("y.idx") if option else good.with_suffix(".idx")
    out, err = cli(*words, good, *([option, str(target)] if option else []))
    assert read_raw_index(target).tolist() == [[0, 2], [3, 2]]
    assert out == f"{target}: 2 lines, 6 bytes indexed\n"
    assert err == ""


def test_json(good: Path, cli: Cli) -> None:
    assert cli.json("index", good, "--threads", "2") == {
        "path": str(good.with_suffix(".idx")),
        "entries": 2,
        "dropped": 0,
        "source_bytes": 6,
        "written": True,
        "kept_existing": False,
        "dry_run": False,
    }


def test_faulty_line(raw: Path, cli: Cli) -> None:
    out, err = cli("index", raw, code=1)
    assert out == ""
    assert err.count("\n") == 1
    assert f"{raw}: line 2 at byte 13: Expecting property name" in err
    assert "faulty line \"b'{oops'\", skipping..." in err
    assert not raw.with_suffix(".idx").exists()


def test_messages_about_long_lines_are_short(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"a' + b"x" * 60_000)
    assert len(cli("index", tmp_path / "x.jsonl", code=1).err) < 1000


def test_drop_faulty(raw: Path, cli: Cli) -> None:
    out, err = cli("index", raw, "--drop-faulty")
    assert out == f"{raw.with_suffix('.idx')}: 2 lines, 1 faulty line skipped, 22 bytes indexed\n"
    assert err == "faulty line \"b'{oops'\", skipping...\n"
    assert read_raw_index(raw.with_suffix(".idx")).tolist() == [[0, 12], [19, 2]]


def test_no_validate_and_quiet(raw: Path, cli: Cli) -> None:
    assert cli("index", raw, "--no-validate", "--quiet") == ("", "")
    assert len(read_raw_index(raw.with_suffix(".idx"))) == 3


def test_policies(good: Path, cli: Cli) -> None:
    target = good.with_suffix(".idx")
    target.write_bytes(b"old")
    assert "exists. Pass --force to overwrite it." in cli("index", good, code=1).err
    assert cli("index", good, "--file_existence_policy", "skip").out == f"{target}: exists, kept\n"
    assert target.read_bytes() == b"old"
    cli("index", good, "--if-exists", "overwrite")
    cli("index", good, "--force")
    assert len(read_raw_index(target)) == 2


def test_missing_source(tmp_path: Path, cli: Cli) -> None:
    assert (
        cli("index", tmp_path / "none.jsonl", code=1).err
        == f"fastpack: error: Raw data file does not exist: {tmp_path}/none.jsonl\n"
    )


@pytest.mark.parametrize("words", [["index"], ["index", "x", "--threads", "two"], ["index", "x", "--nope"]])
def test_usage(words: list[str], cli: Cli) -> None:
    cli(*words, code=2)


def test_repair_legacy(golden: Path, tmp_path: Path, cli: Cli) -> None:
    raw, index = golden / "modalities/jsonl/docs_crlf.jsonl", tmp_path / "x.idx"
    index.write_bytes((golden / "modalities/legacy/v0.2.0/docs_crlf.v0.2.0.idx").read_bytes())
    assert cli("index", raw, "--index-path", index, "--repair-legacy").out == f"{index}: 15 line lengths corrected\n"
    assert index.read_bytes() == (golden / "modalities/idx/docs_crlf.idx").read_bytes()
    assert cli.json("index", raw, "--index-path", index, "--repair-legacy") == {"path": str(index), "changed": 0}
    assert "No such file" in cli("index", tmp_path / "none.jsonl", "--repair-legacy", code=1).err


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for name in ("a.jsonl", "sub/b.jsonl"):
        (tmp_path / "shards" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "shards" / name).write_bytes(b"{}\n[]\n")
    (tmp_path / "shards" / "c.jsonl.gz").write_bytes(b"")
    return tmp_path / "shards"


@pytest.mark.parametrize("threads", ["1", "3"])
def test_several_files(threads: str, shards: Path, cli: Cli) -> None:
    out, err = cli("index", shards, "--threads", threads)
    assert out.splitlines() == [f"{shards / name}: 2 lines, 6 bytes indexed" for name in ("a.idx", "sub/b.idx")]
    assert err == ""
    assert [file["entries"] for file in cli.json("index", shards / "*.jsonl", "--force")["files"]] == [2]


@pytest.mark.parametrize("option", ["--dry-run", "--dry_run"])
def test_a_dry_run_writes_nothing(option: str, shards: Path, cli: Cli) -> None:
    lines = cli("index", shards, option).out.splitlines()
    assert lines[0] == f"{shards / 'a.idx'}: would index 6 bytes of {shards / 'a.jsonl'}"
    assert len(lines) == 2
    assert not list(shards.rglob("*.idx"))


@pytest.mark.parametrize("option", [["--index-path", "x.idx"], ["--repair-legacy"]])
def test_options_for_a_single_file(option: list[str], shards: Path, cli: Cli) -> None:
    assert cli("index", shards, *option, code=2).err == f"fastpack: error: {option[0]} takes one source file\n"


def test_compressed_files_are_refused(shards: Path, cli: Cli) -> None:
    assert "is compressed" in cli("index", shards / "c.jsonl.gz", code=1).err
