"""Hostile files: no code is executed, nothing is written outside the folder, and rejecting them is cheap."""

from __future__ import annotations

import os
import pickle
import sqlite3
import struct
import subprocess
import sys
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli

from fastpack import MemoryMappedDataset, UntrustedCode, WebDataset
from fastpack.cli import main
from fastpack.documents.raw_index import read_raw_index
from fastpack.errors import FormatError
from fastpack.tokens.flat import tatm_metadata as tatm
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset import shard_index as webdataset
from fastpack.webdataset.preparation.dispatch import prepare
from fastpack.webdataset.sample_index import SampleIndex

MIB = 1 << 20


class Attack:
    """An object whose unpickling creates a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.system, (f"touch {self.canary}",)


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """Yield the path of a file that must not exist after the test."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists()


def repeated(levels: int) -> bytes:
    """Return a small pickle of a list of ten lists, each of ten lists, and so on."""
    return b"\x80\x04" + b"]\x94" + b"".join(b"]\x94(" + b"h%c" % k * 10 + b"e" for k in range(levels)) + b"."


def pickles(canary: Path) -> dict[str, bytes]:
    attack = pickle.dumps(Attack(canary), protocol=4)
    return {
        "that runs a command": attack,
        "that runs a command after rows": pickle.dumps([(0, 1), Attack(canary)], protocol=2),
        "in text that runs a command": f"cos\nsystem\n(S'touch {canary}'\ntR.".encode(),
        "of references": repeated(9),
        "of a huge text": b"\x80\x04]\x94(\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
        "of a huge frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"]\x94.",
        "of a huge integer": b"\x80\x04]\x94(\x8b" + struct.pack("<i", (1 << 31) - 1) + b"1.",
        "of a huge memo": b"\x80\x04]r" + struct.pack("<I", (1 << 32) - 1) + b".",
        "of marks": b"\x80\x04" + b"(" * 100_000 + b".",
        "of an extension": b"\x80\x02\x82\x01.",
        "of a persistent id": b"Pcanary\n.",
        "of a buffer": b"\x80\x05\x97.",
    }


@pytest.mark.parametrize("name", list(pickles(Path("x"))))
def test_hostile_pickles_are_rejected(name: str, tmp_path: Path, canary: Path) -> None:
    """As an index and as the index of a packed file, the pickle is rejected with constant memory."""
    data = pickles(canary)[name]
    (tmp_path / "a.idx").write_bytes(data)
    (tmp_path / "a.pbin").write_bytes(struct.pack("<QI", 4, 2) + bytes(4) + data)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"a\.idx"):
            read_raw_index(tmp_path / "a.idx")
        with pytest.raises(FormatError, match=r"a\.pbin"):
            len(PackedFile(tmp_path / "a.pbin").index)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_object_arrays_are_rejected(tmp_path: Path, canary: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([Attack(canary)], object), allow_pickle=True)
    with pytest.raises(ValueError, match="dtype"):
        MemoryMappedDataset(tmp_path, 1)


def members(path: Path, *names: str, **changes: Any) -> Path:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            for field, value in changes.items():
                setattr(info, field, value)
            tar.addfile(info)
    return path


def all_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_tar_names_are_only_names(tmp_path: Path) -> None:
    names = ["../../outside.txt", "/etc/outside.txt", "a/../../b.txt", "\\..\\c.txt", "d\n\x1b[31m.txt"]
    (tmp_path / "deep/ds").mkdir(parents=True)
    members(tmp_path / "deep/ds/s.tar", *names)
    before = all_files(tmp_path)
    result = prepare(tmp_path / "deep/ds", split_ratio=(1, 0, 0), sample_type="CrudeWebdataset")
    assert result.samples == len(names)
    written = {f"deep/ds/.nv-meta/{name}" for name in (*result.files, "")} | {"deep/ds/s.tar.idx"}
    assert all_files(tmp_path) - before == {name.rstrip("/") for name in written}
    assert len(list(WebDataset(tmp_path / "deep/ds"))) == len(names)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_tar_links_and_devices_are_not_samples(kind: bytes, tmp_path: Path) -> None:
    members(tmp_path / "s.tar", "a.txt", type=kind, linkname="/etc/passwd")
    with pytest.raises(FormatError, match=r"s\.tar"):
        webdataset.scan_shard(tmp_path / "s.tar")


@pytest.mark.parametrize("size", [-5, -(1 << 62), 1 << 62, (1 << 63) - 1, (1 << 63) - 512])
def test_impossible_tar_sizes_are_rejected(size: int, tmp_path: Path) -> None:
    header = bytearray(members(tmp_path / "s.tar", "a.txt").read_bytes()[:512])
    header[124:136] = (size & (1 << 96) - 1 | (0 if size < 0 else 1 << 95)).to_bytes(12, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "s.tar").write_bytes(bytes(header) + bytes(1024))
    with pytest.raises(FormatError, match=r"s\.tar: at byte"):
        webdataset.scan_shard(tmp_path / "s.tar")


def test_tars_with_too_many_members_are_rejected(tmp_path: Path) -> None:
    members(tmp_path / "s.tar", *(f"{n}.txt" for n in range(11)))
    assert webdataset.MAX_MEMBERS <= 10_000_000
    assert webdataset.scan_shard(tmp_path / "s.tar", max_members=11).n_samples == 11
    with pytest.raises(FormatError, match=r"s\.tar.* 10\b"):
        webdataset.scan_shard(tmp_path / "s.tar", max_members=10)


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)
YAML = {
    "aliases": BOMB,
    "itself": "a: &a [*a]\n",
    "depth": "a: " + "[" * 400,
    "an object": "!!python/object/apply:os.system ['touch CANARY']",
    "an object in a value": "split_parts: !!python/object/new:os.system ['touch CANARY']",
    "a name": "sample_type: !!python/name:os.system ''",
}


@pytest.mark.parametrize("text", YAML.values(), ids=YAML.keys())
def test_hostile_yaml_is_rejected_by_every_reader(text: str, tmp_path: Path, canary: Path) -> None:
    text = text.replace("CANARY", str(canary))
    (tmp_path / ".nv-meta").mkdir()
    for name in ("split.yaml", "dataset.yaml", ".info.yaml"):
        (tmp_path / ".nv-meta" / name).write_text(text)
    (tmp_path / "metadata.yaml").write_text(text)
    (tmp_path / "config.yaml").write_text(text)
    readers: list[Callable[[], Any]] = [
        lambda: nvmeta.read_split(tmp_path),
        lambda: nvmeta.read_dataset_yaml(tmp_path),
        lambda: nvmeta.read_info(tmp_path),
        lambda: nvmeta.read_yaml(tmp_path / "config.yaml"),
        lambda: tatm.load_yaml(tmp_path / "metadata.yaml"),
    ]
    for read in readers:
        with pytest.raises((FormatError, ValueError)) as caught:
            read()
        assert ".yaml" in str(caught.value)
        assert len(str(caught.value)) < 2000


def test_a_gigabyte_of_yaml_is_rejected(tmp_path: Path) -> None:
    (tmp_path / ".nv-meta").mkdir()
    for path in (tmp_path / ".nv-meta/split.yaml", tmp_path / "metadata.yaml"):
        with open(path, "wb") as file:
            file.truncate(1 << 30)  # sparse
    for read in (lambda: nvmeta.read_split(tmp_path), lambda: tatm.load_yaml(tmp_path / "metadata.yaml")):
        with pytest.raises((FormatError, ValueError), match=r"more|at most|refused|limited to"):
            read()


def test_sqlite_treats_keys_as_plain_text(tmp_path: Path) -> None:
    """Keys may contain quotes, or differ only in Unicode normalisation."""
    keys = ["a'); DROP TABLE samples; --", 'b" OR 1=1', "caf\u00e9", "cafe\u0301", "%_%", "\U0001f600"]
    members(tmp_path / "s.tar", *(f"{key}.txt" for key in keys))
    prepare(tmp_path, split_ratio=(1, 0, 0))
    with closing(sqlite3.connect(nvmeta.index_path(tmp_path))) as db:
        assert sorted(key for (key,) in db.execute("SELECT sample_key FROM samples")) == sorted(keys)
    with closing(SampleIndex(nvmeta.index_path(tmp_path))) as index:
        for number, key in enumerate(keys):
            assert index.get(key).sample_index == number


def test_keys_that_are_not_utf_8_are_rejected(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "s.tar", "w", encoding="utf-8", errors="surrogateescape") as tar:
        tar.addfile(tarfile.TarInfo("\udcff.txt"))
    with pytest.raises(FormatError, match="UTF-8"):
        prepare(tmp_path, split_ratio=(1, 0, 0))


def test_links_in_a_dataset_are_replaced_instead_of_followed(tmp_path: Path) -> None:
    (tmp_path / "ds/.nv-meta").mkdir(parents=True)
    members(tmp_path / "ds/s.tar", "a.txt")
    outside = tmp_path / "outside"
    names = [".nv-meta/index.sqlite", ".nv-meta/index.uuid", ".nv-meta/split.yaml", ".nv-meta/dataset.yaml"]
    names += [".nv-meta/.info.json", ".nv-meta/.fastpack.json", "s.tar.idx"]
    outside.write_bytes(b"precious")
    for name in names:
        (tmp_path / "ds" / name).symlink_to(outside)
    words = ["prepare", str(tmp_path / "ds"), "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset"]
    assert main([*words, "--force-overwrite", "-q"]) == 0
    assert outside.read_bytes() == b"precious"
    assert not any((tmp_path / "ds" / name).is_symlink() for name in names)
    assert sorted(os.listdir(tmp_path)) == ["ds", "outside"]


def test_links_in_place_of_partial_files_are_not_followed(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    (tmp_path / "outside").write_bytes(b"precious")
    (tmp_path / ".a.idx.partial").symlink_to(tmp_path / "outside")
    assert ".a.idx.partial: Too many levels of symbolic links" in cli("index", tmp_path / "a.jsonl", code=1).err
    assert (tmp_path / "outside").read_bytes() == b"precious"
    assert not (tmp_path / "a.idx").exists()


def test_untrusted_code_of_a_dataset_is_not_executed(tmp_path: Path, canary: Path) -> None:
    members(tmp_path / "s.tar", "a.pkl")
    prepare(tmp_path, split_ratio=(1, 0, 0), sample_type="TextSample")
    (tmp_path / ".nv-meta/sample_loader.py").write_text(f"open({str(canary)!r}, 'w')\n")
    with pytest.raises(UntrustedCode):
        WebDataset(tmp_path)[0]
    for command in (["info"], ["verify"], ["verify", "--deep"], ["preview"]):
        assert main([command[0], str(tmp_path), *command[1:]]) in (0, 1, 3)


CACHED = """
import os, sys
from fastpack.kernels import jit, lines_nb
folder = lines_nb.count_newlines._cache.cache_path
assert folder.startswith(sys.argv[1])
for mode in (0o700, 0o777, 0o1777):
    os.chmod(folder, mode)
    print(type(jit.jit(lines_nb.count_newlines.py_func)._cache).__name__)
"""


def test_the_cache_is_in_the_folder_of_the_user(tmp_path: Path) -> None:
    """A cache next to the modules would remain after the package is uninstalled."""
    pytest.importorskip("numba")
    code = (
        "import numba; from fastpack.kernels import lines_nb; import numpy as np\n"
        "assert lines_nb.count_newlines(np.frombuffer(b'a\\n', np.uint8)) == 1\n"
        "print(lines_nb.count_newlines._cache.cache_path, numba.config.CACHE_DIR)"
    )
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    for variables, folder in (({"XDG_CACHE_HOME": "x"}, "x/numba"), ({"HOME": "h"}, "h/.cache/numba")):
        paths = {name: str(tmp_path / value) for name, value in variables.items()}
        done = subprocess.run([sys.executable, "-c", code], env={**env, **paths}, capture_output=True, text=True)
        assert done.stdout.startswith(f"{tmp_path / folder}/"), done.stderr
        assert done.stdout.endswith(" \n"), "the setting of other packages changed"
        assert list((tmp_path / folder).rglob("*.nbi"))


def test_a_cache_writable_by_others_is_not_used(tmp_path: Path) -> None:
    """Numba unpickles the files in its cache."""
    pytest.importorskip("numba")
    done = subprocess.run(
        [sys.executable, "-c", CACHED, str(tmp_path)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["FunctionCache", "NullCache", "NullCache"], done.stderr
