"""The side file of the tokenizer: written by pack, carried by edits and convert, and compared where files meet."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fastpack
from fastpack.cli import main
from fastpack.errors import DataWarning
from fastpack.io import as_path
from fastpack.tokens.formats import FORMATS
from fastpack.tokens.interop_formats import FOLDER_FORMATS, output_files
from fastpack.tokens.tokenizer_fingerprint import record_fingerprint, side_path

BYTES = fastpack.TokenizerFingerprint("bytes", "", 257, 256)
OTHER = fastpack.TokenizerFingerprint("other", "0" * 64, 300, 299)
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a packed file of two documents, recorded with a tokenizer."""

    def write(name: str, fingerprint: fastpack.TokenizerFingerprint | None = BYTES) -> Path:
        path = tmp_path / name
        with fastpack.PackedWriter(path, 2) as writer:
            writer.append_many([1, 2, 256, 3, 256], [3, 2])
            writer.fingerprint = fingerprint
        return path

    return write


def test_pack_records_the_tokenizer(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "hello"}\n')
    result = fastpack.pack(source, tokenizer="bytes", num_workers=1)
    assert fastpack.read_fingerprint(result.path) == BYTES
    fields = json.loads((tmp_path / "a.pbin.fptok").read_text())
    assert fields["fastpack"] == fastpack.__version__
    assert (fields["format"], fields["size"]) == (1, os.path.getsize(result.path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.idx", "a.jsonl", "a.pbin", "a.pbin.fptok"]


def test_the_hash_does_not_depend_on_the_path(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "a b"}\n')
    found = []
    for name in ("one", "two"):
        model = tokenizers.models.WordLevel({"a": 0, "b": 1, "<e>": 2}, unk_token="a")
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.add_special_tokens(["<added>"])
        (tmp_path / name).mkdir()
        tokenizer.save(str(tmp_path / name / "tokenizer.json"))
        path = tmp_path / name / "tokenizer.json"
        packed = fastpack.pack(source, tmp_path / f"{name}.pbin", tokenizer=path, eos_token="<e>", num_workers=1)
        found.append(fastpack.read_fingerprint(packed.path))
    assert found[0] is not None
    assert found[1] is not None
    assert (found[0].tokenizer, found[0].vocab_size, found[0].eos_token_id) == ("one", 4, 2)
    assert len(found[0].sha256) == 64
    assert found[0].differences(found[1]) == []


@pytest.mark.parametrize("suffix", ["pbin", "npy"])
def test_overwriting_without_a_tokenizer_removes_the_side_file(tmp_path: Path, make: Make, suffix: str) -> None:
    path = make("a.pbin")
    assert fastpack.read_fingerprint(path) == BYTES
    with fastpack.PackedWriter(path, 2, if_exists="overwrite") as writer:
        writer.append([1])
    assert not os.path.exists(side_path(path))


def test_an_aborted_writer_keeps_the_side_file(make: Make) -> None:
    path = make("a.pbin")
    writer = fastpack.PackedWriter(path, 2, if_exists="overwrite")
    writer.append([1])
    writer.abort()
    assert fastpack.read_fingerprint(path) == BYTES


def edits(source: Path, **options: Any) -> dict[str, Callable[[Path], fastpack.EditResult]]:
    return {
        "merge": lambda out: fastpack.merge_packed_data([source], out, **options),
        "shuffle": lambda out: fastpack.shuffle_tokenized_data(source, out, seed=1, **options),
        "chunk": lambda out: fastpack.create_shuffled_dataset_chunk([source], out, 0, 1, global_seed=1, **options),
        "filter": lambda out: fastpack.filter_packed_data(source, out, fastpack.KeepRules(), **options),
    }


EDITS = ["merge", "shuffle", "chunk", "filter"]


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("fingerprint", [BYTES, None])
def test_edits_carry_the_tokenizer(tmp_path: Path, make: Make, name: str, fingerprint: Any) -> None:
    source, output = make("a.pbin", fingerprint), tmp_path / "out.pbin"
    edits(source)[name](output)
    assert fastpack.read_fingerprint(output) == fingerprint
    assert os.path.exists(side_path(output)) == (fingerprint is not None)


def test_repair_carries_the_tokenizer(tmp_path: Path, make: Make) -> None:
    path, output = make("a.pbin"), tmp_path / "repaired.pbin"
    os.truncate(path, 21)
    fastpack.repair(path, output, eos_token_id=256)
    assert fastpack.read_fingerprint(output) == BYTES
    fastpack.repair(path, in_place=True, eos_token_id=256)
    assert fastpack.read_fingerprint(path) == BYTES


WRITTEN = [row.name for row in FORMATS if row.create is not None]


def recorded_with(path: os.PathLike[str] | str, name: str) -> fastpack.TokenizerFingerprint | None:
    """Return the fingerprint of the file of tokens, or of the index of a folder."""
    return fastpack.read_fingerprint(os.path.join(path, "index.json") if name in FOLDER_FORMATS else path)


def output_of(folder: Path, name: str) -> Path:
    """Return a name that the format accepts and, if it is the prefix of Megatron, completes."""
    return folder / ("out.npy" if name == "npy" else "out")


@pytest.mark.parametrize("name", WRITTEN)
def test_pack_records_the_tokenizer_in_every_format(tmp_path: Path, name: Any) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "hello"}\n')
    output = output_of(tmp_path, name)
    result = fastpack.pack(source, output, tokenizer="bytes", format=name, num_workers=1, if_exists="overwrite")
    assert recorded_with(result.path, name) == BYTES
    assert len([path for path in tmp_path.rglob("*") if path.suffix == ".fptok"]) == 1


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("edit", EDITS)
def test_edits_carry_the_tokenizer_into_every_format(tmp_path: Path, make: Make, edit: str, name: str) -> None:
    result = edits(make("a.pbin"), format=name)[edit](output_of(tmp_path, name))
    assert recorded_with(result.path, name) == BYTES
    files = [path for path in output_files(name, as_path(result.path)) if path.name != "index.json"]
    assert result.bytes == sum(path.stat().st_size for path in files)  # without the side file
    options = {"format": name, "if_exists": "overwrite"}
    result = edits(make("b.pbin", None), **options)[edit](output_of(tmp_path, name))
    assert recorded_with(result.path, name) is None
    assert [path.name for path in tmp_path.rglob("*.fptok")] == ["a.pbin.fptok"]


@pytest.mark.parametrize("name", WRITTEN)
def test_nothing_remains_of_an_empty_output(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n')
    words = ["pack", str(tmp_path / "a.jsonl"), "-o", str(output_of(tmp_path, name)), "--tokenizer", "bytes"]
    assert main([*words, "--format", name, "-q"]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.idx", "a.jsonl"]


@pytest.mark.parametrize("name", FOLDER_FORMATS)
def test_checksums_leave_the_side_file_out(tmp_path: Path, name: str) -> None:
    pytest.importorskip("xxhash")
    (tmp_path / "a.jsonl").write_text('{"text": "hello"}\n')
    words = ["pack", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "out"), "--tokenizer", "bytes"]
    assert main([*words, "--format", name, "--write-checksums", "-q"]) == 0
    assert (tmp_path / "out" / "index.json.fptok").exists()
    assert (tmp_path / "out" / "index.json.fpsum").exists()
    assert not (tmp_path / "out" / "index.json.fptok.fpsum").exists()


@pytest.mark.parametrize("name", WRITTEN)
def test_convert_carries_the_tokenizer(tmp_path: Path, make: Make, name: str) -> None:
    source = make("a.pbin")
    plain = make("plain.pbin", None)
    assert source.read_bytes() == plain.read_bytes()
    result = fastpack.convert(source, tmp_path / "out", format=name)
    back = fastpack.convert(result.output, tmp_path / "back.pbin", source_format=name, dtype="uint16", eos_token_id=256)
    assert fastpack.read_fingerprint(back.output) == BYTES
    assert fastpack.read_fingerprint(plain) is None


@pytest.mark.parametrize("name", ["merge", "chunk", "convert"])
def test_different_tokenizers_are_refused(tmp_path: Path, make: Make, name: str) -> None:
    paths, output = [make("a.pbin"), make("b.pbin", OTHER)], tmp_path / "out.pbin"

    def combine(**options: Any) -> object:
        if name == "merge":
            return fastpack.merge_packed_data(paths, output, **options)
        if name == "convert":
            return fastpack.convert(paths, output, **options)
        return fastpack.create_shuffled_dataset_chunk(paths, output, 0, 1, global_seed=1, **options)

    expected = r"a\.pbin and .*b\.pbin have different tokenizers, bytes and other: .*257 and 300.*256 and 299"
    with pytest.raises(ValueError, match=expected):
        combine()
    assert not output.exists()
    with pytest.warns(DataWarning, match=expected):
        combine(mix_tokenizers=True)
    assert fastpack.read_fingerprint(output) is None


def test_a_source_without_a_side_file_is_combined(tmp_path: Path, make: Make) -> None:
    fastpack.merge_packed_data([make("a.pbin"), make("b.pbin", None)], tmp_path / "out.pbin")
    assert fastpack.read_fingerprint(tmp_path / "out.pbin") is None


def test_the_name_of_the_tokenizer_is_not_compared(tmp_path: Path, make: Make) -> None:
    renamed = fastpack.TokenizerFingerprint("renamed", "", 257, 256)
    fastpack.merge_packed_data([make("a.pbin"), make("b.pbin", renamed)], tmp_path / "out.pbin")
    assert fastpack.read_fingerprint(tmp_path / "out.pbin") == BYTES


@pytest.mark.parametrize("change", ["longer", "same size"])
def test_a_stale_side_file_is_ignored(make: Make, change: str) -> None:
    path = make("a.pbin")
    data = path.read_bytes()
    path.write_bytes(data + b"." if change == "longer" else data[:-2] + b"a.")
    with pytest.warns(DataWarning, match=r"a\.pbin\.fptok is ignored: it was written for"):
        assert fastpack.read_fingerprint(path) is None


VALID = {
    "format": 1,
    "tokenizer": "x",
    "sha256": "",
    "vocab_size": 3,
    "eos_token_id": 2,
    "size": 1,
    "edges_sha256": "",
}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"no JSON",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"[" * 50_000,
        b"{}" + b" " * 100_000,
        json.dumps({**VALID, "format": 2}).encode(),
        json.dumps({**VALID, "vocab_size": "3"}).encode(),
        json.dumps({**VALID, "vocab_size": True}).encode(),
        json.dumps({**VALID, "eos_token_id": -1}).encode(),
        json.dumps({**VALID, "eos_token_id": 1e300}).encode(),
        json.dumps({**VALID, "size": 1 << 70}).encode(),
        json.dumps({**VALID, "tokenizer": None}).encode(),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_an_invalid_side_file_is_ignored(make: Make, text: bytes) -> None:
    path = make("a.pbin", None)
    Path(side_path(path)).write_bytes(text)
    with pytest.warns(DataWarning, match=r"\.fptok is ignored: it"):
        assert fastpack.read_fingerprint(path) is None


def test_a_pipe_or_a_folder_is_no_side_file(make: Make) -> None:
    path = make("a.pbin", None)
    os.mkfifo(side_path(path))
    assert fastpack.read_fingerprint(path) is None
    os.unlink(side_path(path))
    os.mkdir(side_path(path))
    assert fastpack.read_fingerprint(path) is None


def test_a_link_at_the_side_file_is_replaced(tmp_path: Path, make: Make) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "a.pbin.fptok").symlink_to(victim)
    assert fastpack.read_fingerprint(make("a.pbin")) == BYTES
    assert victim.read_text() == "kept"


def test_a_link_to_a_token_file_finds_the_side_file(tmp_path: Path, make: Make) -> None:
    link = tmp_path / "folder" / "link.pbin"
    link.parent.mkdir()
    link.symlink_to(make("a.pbin"))
    assert fastpack.read_fingerprint(link) == BYTES


def test_a_side_file_that_cannot_be_written_keeps_the_token_file(tmp_path: Path, make: Make) -> None:
    (tmp_path / "a.pbin.fptok").mkdir()
    with pytest.warns(DataWarning, match="the tokenizer could not be recorded"):
        path = make("a.pbin")
    assert len(fastpack.PackedFile(path)) == 2


def test_an_empty_file_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "empty.bin"
    path.touch()
    record_fingerprint(path, BYTES)
    assert fastpack.read_fingerprint(path) == BYTES


def test_moved_with_its_side_file(tmp_path: Path, make: Make) -> None:
    path = make("a.pbin")
    shutil.move(path, tmp_path / "b.pbin")
    shutil.move(side_path(path), side_path(tmp_path / "b.pbin"))
    assert fastpack.read_fingerprint(tmp_path / "b.pbin") == BYTES


@pytest.mark.parametrize("words", [["merge", "a.pbin", "b.pbin"], ["convert", "a.pbin", "b.pbin", "-o"]])
def test_force_combines_different_tokenizers(
    words: list[str], make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make("a.pbin")
    make("b.pbin", OTHER)
    monkeypatch.chdir(tmp_path)
    assert main([*words, "out.pbin", "-q"]) == 1
    assert "different tokenizers" in (error := capsys.readouterr().err)
    assert "Pass --force to combine them anyway" in error
    assert main([*words, "out.pbin", "--if-exists", "overwrite", "-q"]) == 1
    assert not Path("out.pbin").exists()
    assert main([*words, "out.pbin", "--force", "-q"]) == 0
    assert Path("out.pbin").exists()
