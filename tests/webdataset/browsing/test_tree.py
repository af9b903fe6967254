"""Samples as files in folders: names, sizes and contents for all kinds of keys."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webdatasets import prepare

from fastpack.errors import FormatError
from fastpack.webdataset.browsing.mount_tree import SampleTree


def walk(tree: SampleTree, path: str = "") -> Iterator[tuple[str, bytes]]:
    """Return (path, content) of all files; every listed name must exist."""
    for entry in tree.entries(path):
        below = f"{path}/{entry.name}" if path else entry.name
        assert tree.entry(below).n_bytes == entry.n_bytes
        if entry.is_folder:
            yield from walk(tree, below)
        else:
            content = tree.open(below)
            data = content.read(0, 1 << 20)
            content.close()
            assert len(data) == entry.n_bytes
            yield below, data


def of_tars(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in folder.rglob("*.tar"):
        with tarfile.open(path) as tar:
            found |= {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    return found


def test_all_files_of_an_energon_dataset(prepared: Path) -> None:
    files = dict(walk(SampleTree(prepared)))
    assert files == of_tars(prepared)
    assert len(files) == 76
    folders = dict(walk(SampleTree(prepared, sample_folders=True)))
    assert {path.replace("/", ".", 1): data for path, data in folders.items()} == files


NAMES = [
    "v1.0/003.seg.png",
    "v1.0/003.txt",
    "./a.jpg",
    "dot.",
    "dd..jpg",
    "d/.hid.jpg",
    "e/..jpg",
    "e/.",
    "/abs.jpg",
    "z//y.jpg",
    "tr/../y.jpg",
    "a.jpg\n",
    "%x/b.c",
    "%.txt",
    "tr/ü日.txt",
    "tr-1.txt",
    "tr.txt",
    "tr0/q.txt",
    "f/g/h/i/j.k",
]


@pytest.mark.parametrize("sample_folders", [False, True])
def test_each_name_is_listed_once(make: object, sample_folders: bool) -> None:
    folder = make({"a.tar": [(name, name.encode()) for name in NAMES]})  # type: ignore[operator]
    tree = SampleTree(folder, sample_folders=sample_folders)
    found = list(walk(tree))
    assert sorted(data for _, data in found) == sorted(name.encode() for name in NAMES)
    assert len({path for path, _ in found}) == len(NAMES)
    names = [name for path, _ in found for name in path.split("/")]
    assert not {"", ".", ".."} & set(names)
    if not sample_folders:
        assert dict(found)["v1.0/003.seg.png"] == b"v1.0/003.seg.png"
        assert dict(found)["%/abs.jpg"] == b"/abs.jpg"
        assert dict(found)["tr/%../y.jpg"] == b"tr/../y.jpg"
        assert dict(found)["%%x/b.c"] == b"%x/b.c"


@given(
    st.lists(
        st.tuples(st.text(alphabet="a/.%-", min_size=1, max_size=5), st.sampled_from(["b", "b.c", ""])),
        min_size=1,
        max_size=12,
        unique_by=lambda name: name[0],
    ),
    st.booleans(),
)
def test_every_sample_is_found_by_its_path(names: list[tuple[str, str]], sample_folders: bool) -> None:
    """Compare with the folders computed from random keys."""
    import tempfile

    from fastpack.webdataset.metadata import index_path

    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        (folder / ".nv-meta").mkdir()
        (folder / ".nv-meta" / ".info.json").write_text('{"shard_counts": {"a.tar": 1}}')
        db = sqlite3.connect(index_path(folder))
        db.execute("CREATE TABLE samples (tar_file_id, sample_key TEXT UNIQUE, sample_index, byte_offset, byte_size)")
        db.execute(
            "CREATE TABLE sample_parts (tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size)"
        )
        kept = [(key, field) for key, field in names if "." not in key.rpartition("/")[2]]
        for i, (key, field) in enumerate(kept):
            db.execute("INSERT INTO samples VALUES (0, ?, ?, 0, 0)", (key, i))
            db.execute("INSERT INTO sample_parts VALUES (0, ?, ?, 512, ?)", (i, field, 1000 + i))
        db.commit()
        db.close()
        tree = SampleTree(folder, sample_folders=sample_folders)
        sizes = set()

        def visit(path: str) -> None:
            entries = list(tree.entries(path))
            assert len({entry.name for entry in entries}) == len(entries)
            for entry in entries:
                below = f"{path}/{entry.name}" if path else entry.name
                assert tree.entry(below).n_bytes == entry.n_bytes
                if entry.n_bytes is None:
                    visit(below)
                else:
                    sizes.add(entry.n_bytes)

        visit("")
        hidden = {
            1000 + i
            for i, (key, _) in enumerate(kept)
            if any(is_hidden_by_a_file(key, other, field, sample_folders) for other, field in kept if other != key)
        }
        assert sizes | hidden == {1000 + i for i in range(len(kept))}
        tree.close()


def is_hidden_by_a_file(key: str, other: str, field: str, sample_folders: bool) -> bool:
    """Return whether a file of `other` has the name of a folder that contains `key`."""
    file = f"{other}/{field}" if sample_folders else f"{other}.{field}"
    return key.startswith(f"{file}/") or (sample_folders and key == file)


def test_missing_paths_are_errors(prepared: Path) -> None:
    tree = SampleTree(prepared)
    for path in (
        "x",
        "train_part_00_0",
        "train_part_00_0.",
        "train_part_00_0.jpg/x",
        "%train_part_00_0.jpg",
        "\udcff",
        ".",
        "%",
    ):
        with pytest.raises(FileNotFoundError):
            tree.entry(path)
        with pytest.raises(FileNotFoundError):
            tree.open(path)
    with pytest.raises(IsADirectoryError):
        tree.open("")
    with pytest.raises(NotADirectoryError):
        next(tree.entries("train_part_00_0.jpg"))


def test_the_last_of_a_repeated_field_is_shown(make: object) -> None:
    folder = make({"a.tar": [("k.txt", b"first"), ("k.json", b"{}"), ("k.txt", b"second")]})  # type: ignore[operator]
    assert dict(walk(SampleTree(folder))) == {"k.txt": b"second", "k.json": b"{}"}


def test_sparse_files_include_their_holes(make: object, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    with (source / "k.bin").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"here")
        file.truncate((1 << 20) + 5000)
    (source / "k.txt").write_text("plain")
    expected = (source / "k.bin").read_bytes()
    folder = make({"b.tar": [("z.txt", b"z")]})  # type: ignore[operator]
    tar = ["tar", "--format=gnu", "-S", "-cf", str(folder / "a.tar"), "-C", str(source), "k.bin", "k.txt"]
    done = subprocess.run(tar, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "a.tar").stat().st_size < 100_000
    shutil.rmtree(folder / ".nv-meta")
    prepare(folder, ["a.tar", "b.tar"], {"train": ["a.tar", "b.tar"]})
    tree = SampleTree(folder)
    content = tree.open("k.bin")
    assert tree.entry("k.bin").n_bytes == len(expected)
    assert content.read(0, len(expected) + 10) == expected
    assert content.read((1 << 20) - 2, 8) == b"\0\0here\0\0"
    content.close()
    assert tree.open("k.txt").read(0, 100) == b"plain"


def changed(folder: Path, statement: str) -> None:
    db = sqlite3.connect(folder / ".nv-meta" / "index.sqlite")
    db.executescript(statement)
    db.close()


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE sample_parts SET content_byte_offset = -512", "no header before it"),
        ("UPDATE sample_parts SET content_byte_offset = 1 << 40", "no header before it"),
        ("UPDATE sample_parts SET content_byte_offset = content_byte_offset + 512", "other content|damage"),
        ("UPDATE sample_parts SET content_byte_size = content_byte_size + 1", "other content"),
        ("UPDATE samples SET tar_file_id = 10; UPDATE sample_parts SET tar_file_id = 10", "shard 10"),
    ],
)
def test_an_inconsistent_index_is_an_error(prepared: Path, statement: str, expected: str) -> None:
    changed(prepared, statement)
    tree = SampleTree(prepared)
    with pytest.raises(FormatError, match=expected):
        tree.open("train_part_00_0.jpg")


def test_a_truncated_shard_is_an_error(prepared: Path) -> None:
    tree = SampleTree(prepared)
    content = tree.open("train_part_00_0.jpg")
    os.truncate(prepared / "train" / "part_00.tar", 600)
    assert len(content.read(0, 50)) == 50
    with pytest.raises(FormatError, match="at byte 600: found the end of the file"):
        content.read(0, 631)


def test_no_shard_outside_the_folder_is_opened(prepared: Path) -> None:
    info = prepared / ".nv-meta" / ".info.json"
    for name in ("../secret.tar", "/etc/passwd", "a/../../b.tar"):
        info.write_text(json.dumps({"shard_counts": {name: 1}}))
        with pytest.raises(FormatError, match="one in the dataset's folder"):
            SampleTree(prepared)


def test_an_index_without_fields(prepared: Path) -> None:
    changed(prepared, "DROP TABLE sample_parts")
    with pytest.raises(FormatError, match="prepare the dataset again, or mount it with"):
        SampleTree(prepared)


def test_listing_reads_few_keys(prepared: Path) -> None:
    """Of 20,000 keys in another folder, only the first is read."""
    with sqlite3.connect(prepared / ".nv-meta" / "index.sqlite") as db:
        rows = ((0, f"many/{i:07d}", i + 100, 0, 0) for i in range(20_000))
        db.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", rows)
    db.close()
    tree = SampleTree(prepared)
    asked: list[int] = []
    keys = tree._index.keys
    tree._index.keys = lambda first, count: asked.append(count) or keys(first, count)  # type: ignore[method-assign,func-returns-value]
    names = [entry.name for entry in tree.entries("")]
    assert "many" in names
    assert len(names) == 77
    assert sum(asked) < 100
    assert max(asked) <= 1024


def test_invalid_file_names_are_left_out(make: object) -> None:
    info = tarfile.TarInfo("ok.txt")
    folder = make({"a.tar": [(f"{'x' * 1100}.txt", b"long"), info]})  # type: ignore[operator]
    changed(folder, "UPDATE samples SET sample_key = 'o' || char(0) || 'k' WHERE sample_key = 'ok'")
    assert [entry.name for entry in SampleTree(folder).entries("")] == []


def test_a_size_in_a_pax_header_is_used(make: object) -> None:
    """Python writes sizes above 8 GiB only into a PAX record; here the record repeats a small size."""
    folder = make({"b.tar": [("z.txt", b"z")]})  # type: ignore[operator]
    info = tarfile.TarInfo("k.txt")
    info.size, info.pax_headers = 5, {"size": "5"}
    data = info.tobuf(tarfile.PAX_FORMAT)
    header = bytearray(data[-512:])
    header[124:136] = b"00000000000\0"
    header[148:156] = b"        "
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    stream = io.BytesIO()
    stream.write(data[:-512] + bytes(header) + b"there" + bytes(507) + bytes(1024))
    (folder / "a.tar").write_bytes(stream.getvalue())
    shutil.rmtree(folder / ".nv-meta")
    prepare(folder, ["a.tar", "b.tar"], {"train": ["a.tar", "b.tar"]})
    assert SampleTree(folder).open("k.txt").read(0, 10) == b"there"
