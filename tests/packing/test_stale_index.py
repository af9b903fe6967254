"""Packing never uses an index that does not match its source: it rebuilds the index with a message, or fails."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import Cli
from pack_sources import config_of

import fastpack
from fastpack import DataWarning, StaleIndex


def lines(first: int, end: int) -> str:
    return "".join(json.dumps({"text": f"document {number}"}) + "\n" for number in range(first, end))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a file that was indexed with 5 lines and then extended to 100."""
    path = tmp_path / "x.jsonl"
    path.write_text(lines(0, 5))
    assert fastpack.pack(path, tokenizer="bytes").documents == 5
    with path.open("a") as file:
        file.write(lines(5, 100))
    return path


def test_command_rebuilds_the_index_with_a_message(source: Path, cli: Cli) -> None:
    out, err = cli("pack", source, "--tokenizer", "bytes", "--force")
    assert "100 documents" in out
    assert f"x.idx is not the index of {source} as it is now (the line at byte 115 has no entry): making it" in err
    assert len(fastpack.read_raw_index(source.with_suffix(".idx"))) == 100


def test_python_rebuilds_the_index_and_warns(source: Path) -> None:
    with pytest.warns(DataWarning, match=r"x\.idx is not the index of .*: it was rebuilt"):
        result = fastpack.pack(source, tokenizer="bytes", if_exists="overwrite")
    assert result.documents == 100


def test_dry_run_counts_the_lines(source: Path, cli: Cli) -> None:
    assert "(100 lines, " in cli("pack", source, "--tokenizer", "bytes", "--force", "--dry-run").out
    assert len(fastpack.read_raw_index(source.with_suffix(".idx"))) == 5


def test_explicit_index_is_replaced_only_with_force(source: Path, cli: Cli) -> None:
    named = source.with_suffix(".idx").rename(source.with_name("other.idx"))
    target = source.with_name("other.pbin")
    with pytest.raises(StaleIndex, match=r"--index-path .*other\.idx --force` rebuilds it"):
        fastpack.pack(source, target, tokenizer="bytes", index_path=named)
    words = ["pack", str(source), "--tokenizer", "bytes", "-o", str(target), "--index-path", str(named)]
    cli(*words, code=1)
    assert not target.exists()
    assert "100 documents" in cli(*words, "--force").out


def test_configuration_with_a_stale_index_fails(source: Path) -> None:
    config = config_of(source, dst_path=source.with_name("y.pbin"))
    with pytest.raises(StaleIndex, match="the line at byte 115 has no entry"):
        fastpack.pack_encoded_data(config)
    config["settings"]["src_path"] = [str(source)]  # several sources need no index
    with pytest.warns(DataWarning, match="are read without it"):
        assert fastpack.pack_encoded_data(config).documents == 100


@pytest.mark.parametrize("more", [[], ["--per-source"]])
def test_folder_is_packed_without_its_stale_index(source: Path, more: list[str], cli: Cli) -> None:
    source.with_name("z.jsonl").write_text(lines(0, 3))
    target = [] if more else ["-o", str(source.with_name("all.pbin"))]
    out, err = cli("pack", source.parent, "--tokenizer", "bytes", "--force", *target, *more)
    assert "10" in out
    assert "the lines of" in err
    packed = fastpack.PackedFile(source.with_suffix(".pbin") if more else source.with_name("all.pbin"))
    assert len(packed) == (100 if more else 103)


def test_ranks_reject_a_stale_index(source: Path, cli: Cli) -> None:
    words = ["pack", str(source), "--tokenizer", "bytes", "--force", "--rank", "0", "--world-size", "1"]
    assert "x.idx is not the index of" in cli(*words, code=1).err


def test_files_with_the_same_stem_do_not_share_an_index(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.json").write_text(lines(0, 5))
    (tmp_path / "a.jsonl").write_text(lines(200, 220))
    cli("index", tmp_path / "a.json")
    words = ["pack", str(tmp_path / "a.jsonl"), "--tokenizer", "bytes"]
    assert f"It is the index of {tmp_path / 'a.json'}" in cli(*words, code=1).err
    out, err = cli(*words, "--force")
    assert "20 documents" in out
    assert f"(it is that of {tmp_path / 'a.json'}): making it" in err


def test_info_does_not_use_a_stale_index(source: Path) -> None:
    facts = fastpack.inspect(source)
    assert facts["lines"] == 100
    assert any("is not the index of" in warning for warning in facts["warnings"])
    assert any("is not the index of" in warning for warning in fastpack.inspect(source.with_suffix(".idx"))["warnings"])
    assert not fastpack.verify(source).is_sound


def test_resume_reports_a_finished_file_older_than_its_source(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(lines(0, 5))
    fastpack.pack(path, tokenizer="bytes")
    assert fastpack.pack(path, tokenizer="bytes", resume=True).kept_existing
    path.write_text(lines(0, 50))
    later = path.stat().st_mtime_ns + 10**9
    os.utime(path, ns=(later, later))
    fastpack.create_raw_index(path, if_exists="overwrite")
    with pytest.warns(DataWarning, match=r"x\.pbin is complete and was kept, but .*x\.jsonl has changed since"):
        assert fastpack.pack(path, tokenizer="bytes", resume=True).kept_existing
