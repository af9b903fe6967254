"""`fastpack chunk` and its old names."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastpack import PackedFile, PackedWriter
from fastpack.cli import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two packed files and two JSONL files of ten documents, and a list of them."""
    for number in range(2):
        with PackedWriter(tmp_path / f"{number}.pbin", 2) as writer:
            writer.append_many(range(10 * number, 10 * number + 10), [1] * 10)
        (tmp_path / f"{number}.jsonl").write_bytes(b"".join(b"%d\n" % (10 * number + i) for i in range(10)))
    (tmp_path / "list.txt").write_text("0.txt\n1\n")
    return tmp_path


def numbers(path: Path) -> list[int]:
    if path.suffix == ".jsonl":
        return [int(line) for line in path.read_bytes().split()]
    with PackedFile(path) as file:
        return [int(token) for token in file.data]


@pytest.mark.parametrize("mark", ["-", "_"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("create_shuffled_dataset_chunk", "pbin"),
        ("create_shuffled_jsonl_chunk", "jsonl"),
        ("chunk", "pbin"),
        ("chunk", "jsonl"),
    ],
)
def test_sources_from_a_list(folder: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str, mark: str) -> None:
    target = folder / f"out.{kind}"
    options = {
        "input file list path": folder / "list.txt",
        "input data root path": folder,
        "output chunk file path": target,
        "chunk id": 1,
        "num chunks": 3,
        "global seed": 4,
    }
    words = [word for option, value in options.items() for word in (f"--{option.replace(' ', mark)}", str(value))]
    assert main(["data", name, *words]) == 0
    assert sorted(numbers(target)) == [4, 5, 6, 14, 15, 16]
    assert f"{target}: 6 " in (out := capsys.readouterr().out)
    assert out.endswith("bytes from 2 files\n")
    verb = ["chunk", str(folder / f"0.{kind}"), str(folder / f"1.{kind}"), "--chunk-id=1", "--num-chunks=3"]
    assert main([*verb, "--seed=4", "-o", str(folder / "again")]) == 0
    assert (folder / "again").read_bytes() == target.read_bytes()


def test_dry_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["chunk", str(folder / "0.pbin"), "-o", str(folder / "out"), "--chunk-id=0", "--num-chunks=2", "--seed=1"]
    assert main([*words, "--dry-run"]) == 0
    message = capsys.readouterr().out
    assert not (folder / "out").exists()
    assert main(words) == 0
    assert message == f"would write {capsys.readouterr().out}"


def test_failures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["chunk", str(folder / "0.pbin"), "-o", str(folder / "out")]
    assert main([*words, "--chunk-id=11", "--num-chunks=12"]) == 1
    assert "Chunk 11 has no samples" in capsys.readouterr().err
    assert main([*words, "--chunk-id=2", "--num-chunks=2"]) == 2
    assert "there is no such chunk" in capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--input-file-list-path", "list"],
        ["a.pbin", "--input-data-root-path", "."],
        ["a.pbin", "--input-file-list-path", "list", "--input-data-root-path", "."],
    ],
)
def test_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chunk", *words, "-o", "out", "--chunk-id=0", "--num-chunks=1"]) == 2
    assert "pass either SRC..." in capsys.readouterr().err


def test_required_options() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["chunk", "a.pbin", "-o", "out"])
    assert caught.value.code == 2
