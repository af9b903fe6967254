"""The command `pack` and its older names."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command_line import FASTPACK, Cli, started

from fastpack.cli import main
from fastpack.tokens.pbin.packed_file import PackedFile

TOKENIZER = "tokenizers/tok_bpe2000"
EOD = "<|endoftext|>"


@pytest.fixture(autouse=True)
def peer(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory like Modalities' when it wrote the golden files, without its output."""
    shutil.copytree(golden / "modalities", tmp_path / "peer", ignore=shutil.ignore_patterns("expected", "legacy"))
    monkeypatch.chdir(tmp_path / "peer")
    Path("pbin").rename("golden_pbin")
    shutil.copy("jsonl/docs.jsonl", "docs.jsonl")
    return tmp_path / "peer"


def golden_bytes(name: str = "docs_bpe2000") -> bytes:
    return Path(f"golden_pbin/{name}.pbin").read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ["pack"],
        ["pack_encoded_data"],
        ["data", "pack_encoded_data", "--file_existence_policy", "error"],
        ["pack", "--if-exists", "skip", "--num-cpus", "1"],
    ],
)
def test_a_configuration(words: list[str], cli: Cli) -> None:
    out, err = cli(*words, "configs/docs_bpe2000.yaml")
    assert Path("pbin/docs_bpe2000.pbin").read_bytes() == golden_bytes()
    assert out.startswith("pbin/docs_bpe2000.pbin: 60 documents, 9,239 tokens, in ")
    assert err == ""


@pytest.mark.parametrize("tokenizer", [TOKENIZER, f"{TOKENIZER}/tokenizer.json"])
@pytest.mark.filterwarnings("error")
def test_flags(tokenizer: str, cli: Cli) -> None:
    out, err = cli("pack", "docs.jsonl", "--tokenizer", tokenizer, "--eod-token", EOD, "--num-cpus", "2", "--json")
    report = json.loads(out)
    assert report.pop("seconds") >= 0
    assert report == {
        "path": "docs.pbin",
        "documents": 60,
        "tokens": 9239,
        "skipped": [],
        "written": True,
        "dry_run": False,
        "kept_existing": False,
        "resumed_documents": 0,
        "engine": "tokenizers",
        "eos_inside": 0,
        "documents_with_eos_inside": 0,
        "audited_documents": 0,
    }
    assert "docs.idx does not exist: making it" in err
    assert Path("docs.pbin").read_bytes() == golden_bytes()
    assert Path("docs.idx").read_bytes() == Path("idx/docs.idx").read_bytes()


def test_both_spellings_and_a_target(cli: Cli) -> None:
    words = [
        "pack",
        "docs.jsonl",
        "--tokenizer",
        TOKENIZER,
        "--eod_token",
        EOD,
        "--jq_pattern",
        ".text",
        "--num_cpus",
        "1",
    ]
    assert cli(*words, "--index_path", "idx/docs.idx", "--on_faulty", "error", "-o", "out/a.pbin", "--quiet") == (
        "",
        "",
    )
    assert Path("out/a.pbin").read_bytes() == golden_bytes()
    assert not Path("docs.idx").exists()


def test_the_old_command(cli: Cli) -> None:
    words = ["create_packed_data", "docs.jsonl", "--index_path", "idx/docs.idx", "--dst_path", "old.pbin"]
    words += ["--tokenizer_type", "GPT2TokenizerFast", "--jq_pattern", ".text"]
    cli(*words, "--tokenizer_file", f"{TOKENIZER}/tokenizer.json")
    assert Path("old.pbin").read_bytes() == golden_bytes()
    assert (
        "data/tokenizer/tokenizer.json"
        in cli("create_packed_data", "docs.jsonl", "--index_path", "idx/docs.idx", code=1).err
    )


def test_flags_override_the_configuration() -> None:
    words = ["pack", "configs/docs_bpe2000.yaml", "-o", "x.pbin", "--tokenizer", "bytes", "--num-cpus", "1"]
    assert main(words) == 0
    with PackedFile("x.pbin") as file:
        text = json.loads(Path("docs.jsonl").read_bytes().splitlines()[0])["text"]
        assert file[0].tolist() == [*text.encode(), 256]
        assert len(file) == 60
    assert not Path("pbin").exists()


def test_skipped_documents_are_reported(cli: Cli) -> None:
    lines = [{"text": "good"}, *({"text": ""} for _ in range(8)), {"text": "last"}]
    Path("s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    out, err = cli("pack", "s.jsonl", "--tokenizer", "bytes")
    assert out.startswith("s.pbin: 2 documents, 10 tokens, 8 skipped, in ")
    assert err.count("skipped line") == 5
    assert "skipped line 2: empty text\n" in err
    assert "skipped 3 more" in err
    skipped = cli.json("pack", "s.jsonl", "--tokenizer", "bytes", "--force")["skipped"]
    assert skipped == [{"line": i, "reason": "empty text"} for i in range(2, 10)]
    out, err = cli("pack", "s.jsonl", "--tokenizer", "bytes", "-o", "t.pbin", "--on-faulty", "error", code=1)
    assert err == "fastpack: error: s.jsonl: line 2 at byte 17: empty text\n"
    assert (out, Path("t.pbin").exists()) == ("", False)


def test_invalid_json_lines_while_indexing(cli: Cli) -> None:
    Path("s.jsonl").write_text('{"text": "a"}\nnot json\n{"text": "b"}\n')
    assert (
        "s.jsonl: line 2 at byte 14: not JSON: Expecting value at character 0\n"
        in cli("pack", "s.jsonl", "--tokenizer", "bytes", "--on-faulty", "error", code=1).err
    )
    assert not Path("s.idx").exists()
    out, err = cli("pack", "s.jsonl", "--tokenizer", "bytes")
    assert out.startswith("s.pbin: 2 documents, 4 tokens, 1 skipped")
    assert "skipped line 2: not JSON: Expecting value at character 0\n" in err
    assert "faulty line" not in err


def test_policies_for_an_existing_target(cli: Cli) -> None:
    Path("docs.pbin").write_bytes(b"old")
    words = ["pack", "docs.jsonl", "--tokenizer", "bytes"]
    assert "exists. Pass --force to overwrite it." in cli(*words, code=1).err
    assert not Path("docs.idx").exists()
    assert cli(*words, "--if-exists", "skip").out == "docs.pbin: exists, kept\n"
    assert Path("docs.pbin").read_bytes() == b"old"
    cli(*words, "--file_existence_policy", "override", "--quiet")
    assert Path("docs.pbin").stat().st_size > 3


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["docs.jsonl"], 2, "--tokenizer is needed"),
        (["docs.jsonl", "--tokenizer", TOKENIZER], 2, "--eos-token is needed: the token of " + TOKENIZER),
        (["docs.jsonl", "--tokenizer", TOKENIZER], 2, f"has the special tokens {EOD}"),
        (["docs.jsonl", "--tokenizer", "gpt2"], 1, "error: --tokenizer: gpt2 is neither"),
        (["absent.jsonl", "--tokenizer", "bytes"], 1, "error: absent.jsonl does not exist"),
        (["docs.jsonl", "--tokenizer", "bytes", "--num-cpus", "0"], 1, "error: --num-workers: found 0"),
        (["configs/docs_bpe2000.yaml", "--num-cpus", "0"], 1, "error: --num-workers: found 0"),
        (["docs.jsonl", "--tokenizer", TOKENIZER, "--eod-token", "no such"], 1, f"has the special tokens {EOD}"),
        (["absent.jsonl", "--tokenizer", "bytes"], 1, "absent.jsonl"),
        (["absent.yaml"], 1, "absent.yaml: No such file"),
        (["docs.jsonl", "--tokenizer", "gpt2", "--eod-token", EOD], 1, "neither a directory nor a tokenizer.json"),
        (["docs.jsonl", "--tokenizer", "x.model", "--eod-token", EOD], 1, "x.model is not there"),
        (["docs.jsonl", "--tokenizer", "bytes", "--num-cpus", "0"], 1, "expected an int of at least 1"),
        (["docs.jsonl", "--tokenizer", "bytes", "--jq-pattern", ".foo-bar"], 1, "jq rejects"),
        (["docs.jsonl", "--tokenizer", TOKENIZER, "--eod-token", "nosuch"], 1, "not represented by a single token id"),
    ],
)
def test_failures(words: list[str], code: int, message: str, cli: Cli) -> None:
    out, err = cli("pack", *words, code=code)
    assert out == ""
    assert message in err
    assert "Traceback" not in err
    assert not Path("docs.pbin").exists()


def test_help(cli: Cli) -> None:
    assert "example: fastpack pack corpus.jsonl" in cli("pack", "--help").out


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_keeps_finished_work_and_names_resume(sent: signal.Signals, code: int, peer: Path) -> None:
    """No target and no worker remains, only the files that --resume needs."""
    Path("big.jsonl").write_bytes(Path("jsonl/docs.jsonl").read_bytes() * 1500)
    command = [*FASTPACK, "pack", "big.jsonl", "--num-cpus", "2", "--engine", "tokenizers"]
    command += ["--tokenizer", TOKENIZER, "--eod-token", EOD, "-q"]
    partial = Path(".big.pbin.partial")
    with started(command) as process:
        while (not partial.exists() or partial.stat().st_size < 1 << 18) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert re.fullmatch(r"fastpack: stopped at \d+ %; run the same command with --resume to continue\n", errors)
    left = sorted(path.name for path in peer.glob("*big*"))
    assert left == [".big.pbin.journal", ".big.pbin.partial", "big.idx", "big.jsonl"]
    if sent == signal.SIGINT:
        done = subprocess.run([*command, "--resume", "--json"], capture_output=True, text=True, check=True)
        report = json.loads(done.stdout)
        assert report["documents"] == 60 * 1500
        assert 0 < report["resumed_documents"] < report["documents"]
        once = PackedFile("golden_pbin/docs_bpe2000.pbin").data.tobytes()
        assert PackedFile("big.pbin").data.tobytes() == once * 1500


def several(peer: Path) -> list[str]:
    """The documents of docs.jsonl in two files, one of them compressed."""
    lines = Path("docs.jsonl").read_bytes().splitlines(keepends=True)
    Path("parts").mkdir()
    Path("parts/a.jsonl").write_bytes(b"".join(lines[:25]))
    Path("parts/b.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[25:])))
    return ["--tokenizer", TOKENIZER, "--eod-token", EOD, "--json"]


@pytest.mark.parametrize("sources", [["parts"], ["parts/*"], ["parts/a.jsonl", "parts/b.jsonl.gz"]])
@pytest.mark.parametrize("engine", ["auto", "tokenizers"])
def test_several_sources_into_one_target(sources: list[str], engine: str, peer: Path, cli: Cli) -> None:
    options = [*several(peer), "--engine", engine]
    assert json.loads(cli("pack", *sources, *options, "-o", "all.pbin").out)["documents"] == 60
    assert Path("all.pbin").read_bytes() == golden_bytes()
    assert sorted(os.listdir("parts")) == ["a.jsonl", "b.jsonl.gz"]  # no index is left behind


@pytest.mark.parametrize("option", ["--per-source", "--per_source"])
def test_several_sources_into_one_target_each(option: str, peer: Path, cli: Cli) -> None:
    options = several(peer)
    files = json.loads(cli("pack", "parts", *options, option, "-o", "packed").out)["files"]
    assert [(file["path"], file["documents"]) for file in files] == [("packed/a.pbin", 25), ("packed/b.pbin", 35)]
    assert cli("pack", "parts", *options[:-1], option, "-o", "packed", "--resume").out.splitlines()[:2] == [
        "packed/a.pbin: exists, kept",
        "packed/b.pbin: exists, kept",
    ]


def test_several_sources_need_a_target(peer: Path, cli: Cli) -> None:
    options = several(peer)
    assert "--output is needed for several sources" in cli("pack", "parts", *options, code=2).err
    assert (
        "--index-path takes one source"
        in cli("pack", "parts", *options, "-o", "x.pbin", "--index-path", "docs.idx", code=2).err
    )


@pytest.mark.parametrize("option", ["--dry-run", "--dry_run"])
def test_a_dry_run_writes_nothing_and_reports_the_plan(option: str, peer: Path, cli: Cli) -> None:
    before = sorted(os.listdir())
    options = ["--tokenizer", TOKENIZER, "--eod-token", EOD]
    out, err = cli("pack", "docs.jsonl", *options, option)
    assert re.fullmatch(
        r"docs\.pbin: would hold about 9,\d\d\d tokens, 1[89],\d\d\d bytes; 2 byte\(s\) a token, from docs\.jsonl "
        r"\(60 lines, [\d,]+ bytes\), tokenised by tokenizers, in about 0\.\d s\n",
        out,
    )
    assert err == ""
    report = cli.json("pack", "docs.jsonl", *options, option)
    assert report["dry_run"] is True
    assert report["files"][0]["lines"] == 60
    assert sorted(os.listdir()) == before
    Path("docs.pbin").write_bytes(b"")
    assert "exists. Pass --force to overwrite it." in cli("pack", "docs.jsonl", *options, option, code=1).err


def test_an_unsupported_engine_is_an_error(peer: Path, cli: Cli) -> None:
    assert (
        "the engine gigatoken does not fit"
        in cli("pack", "docs.jsonl", "--tokenizer", "bytes", "--engine", "gigatoken", code=1).err
    )
    assert not Path("docs.pbin").exists()


def test_an_unknown_key_is_an_error_that_lists_the_known_ones(tmp_path: Path, cli: Cli) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"content": "a", "id": 1}\n' * 3)
    words = ["pack", str(source), "--tokenizer", "bytes", "--eod-token", "<|endoftext|>"]
    error = cli(*words, code=1).err
    assert "none of the 3 documents could be packed" in error
    assert "the jq pattern is .text, and the first document has the keys content, id" in error
    assert not source.with_suffix(".pbin").exists()
    cli(*words, "--jq-pattern", ".content")
    assert source.with_suffix(".pbin").exists()


def test_other_text_is_rejected(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "notes.md").write_text("a poem\nof two lines\n")
    words = ["--tokenizer", "bytes", "--eod-token", "<|endoftext|>"]
    assert "none of the 2 lines of" in cli("pack", folder / "notes.md", *words, code=1).err
    error = cli("pack", folder, *words, "-o", tmp_path / "all.pbin", code=1).err
    assert "no .jsonl, .ndjson, .parquet, .arrow, .feather, .csv, .tsv, .txt files found" in error
    assert [path.name for path in folder.iterdir()] == ["notes.md"]


def test_a_replaced_packed_file_keeps_its_permissions() -> None:
    words = ["pack", "docs.jsonl", "--tokenizer", "bytes", "--write-checksums", "--force", "-q"]
    assert main(words) == 0
    for name in ("docs.pbin", "docs.idx"):
        Path(name).chmod(0o600)
    assert main(words) == 0
    assert main(["index", "docs.jsonl", "--force"]) == 0
    for name in ("docs.pbin", "docs.idx", "docs.pbin.fpsum"):
        assert Path(name).stat().st_mode & 0o777 == 0o600, name
