"""Files that a path, a directory or a pattern stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastpack.documents.source_paths import InputNotFound, find_json_lines, find_sources, is_one_file

NAMES = ("b.jsonl", "a.jsonl.gz", "sub/c.ndjson", "sub/deep/d.jsonl.zst", "sub/.hidden.jsonl", ".git/e.jsonl", "x.txt")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"{}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_may_have_any_name(folder: Path) -> None:
    assert find_sources("x.txt") == ["x.txt"]
    assert find_sources(folder / "x.txt") == [str(folder / "x.txt")]


def test_a_directory_stands_for_its_jsonl_files_without_hidden_ones(folder: Path) -> None:
    assert find_sources(".") == ["./a.jsonl.gz", "./b.jsonl", "./sub/c.ndjson", "./sub/deep/d.jsonl.zst"]
    assert find_json_lines(".") == ["./b.jsonl", "./sub/c.ndjson"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.jsonl", ["b.jsonl"]),
        ("*.jsonl*", ["a.jsonl.gz", "b.jsonl"]),
        ("**/*.jsonl*", ["a.jsonl.gz", "b.jsonl", "sub/deep/d.jsonl.zst"]),
        ("[bx].*", ["b.jsonl", "x.txt"]),
    ],
)
def test_a_pattern_stands_for_its_matches(pattern: str, found: list[str], folder: Path) -> None:
    assert find_sources(pattern) == found


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(folder: Path) -> None:
    (folder / "[b].jsonl").write_bytes(b"{}\n")
    assert find_sources("[b].jsonl") == ["[b].jsonl"]


def test_sources_keep_their_order_and_duplicates_are_dropped(folder: Path) -> None:
    assert find_sources(["x.txt", "sub", "**/*.ndjson"]) == ["x.txt", "sub/c.ndjson", "sub/deep/d.jsonl.zst"]


def test_a_file_named_twice_is_an_error(folder: Path) -> None:
    (folder / "link.jsonl").symlink_to("b.jsonl")
    with pytest.raises(ValueError, match=r"link\.jsonl is named twice"):
        find_sources(["b.jsonl", "link.jsonl"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nowhere.jsonl", "nowhere.jsonl does not exist"),
        (".git/objects", "does not exist"),
        ("*.parquet", "no matching files"),
        ("sub/deep", r"no \.jsonl, \.ndjson files found"),
        ([], "no source is given"),
    ],
)
def test_nothing_found_is_an_error(given: str | list[str], message: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=message):
        find_json_lines(given)


def test_input_not_found_is_a_file_not_found_and_a_value_error(folder: Path) -> None:
    with pytest.raises(InputNotFound) as caught:
        find_sources("nowhere")
    assert isinstance(caught.value, FileNotFoundError)


def test_is_one_file(folder: Path) -> None:
    assert is_one_file("b.jsonl")
    assert is_one_file("nowhere.jsonl")  # so that its absence is what is reported
    assert not is_one_file("*.jsonl")
    assert not is_one_file("sub")
    assert not is_one_file(["b.jsonl"])
