"""Media metadata: the rows match Energon's and are read from headers; other rows of the index are kept."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import sys
import wave
from pathlib import Path
from unittest import mock

import pytest
import tar_files
from PIL import Image, ImageFile
from preparing import prepare

from fastpack.cli import main
from fastpack.errors import JobError, MissingExtra
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.preparation.media import MediaFilter, media_filter
from fastpack.webdataset.preparation.prepare_media import prepare_media

SPLIT = Path(__file__).parents[2] / "golden/energon/split"
EXPECTED = json.loads((SPLIT / "expected.json").read_text())
EXTENSION = media_filter(extension=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(SPLIT, tmp_path / "ds", ignore=shutil.ignore_patterns(".nv-meta", "*.json"))
    return tmp_path / "ds"


def rows(folder: Path, table: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(nvmeta.index_path(folder))
    try:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return sorted(row[:3] for row in db.execute(f"SELECT * FROM {table}"))
    finally:
        db.close()


def image(size: tuple[int, int] = (7, 5), mode: str = "RGB", kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, kind)
    return file.getvalue()


def sound() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(8000)
        out.writeframes(bytes(4 * 4000))
    return file.getvalue()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_rows_match_energon(folder: Path, num_workers: int) -> None:
    result = prepare(folder, split_ratio=(8, 1, 1), media=EXTENSION, num_workers=num_workers)
    assert rows(folder, "media_metadata") == sorted(map(tuple, EXPECTED["media_metadata"]))
    assert rows(folder, "media_filters") == [(1, "EXTENSION", "")]
    assert result.media == len(EXPECTED["media_metadata"])


def test_pixels_are_not_decoded(folder: Path) -> None:
    with mock.patch.object(ImageFile.ImageFile, "load", side_effect=AssertionError):
        assert prepare(folder, split_ratio=(8, 1, 1), media=EXTENSION).media > 0


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (EXTENSION, {"a.jpg", "a.b.PNG"}),
        (media_filter(header=True), {"a.jpg", "a.b.PNG", "a.bin"}),
        (media_filter("*.png,x*"), {"a.b.PNG"}),
        (media_filter("a.*"), {"a.jpg", "a.b.PNG", "a.bin"}),
        (media_filter("*.gif"), set()),
    ],
)
def test_filters(tmp_path: Path, wanted: MediaFilter, expected: set[str]) -> None:
    contents = {"a.jpg": image(), "a.b.PNG": image(mode="L"), "a.bin": image(kind="GIF"), "a.txt": b"", "a.webp": b"x"}
    tar_files.write_tar(tmp_path / "x.tar", contents)
    prepare(tmp_path, split_ratio=(1, 0, 0), media=wanted)
    found = {key: json.loads(str(text)) for key, kind, text in rows(tmp_path, "media_metadata") if kind == "image"}
    assert set(found) == expected
    if "a.b.PNG" in expected:
        assert found["a.b.PNG"] == {"width": 7, "height": 5, "format": "PNG", "mode": "L"}
    assert rows(tmp_path, "media_filters") == [(1, wanted.strategy, ",".join(wanted.patterns))]


@pytest.mark.parametrize(
    "options", [{}, {"glob": ""}, {"glob": "x", "header": True}, {"header": True, "extension": True}]
)
def test_exactly_one_filter_is_required(options: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="choose exactly one"):
        media_filter(**options)  # type: ignore[arg-type]


def test_media_metadata_is_added_to_a_prepared_dataset(folder: Path) -> None:
    prepare(folder, split_ratio=(8, 1, 1))
    samples = rows(folder, "samples")
    n_jpg = prepare_media(folder, media_filter("*.jpg"))
    assert n_jpg == 19
    assert prepare_media(folder, EXTENSION, num_workers=2) == len(EXPECTED["media_metadata"])
    assert rows(folder, "media_metadata") == sorted(map(tuple, EXPECTED["media_metadata"]))
    assert rows(folder, "media_filters") == [(1, "GLOB", "*.jpg"), (2, "EXTENSION", "")]
    assert rows(folder, "samples") == samples
    prepare(folder, split_ratio=(8, 1, 1), media=media_filter("*.jpg"), force_overwrite=True)
    assert len(rows(folder, "media_metadata")) == n_jpg  # prepare starts from an empty table


def test_plain_files(tmp_path: Path) -> None:
    for name in ("b.png", "a/c.jpg", ".hidden.png", ".nv-meta/d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(image())
    (tmp_path / "e.png").write_bytes(b"no image")
    assert prepare_media(tmp_path, EXTENSION) == 3
    assert [row[0] for row in rows(tmp_path, "media_metadata")] == [".hidden.png", "a/c.jpg", "b.png"]
    assert not nvmeta.is_prepared(tmp_path)
    (tmp_path / "b.png").write_bytes(image((1, 1)))
    assert prepare_media(tmp_path, media_filter("b*")) == 1
    assert len(rows(tmp_path, "media_metadata")) == 3
    assert ('"width":1,') in str(rows(tmp_path, "media_metadata")[2])
    with pytest.raises(JobError, match="no media files"):
        prepare_media(tmp_path, media_filter("*.gif"))
    with pytest.raises(NotADirectoryError):
        prepare_media(tmp_path / "b.png", EXTENSION)


def test_audio_metadata(tmp_path: Path) -> None:
    pytest.importorskip("av")
    (tmp_path / "a.wav").write_bytes(sound())
    (tmp_path / "b.bin").write_bytes(sound())
    (tmp_path / "c.mp3").write_bytes(b"no sound")
    assert prepare_media(tmp_path, media_filter(header=True)) == 2
    (first, kind, text), _ = rows(tmp_path, "media_metadata")
    assert (first, kind) == ("a.wav", "av")
    assert json.loads(str(text)) == {
        "audio_duration": 0.5,
        "audio_channels": 2,
        "audio_sample_rate": 8000,
        "audio_num_samples": 4000,
    }


@pytest.mark.parametrize(("module", "name"), [("av", "a.wav"), ("PIL", "a.png")])
def test_missing_packages_are_named(tmp_path: Path, module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # type: ignore[arg-type]
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(MissingExtra, match="pip install"):
        prepare_media(tmp_path, EXTENSION)
    assert not (tmp_path / ".nv-meta/index.sqlite").exists()


def test_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["prepare", str(folder), "--non-interactive", "--split-ratio", "8,1,1"]
    assert main([*words, "--media-metadata-by-glob", "*.jpg", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["media"] == 19
    assert main(["prepare-media", str(folder), "--media_metadata_by_extension"]) == 0
    assert capsys.readouterr().out == f"{folder}: metadata of 38 files\n"
    assert main(["prepare-media", str(folder)]) == 2
    assert main(["prepare", str(folder), "--tar-index-only", "--media-metadata-by-header"]) == 2
    assert main([*words, "--media-metadata-by-glob", ""]) == 2
    source = folder / "x.jsonl"
    source.write_text("{}\n")
    assert main(["prepare", str(source), "--media-metadata-by-header"]) == 2
