"""`convert` into shards and back: names, limits, order and digest, existing shards and failures."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastpack
from fastpack.cli import main
from fastpack.tokens import convert_outputs
from fastpack.tokens.formats import FORMATS, format_named

WRITTEN = [row.name for row in FORMATS if row.create is not None]
CUT_ANYWHERE = [row.name for row in FORMATS if row.create is not None and not row.stores_documents]
FOLDERS = ("litdata", "mds")
DOCUMENTS = [[5, 6, 7, 0], [0], [65_000, 9, 9, 0], [*range(1, 29), 0], [12, 0], [3, 0], [4, 4, 4, 0], [8, 0]]
NAMES = {
    "pbin": "corpus_00001.pbin",
    "npy": "corpus_00001.npy",
    "bin": "corpus_00001.bin",
    "nanogpt": "corpus_00001.bin",
    "llmc": "corpus_000001.bin",
    "megatron": "corpus_00001_text_document",
    "datatrove": "00001_corpus.ds",
    "olmo": "corpus-00001.npy",
}


def write(path: Path, documents: list[list[int]] = DOCUMENTS) -> Path:
    with fastpack.PackedWriter(path, 2, if_exists="overwrite") as writer:
        writer.append_many([t for document in documents for t in document], [len(document) for document in documents])
    return path


def output(folder: Path, name: str) -> Path:
    return folder / f"corpus{''.join(format_named(name).suffixes[:1])}"


def options(name: str) -> dict[str, Any]:
    """Return what must be said of a source of a format."""
    dtype = "uint16" if name in ("bin", "nanogpt") else None
    return {"source_format": name, "dtype": dtype, "eos_token_id": 0}


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", WRITTEN)
def test_shards_and_back(tmp_path: Path, name: str) -> None:
    pytest.importorskip("xxhash")
    source = write(tmp_path / "a.pbin")
    whole = fastpack.convert(source, tmp_path / "whole.pbin")
    result = fastpack.convert(source, output(tmp_path / "out", name), format=name, shard_tokens=7, eos_token_id=0)
    assert (result.n_documents, result.n_tokens, result.digest) == (8, 48, whole.digest)
    if name in FOLDERS:
        assert result.outputs == [result.output] == [str(tmp_path / "out" / "corpus")]
        n_each = [shard.length for shard in fastpack.open_tokens(result.output).segments()]
        if name == "litdata":
            assert n_each == [5, 4, 29, 4, 6]
        else:
            assert len(list(Path(result.output).glob("shard.*.mds"))) == 5
    else:
        assert result.outputs == sorted(result.outputs)
        assert Path(result.outputs[1]).name == NAMES[name]
        n_each = [fastpack.open_tokens(path, **open_options(name)).n_tokens for path in result.outputs]
        assert n_each == ([7] * 6 + [6] if name in CUT_ANYWHERE else [5, 4, 29, 4, 6])
    for number, shards in enumerate((result.outputs, tmp_path / "out", str(tmp_path / "out" / "*corpus*"))):
        back = fastpack.convert(shards, tmp_path / f"back{number}.pbin", **options(name))
        assert Path(back.output).read_bytes() == source.read_bytes()


def open_options(name: str) -> dict[str, Any]:
    return {"format": name, "dtype": "uint16" if name in ("bin", "olmo") else None}


@pytest.mark.parametrize("name", WRITTEN)
@given(data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_documents_and_limits(tmp_path: Path, name: str, data: st.DataObject) -> None:
    folder = tmp_path / "x"
    shutil.rmtree(folder, ignore_errors=True)
    ids = st.lists(st.integers(1, 65_535), max_size=9).map(lambda document: [*document, 0])
    documents = data.draw(st.lists(ids, min_size=1, max_size=9))
    if name == "llmc":  # a file that begins with the EOS token would have its documents begin with it
        documents = [[1, 0], *documents]
    elif name in ("pbin", "megatron", "datatrove", "olmo"):
        documents = data.draw(st.lists(st.sampled_from([[], [0], *documents]), min_size=1, max_size=9))
    folder.mkdir()
    source, limit = write(folder / "a.pbin", documents), data.draw(st.integers(1, 40))
    result = fastpack.convert(source, output(folder / "out", name), format=name, shard_tokens=limit, eos_token_id=0)
    sizes = []
    for path in result.outputs:
        with fastpack.open_tokens(path, **{**open_options(name), "dtype": result.dtype}, eos_token_id=0) as tokens:
            sizes.append((tokens.n_tokens, tokens.n_documents))
    if name not in FOLDERS:
        assert all(n_tokens <= limit or n_documents == 1 for n_tokens, n_documents in sizes)
    if name == "olmo" and any(n_tokens == 0 for n_tokens, _ in sizes):
        return  # nothing in an empty file says the dtype
    if name in CUT_ANYWHERE and sum(n_tokens for n_tokens, _ in sizes) == 0:
        return
    back = fastpack.convert(
        folder / "out", folder / "back.pbin", **{**options(name), "dtype": None if name not in ("bin",) else "uint16"}
    )
    assert Path(back.output).read_bytes() == source.read_bytes()


def test_numbers_sort_by_value(tmp_path: Path) -> None:
    for number in (0, 1, 2, 9, 10, 11, 100):
        write(tmp_path / "in" / f"part-{number}.pbin", [[number, 0]])
        np.save(tmp_path / f"s{number}.npy", np.array([number, 7], np.uint16))
    (tmp_path / "in" / "notes.txt").write_text("no tokens")
    (tmp_path / "in" / ".hidden.pbin").write_text("no tokens")
    expected = [0, 1, 2, 9, 10, 11, 100]
    for source, options in (
        (tmp_path / "in", {}),
        (tmp_path / "in" / "*.pbin", {}),
        (tmp_path / "s*.npy", {"eos_token_id": 7}),
    ):
        result = fastpack.convert(source, tmp_path / "out.pbin", if_exists="overwrite", **options)
        assert [document[0] for document in fastpack.PackedFile(result.output)] == expected


def test_other_files_end_a_document(tmp_path: Path) -> None:
    def convert(*files: list[int]) -> list[list[int]]:
        shutil.rmtree(tmp_path / "in", ignore_errors=True)
        (tmp_path / "in").mkdir()
        for number, tokens in enumerate(files):
            np.save(tmp_path / "in" / f"{number}.npy", np.array(tokens, np.uint16))
        result = fastpack.convert(tmp_path / "in", tmp_path / "out.pbin", eos_token_id=0, if_exists="overwrite")
        return [document.tolist() for document in fastpack.PackedFile(result.output)]

    assert convert([1, 2], [3, 0], [4]) == [[1, 2, 3, 0], [4]]
    assert convert([1, 2], [3, 0, 5], [4]) == [[1, 2], [3, 0], [5], [4]]
    assert convert([1], [3, 0], [4]) == [[1], [3, 0], [4]]
    assert convert([1], [3]) == [[1, 3]]


def test_a_folder_of_several_formats_or_dtypes_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "in" / "a.pbin")
    np.save(tmp_path / "in" / "b.npy", np.arange(9, dtype=np.uint16))
    assert main(["convert", str(tmp_path / "in"), "-o", str(tmp_path / "out.pbin")]) == 1
    message = capsys.readouterr().err
    assert "a.pbin (pbin)" in message
    assert "b.npy (npy). Pass --from or a pattern" in message
    assert fastpack.convert(tmp_path / "in", tmp_path / "one.pbin", source_format="pbin").n_documents == 8
    np.save(tmp_path / "in" / "c.npy", np.arange(9, dtype=np.uint32))
    with pytest.raises(fastpack.FormatError, match=r"c\.npy.*uint32, expected uint16, as .*b\.npy"):
        fastpack.convert(tmp_path / "in" / "*.npy", tmp_path / "out.pbin", eos_token_id=0)
    with pytest.raises(FileNotFoundError, match="no token files match"):
        fastpack.convert(tmp_path / "in" / "*.ds", tmp_path / "out.pbin")
    assert not (tmp_path / "out.pbin").exists()


@pytest.mark.parametrize("name", [name for name in WRITTEN if name not in FOLDERS])
def test_existing_shards_are_replaced_or_kept_together(tmp_path: Path, name: str) -> None:
    source, out = write(tmp_path / "a.pbin"), output(tmp_path / "out", name)
    first = fastpack.convert(source, out, format=name, shard_tokens=4)
    before = names_in(tmp_path / "out")
    (tmp_path / "out" / "corpus_other.pbin").touch()
    with pytest.raises(FileExistsError):
        fastpack.convert(source, out, format=name, shard_tokens=20)
    kept = fastpack.convert(source, out, format=name, shard_tokens=20, if_exists="skip")
    assert (kept.written, kept.outputs) == (False, first.outputs)
    assert names_in(tmp_path / "out") == sorted([*before, "corpus_other.pbin"])
    fewer = fastpack.convert(source, out, format=name, shard_tokens=30, if_exists="overwrite")
    assert len(fewer.outputs) < len(first.outputs)
    sides = {"megatron": 2, "olmo": 2, "datatrove": 3}.get(name, 1)
    assert len(names_in(tmp_path / "out")) == len(fewer.outputs) * sides + 1


@pytest.mark.parametrize("policy", ["error", "overwrite"])
@pytest.mark.parametrize("name", WRITTEN)
def test_a_failure_leaves_what_was_there(
    tmp_path: Path, name: str, policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = write(tmp_path / "a.pbin"), output(tmp_path / "out", name)
    (tmp_path / "out").mkdir()
    if policy == "overwrite":
        fastpack.convert(source, out, format=name, shard_tokens=4)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def stop(done: int, total: int) -> None:
        if done >= total // 2:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fastpack.convert(source, out, format=name, shard_tokens=6, if_exists=policy, progress=stop)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    if name in FOLDERS:
        return
    real, calls = convert_outputs.AtomicSet.commit, []

    def fail(self: Any, names: list[str], replaced: list[str]) -> None:
        calls.append(names)
        (tmp_path / "out" / names[-2]).mkdir()  # over which no file can be moved
        try:
            real(self, names, replaced)
        finally:
            (tmp_path / "out" / names[-2]).rmdir()

    if policy == "error":
        monkeypatch.setattr(convert_outputs.AtomicSet, "commit", fail)
        with pytest.raises(OSError, match="directory"):
            fastpack.convert(source, out, format=name, shard_tokens=6)
        assert calls
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_tokenizer_is_recorded_with_every_shard(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "hello"}\n{"text": "world"}\n')
    fastpack.pack(tmp_path / "a.jsonl", tmp_path / "a.pbin", tokenizer="bytes", num_workers=1)
    result = fastpack.convert(tmp_path / "a.pbin", tmp_path / "b", format="megatron", shard_tokens=6)
    found = [fastpack.read_fingerprint(f"{path}.bin") for path in result.outputs]
    assert len(found) == 2
    assert found[0] is not None
    assert found == [fastpack.read_fingerprint(tmp_path / "a.pbin")] * 2


@pytest.mark.parametrize(
    ("text", "number"),
    [("1B", 10**9), ("1.5m", 1_500_000), ("500K", 500_000), ("1_000", 1000), (7, 7), ("2T", 2 * 10**12)],
)
def test_numbers_of_tokens(text: Any, number: int, tmp_path: Path) -> None:
    from fastpack.tokens.shard_plan import token_count

    assert token_count(text) == number


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "", "1e9", "1 B B"])
def test_wrong_numbers_of_tokens(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "a.pbin")
    assert main(["convert", str(source), "-o", str(tmp_path / "b.pbin"), f"--shard-tokens={text}"]) == 1
    assert f"--shard-tokens: found {text!r}, expected a number of tokens" in capsys.readouterr().err


def test_the_command_says_how_many_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "a.pbin")
    assert main(["convert", str(source), "-o", str(tmp_path / "b.ds"), "--shard-tokens", "20"]) == 0
    assert "b.ds: datatrove: 3 shards, 8 documents, 48 tokens of uint16" in capsys.readouterr().out
