"""Shard discovery: which files are shards, and their order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastpack.errors import JobError
from fastpack.webdataset.preparation.discover import find_shards


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_shards_are_sorted_by_path_components(tmp_path: Path) -> None:
    make(tmp_path, "a.tar", "a-b/z.tar", "a/z.tar", "x9.tar", "x10.tar", "b/c/d.tgz")
    assert find_shards(tmp_path) == ["a/z.tar", "a-b/z.tar", "a.tar", "b/c/d.tgz", "x10.tar", "x9.tar"]


def test_other_files_are_ignored(tmp_path: Path) -> None:
    make(tmp_path, "a.tar", ".b.tar", ".nv-meta/c.tar", "d.TAR", "e.tar.gz", "f.tar.idx", "g.tar/h.tar", "tar")
    assert find_shards(tmp_path) == ["a.tar", "g.tar/h.tar"]


def test_links_are_followed_once(tmp_path: Path) -> None:
    make(tmp_path, "real/a.tar")
    (tmp_path / "real/again").symlink_to(tmp_path)
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "link.tar").symlink_to("real/a.tar")
    (tmp_path / "lost.tar").symlink_to("nowhere")
    assert find_shards(tmp_path) == ["folder/a.tar", "link.tar", "lost.tar", "real/a.tar"]


def test_exclude(tmp_path: Path) -> None:
    make(tmp_path, "train/a.tar", "val/a.tar", "val/b.tar")
    assert find_shards(tmp_path, "^val/") == ["train/a.tar"]
    assert find_shards(tmp_path, "/a") == ["val/b.tar"]
    with pytest.raises(ValueError, match="not a regular expression"):
        find_shards(tmp_path, "(")


def test_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff.tar", "wb"):
        pass
    with pytest.raises(JobError, match="not UTF-8"):
        find_shards(tmp_path)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        find_shards(tmp_path / "none")
