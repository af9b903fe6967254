"""Checksum files: writing, comparing, and rejecting damaged ones."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack import verify, write_checksums
from fastpack.cli import main
from fastpack.errors import FormatError, MissingExtra
from fastpack.io import checksums as module
from fastpack.io.checksums import are_current, compute_checksums, read_checksums


def packed_file(path: Path, tokens: int = 4) -> Path:
    with fastpack.PackedWriter(path, 1) as writer:
        writer.append([1] * tokens)
    return path


@given(st.binary(max_size=300), st.integers(1, 50), st.integers(1, 50))
def test_block_hashes(tmp_path_factory: pytest.TempPathFactory, content: bytes, block: int, read: int) -> None:
    path = tmp_path_factory.mktemp("sums") / "a"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_READ_BYTES", read)
        sums = compute_checksums(path, block)
    assert sums.blocks == [xxhash.xxh3_128_hexdigest(content[i : i + block]) for i in range(0, len(content), block)]
    assert (sums.size, sums.mtime_ns) == (len(content), path.stat().st_mtime_ns)


def test_the_checksum_file_has_the_documented_format(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")
    assert write_checksums(tmp_path / "a.bin") == tmp_path / "a.bin.fpsum"
    assert json.loads((tmp_path / "a.bin.fpsum").read_text()) == {
        "format": 1,
        "algorithm": "xxh3_128",
        "block_bytes": 256 << 10,
        "size": 3,
        "mtime_ns": (tmp_path / "a.bin").stat().st_mtime_ns,
        "blocks": ["06b05ab6733a618578af5f94892f3950"],
    }
    assert read_checksums(tmp_path / "a.bin") == compute_checksums(tmp_path / "a.bin")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        "{}",
        '{"format": 2, "algorithm": "xxh3_128"}',
        '{"format": 1, "algorithm": "xxh3_128", "size": 3, "mtime_ns": 0, "block_bytes": 0, "blocks": []}',
        '{"format": 1, "algorithm": "xxh3_128", "size": 3, "mtime_ns": 0, "block_bytes": 8, "blocks": []}',
        '{"format": 1, "algorithm": "xxh3_128", "size": -1, "mtime_ns": 0, "block_bytes": 8, "blocks": []}',
        '{"format": 1, "algorithm": "xxh3_128", "size": 3, "mtime_ns": 0, "block_bytes": 8, "blocks": [1]}',
        '{"format": 1, "algorithm": "xxh3_128", "size": 3, "mtime_ns": 0, "block_bytes": 8, "blocks": "a"}',
    ],
)
def test_invalid_checksum_files(tmp_path: Path, text: str) -> None:
    path = packed_file(tmp_path / "a.pbin")
    (tmp_path / "a.pbin.fpsum").write_text(text)
    with pytest.raises(FormatError, match=r"a\.pbin\.fpsum"):
        read_checksums(path)
    assert verify(path).n_errors == 1


def test_verify_compares_checksums(tmp_path: Path) -> None:
    path = packed_file(tmp_path / "a.pbin", 100)
    write_checksums(path, block_bytes=32)
    sums = read_checksums(path)
    report = verify(path)
    assert report.findings == []
    assert report.checked["blocks_hashed"] == len(sums.blocks) == 5
    damaged = bytearray(path.read_bytes())
    damaged[70] ^= 1  # another valid token, which only the checksum detects
    path.write_bytes(damaged)
    os.utime(path, ns=(0, sums.mtime_ns))
    (finding,) = verify(path).findings
    assert (finding.severity, finding.offset) == ("error", 64)
    assert finding.found == "1 of 5 blocks of 32 bytes with other content"
    os.utime(path)
    assert "written to, or copied, since" in verify(path).findings[0].found
    path.write_bytes(damaged[:-1])
    assert verify(path).findings[-1].found == f"a file of {sums.size - 1} bytes"


def test_a_writer_removes_the_checksums_of_the_old_file(tmp_path: Path) -> None:
    path = packed_file(tmp_path / "a.pbin")
    write_checksums(path)
    with fastpack.PackedWriter(path, 1, if_exists="overwrite") as writer:
        writer.append([2, 2])
        assert (tmp_path / "a.pbin.fpsum").exists()
    assert verify(path).findings == []
    assert not (tmp_path / "a.pbin.fpsum").exists()


def test_checksums_of_a_folder(tmp_path: Path) -> None:
    packed_file(tmp_path / "a.pbin")
    (tmp_path / "b.jsonl").write_text("1\n")
    fastpack.create_raw_index(tmp_path / "b.jsonl")
    assert verify(tmp_path, write_checksums=True).checked["checksums_written"] == 3
    assert verify(tmp_path).checked["blocks_hashed"] == 3
    assert verify(tmp_path / "b.jsonl").checked["blocks_hashed"] == 2
    assert verify(tmp_path, write_checksums=True).checked["checksums_written"] == 3  # none for checksum files
    (tmp_path / "a.pbin").unlink()
    assert [finding.found for finding in verify(tmp_path).findings] == ["no file"]


def test_no_checksums_are_written_for_damaged_files(tmp_path: Path) -> None:
    path = packed_file(tmp_path / "a.pbin")
    path.write_bytes(path.read_bytes()[:-1])
    assert not verify(path, write_checksums=True).is_sound
    assert os.listdir(tmp_path) == ["a.pbin"]


def test_without_the_xxhash_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = packed_file(tmp_path / "a.pbin")
    write_checksums(path)
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(MissingExtra, match=r"fastpack-llm\[checksum\]"):
        write_checksums(path)
    (finding,) = verify(path).findings
    assert (finding.severity, "fastpack-llm[checksum]" in finding.found) == ("warning", True)
    assert main(["merge", str(path), str(tmp_path / "b.pbin"), "--write-checksums"]) == 1
    assert not (tmp_path / "b.pbin").exists()
    assert capsys.readouterr().err.count("\n") == 1


def test_commands_write_checksums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = tmp_path / "a.jsonl"
    raw.write_text('{"text": "one"}\n{"text": "two"}\n')
    paths = {name: str(tmp_path / f"{name}.pbin") for name in ("packed", "merged", "shuffled")}
    assert main(["index", str(raw), "--write-checksums"]) == 0
    tokenizer = ["--tokenizer", "bytes", "--eod-token", "<|endoftext|>"]
    assert main(["pack", str(raw), *tokenizer, "-o", paths["packed"], "--write_checksums"]) == 0
    assert main(["merge", paths["packed"], paths["merged"], "--write-checksums"]) == 0
    shuffle = ["--input_data_path", paths["merged"], "--output_data_path", paths["shuffled"]]
    assert main(["shuffle", *shuffle, "--seed", "1", "--write-checksums"]) == 0
    written = {path.name for path in tmp_path.glob("*.fpsum")}
    assert written == {"a.idx.fpsum", "packed.pbin.fpsum", "merged.pbin.fpsum", "shuffled.pbin.fpsum"}
    assert main(["verify", str(tmp_path), "-q"]) == 0
    assert main(["verify", str(raw), "--write-checksums", "-q"]) == 0
    assert (tmp_path / "a.jsonl.fpsum").is_file()
    damaged = bytearray(Path(paths["packed"]).read_bytes())
    Path(paths["packed"]).write_bytes(damaged[:-1])
    repaired = [paths["packed"], "-o", str(tmp_path / "repaired.pbin"), "--eos-token-id", "256"]
    assert main(["repair", *repaired, "--write-checksums", "-q"]) == 0
    assert (tmp_path / "repaired.pbin.fpsum").is_file()


def sums(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)).removesuffix(".fpsum") for path in folder.rglob("*.fpsum")}


def test_prepare_writes_checksums(tmp_path: Path) -> None:
    folder = tmp_path / "ds"
    folder.mkdir()
    for shard in "ab":
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            tar.addfile(tarfile.TarInfo(f"{shard}.txt"))
    prepare = ["prepare", str(folder), "--split-ratio", "1,0,0", "--force-overwrite", "-q", "--non-interactive"]
    assert main([*prepare, "--sample-type", "CrudeWebdataset", "--write-checksums"]) == 0
    meta = ("index.sqlite", "index.uuid", ".info.json", ".fastpack.json", "split.yaml", "dataset.yaml")
    written = {*(f".nv-meta/{name}" for name in meta), "a.tar.idx", "b.tar.idx"}
    assert sums(folder) == written
    report = verify(folder)
    assert report.is_sound
    assert report.checked["blocks_hashed"] == len(written)
    before = {name: (folder / f"{name}.fpsum").stat().st_ino for name in ("a.tar.idx", ".nv-meta/index.sqlite")}
    (folder / "b.tar").write_bytes((folder / "b.tar").read_bytes() + bytes(10240))
    assert main([*prepare, "--write-checksums"]) == 0
    after = {name: (folder / f"{name}.fpsum").stat().st_ino for name in before}
    assert after["a.tar.idx"] == before["a.tar.idx"]  # the file was not rewritten, so its old checksums are kept
    assert verify(folder).is_sound
    os.utime(folder / "b.tar.idx")
    assert main([*prepare, "--write-checksums", "--walk-all"]) == 0
    assert are_current(folder / "b.tar.idx")
    assert main(prepare) == 0  # nothing has changed: files that it always rewrites get no checksums
    assert sums(folder) == written - {".nv-meta/.info.json", ".nv-meta/.fastpack.json", ".nv-meta/split.yaml"}


def test_other_dataset_writers_write_checksums(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for _ in range(2):
            tar.addfile(tarfile.TarInfo("a.txt"))
    fix = ["fix-duplicates", str(tmp_path), str(tmp_path / "new"), "-q", "--write-checksums"]
    assert main(fix) == 0
    assert sums(tmp_path / "new") == {"a.tar"}
    (tmp_path / "x.jsonl").write_text("{}\n")
    assert main(["prepare", str(tmp_path / "x.jsonl"), "-q", "--write-checksums"]) == 0
    assert sums(tmp_path) == {"new/a.tar", "x.jsonl.idx"}
    assert (
        main(["prepare", str(tmp_path / "new"), "--split-ratio", "1,0,0", "-q", "--dry-run", "--write-checksums"]) == 0
    )
    assert sums(tmp_path) == {"new/a.tar", "x.jsonl.idx"}
