"""A kill while token files of several files are replaced: the old ones, the new ones, or an error; never a mixture."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import fastpack
from fastpack.cli import main
from fastpack.io import atomic, atomic_folder
from fastpack.tokens.formats import format_named

OLD = [[1, 2, 3, 0], [4, 0], [5, 6, 7, 8, 9, 0]]
NEW = [[9, 8, 0], [7, 6, 5, 0], [4, 3, 2, 1, 0]]  # as many documents and tokens, so that sizes do not tell
CHANGING = ("replace", "rename", "unlink", "mkdir", "rmdir")
FORMATS = ("megatron", "datatrove", "olmo", "litdata", "mds", "pbin")


def pack(path: Path, documents: list[list[int]]) -> Path:
    with fastpack.PackedWriter(path, 2) as writer:
        writer.append_many([token for one in documents for token in one], [len(one) for one in documents])
    return path


class Snapshots:
    """A substitute for the module os that copies a folder before and after each call that changes names in it."""

    def __init__(self, folder: Path, copies: Path) -> None:
        self._folder, self._copies, self.states = folder, copies, list[tuple[Path, str]]()

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CHANGING:
            return real

        def call(*arguments: Any, **options: Any) -> Any:
            self.keep(f"before {name} {arguments}")
            result = real(*arguments, **options)
            self.keep(f"after {name} {arguments}")
            return result

        return call

    def keep(self, what: str) -> None:
        if self._folder.exists():
            self.states.append((self._copies / str(len(self.states)), what))
            shutil.copytree(self._folder, self.states[-1][0])


def documents_of(paths: list[str], name: str) -> list[list[int]] | str:
    """Return the documents, or the text of the error of a reader."""
    found: list[list[int]] = []
    try:
        for path in paths:
            with fastpack.open_tokens(path, format=name) as tokens:
                found += [tokens.document(i).tolist() for i in range(tokens.n_documents or 0)]
    except (fastpack.FormatError, FileNotFoundError) as error:
        return str(error)
    return found


@pytest.mark.parametrize("command", ["convert", "merge", "shards"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_kill_between_renames(name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "out"
    suffix = "".join(format_named(name).suffixes[:1])
    old, new = pack(tmp_path / "old.pbin", OLD), pack(tmp_path / "new.pbin", NEW)
    shard = 9 if command == "shards" else None
    outputs = fastpack.convert(old, folder / f"a{suffix}", format=name, shard_tokens=shard).outputs
    words = {
        "merge": ["merge", str(new), str(folder / f"a{suffix}"), "--format", name],
        "convert": ["convert", str(new), "-o", str(folder / f"a{suffix}"), "--to", name],
        "shards": ["convert", str(new), "-o", str(folder / f"a{suffix}"), "--to", name, "--shard-tokens", "9"],
    }[command]
    seen = Snapshots(folder, tmp_path / "states")
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "os", seen)
        patch.setattr(atomic_folder, "os", seen)
        assert main([*words, "--force", "-q"]) == 0
    found = []
    for state, what in seen.states:
        now = [str(state / Path(path).relative_to(folder)) for path in outputs]
        documents = documents_of(now, name)
        assert documents in (OLD, NEW) or isinstance(documents, str), what
        found.append("old" if documents == OLD else "new" if documents == NEW else "error")
        if isinstance(documents, str):
            assert any(os.path.basename(path) in documents for path in now), what
        parts = [documents_of([path], name) for path in now]
        assert all(isinstance(part, str) or all(one in [*OLD, *NEW] for one in part) for part in parts), what
    assert found == sorted(found, key=["old", "error", "new"].index)
    assert found[0] == "old"
    assert documents_of(outputs, name) == NEW


def test_an_old_index_is_not_used_with_new_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the renames is what protects: without it, this mixture would be read."""
    monkeypatch.chdir(tmp_path)
    for name, documents in (("old", OLD), ("new", NEW)):
        fastpack.convert(pack(tmp_path / f"{name}.pbin", documents), tmp_path / name, format="megatron")
    shutil.copy(tmp_path / "new.bin", tmp_path / "old.bin")
    mixed = documents_of([str(tmp_path / "old")], "megatron")
    assert mixed not in (OLD, NEW)
    assert not isinstance(mixed, str)
    assert [token for one in mixed for token in one] == [token for one in NEW for token in one]
