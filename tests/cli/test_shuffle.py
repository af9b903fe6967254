"""`fastpack shuffle` and its old names."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fastpack import PackedFile, PackedWriter
from fastpack.cli import main


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    with PackedWriter(tmp_path / "a.pbin", 2) as writer:
        writer.append_many(range(50), [1] * 50)
    return tmp_path / "a.pbin"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl").write_bytes(b"".join(b'{"n": %d}\n' % n for n in range(50)))
    return tmp_path / "a.jsonl"


def order(seed: int) -> list[int]:
    numbers = list(range(50))
    random.Random(seed).shuffle(numbers)
    return numbers


@pytest.mark.parametrize("name", ["shuffle", "shuffle_tokenized_data"])
@pytest.mark.parametrize("mark", ["-", "_", None])
def test_shuffling_packed_files(packed: Path, capsys: pytest.CaptureFixture[str], name: str, mark: str | None) -> None:
    target = packed.with_name("out.pbin")
    words = [str(packed), str(target)]
    if mark is not None:
        given = ("input data path", words[0]), ("output data path", words[1]), ("batch size", "7")
        words = [word for option, value in given for word in (f"--{option.replace(' ', mark)}", value)]
    assert main(["data", name, *words, "--seed", "-3"]) == 0
    with PackedFile(target) as file:
        assert file.data.tolist() == order(-3)
    assert capsys.readouterr() == (f"{target}: 50 documents, 50 tokens, {target.stat().st_size} bytes\n", "")


@pytest.mark.parametrize("name", ["shuffle", "shuffle_jsonl_data"])
def test_shuffling_lines(lines: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    target = lines.with_name("out.jsonl")
    assert main([name, "--input_data_path", str(lines), "--output_data_path", str(target), "--seed", "8"]) == 0
    assert target.read_bytes() == b"".join(b'{"n": %d}\n' % n for n in order(8))
    assert capsys.readouterr() == (f"{target}: 50 lines, {target.stat().st_size} bytes\n", "")


def test_the_kind_of_an_unknown_suffix_is_read_from_the_file(packed: Path, lines: Path) -> None:
    for source, kind in ((packed, "pbin"), (lines, "jsonl")):
        odd = source.with_name(f"odd_{kind}.data")
        odd.write_bytes(source.read_bytes())
        for path in (source, odd):
            assert main(["shuffle", str(path), f"{path}.out", "--seed", "1"]) == 0
        assert Path(f"{odd}.out").read_bytes() == Path(f"{source}.out").read_bytes()
    json = lines.rename(lines.with_suffix(".JSON"))
    assert main(["shuffle", str(json), f"{json}.out", "--seed", "1"]) == 0


def test_a_last_line_without_newline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(b"1\n2\n3")
    assert main(["shuffle", str(source), str(tmp_path / "right"), "--seed", "1"]) == 0
    assert "a.jsonl: the last line has no newline; one was added" in capsys.readouterr().err
    assert main(["shuffle", str(source), str(tmp_path / "joined"), "--seed", "1", "--compat", "modalities-0.5"]) == 0
    assert sorted((tmp_path / "right").read_bytes().split()) == [b"1", b"2", b"3"]
    assert len((tmp_path / "joined").read_bytes().split()) == 2


def test_dry_run_and_policies(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = packed.with_name("out.pbin")
    assert main(["shuffle", str(packed), str(target), "--seed", "1", "--dry-run"]) == 0
    message = capsys.readouterr().out
    assert not target.exists()
    assert main(["shuffle", str(packed), str(target), "--seed", "1"]) == 0
    assert message == f"would write {capsys.readouterr().out}"
    assert main(["shuffle", str(packed), str(target)]) == 1
    assert "exists. Pass --force to overwrite it." in capsys.readouterr().err
    assert main(["shuffle", str(packed), str(target), "--file-existence-policy", "skip"]) == 0
    assert main(["shuffle", str(packed), str(packed), "--force"]) == 1
    assert "must be different" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [[], ["a"], ["--input-data-path", "a"], ["a", "b", "--input-data-path", "c"], ["a", "b", "--batch-size=0"]]
)
def test_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shuffle", *words]) == 2
    assert capsys.readouterr().err.startswith("fastpack: error: ")


def test_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("none", "none.pbin", "none.jsonl"):
        assert main(["shuffle", str(tmp_path / name), str(tmp_path / "out")]) == 1
        assert capsys.readouterr().err.count("\n") == 1
