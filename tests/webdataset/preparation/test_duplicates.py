"""`fix_duplicates` copies shards with unique keys; the source is not modified."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from tar_files import write_tar

from fastpack.cli import main
from fastpack.errors import FormatError, JobError
from fastpack.io import TargetExists
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.preparation.duplicates import fix_duplicates
from fastpack.webdataset.preparation.prepare_webdataset import prepare_webdataset
from fastpack.webdataset.preparation.settings import PrepareSettings, SplitSpec
from fastpack.webdataset.sample_index import SampleIndex
from fastpack.webdataset.shard_index import scan_shard

LONG = "x" * 120 + "ä"


def write(path: Path, names: list[str], format: int = tarfile.PAX_FORMAT) -> None:
    write_tar(path, [(name, b"x" * i) for i, name in enumerate(names)], format)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    write(tmp_path / "ds/t/a.tar", ["k.txt", "k.jpg", "l.txt", "__meta__/x.json", f"{LONG}.txt", "readme"])
    write(tmp_path / "ds/b.tar", ["k.txt", "l.txt", "k.jpg", "2/k.txt", "l.jpg"], tarfile.USTAR_FORMAT)
    return tmp_path / "ds"


def keys(path: Path) -> list[str]:
    return [key.decode() for key in scan_shard(path).sample_keys]


def test_keys_of_the_copies_are_unique(shards: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in shards.rglob("*.tar")}
    result = fix_duplicates(shards, tmp_path / "new")
    assert {path: path.read_bytes() for path in shards.rglob("*") if path.is_file()} == before
    assert result.shards == {"b.tar": 5, "t/a.tar": 3}
    assert keys(tmp_path / "new/t/a.tar") == ["t/a.tar/k", "t/a.tar/l", f"t/a.tar/{LONG}"]
    assert keys(tmp_path / "new/b.tar") == ["b.tar/k", "b.tar/l", "b.tar/2/k", "b.tar/2/2/k", "b.tar/2/l"]
    with tarfile.open(shards / "t/a.tar") as old, tarfile.open(tmp_path / "new/t/a.tar") as new:
        for name in ("k.jpg", f"{LONG}.txt", "readme"):
            assert old.extractfile(name).read() == new.extractfile(f"t/a.tar/{name}").read()  # type: ignore[union-attr]
        assert "__meta__/x.json" in new.getnames()
    assert prepare_webdataset(tmp_path / "new", PrepareSettings(SplitSpec(ratio=(1, 1, 1)))).samples == 8
    assert len(SampleIndex(nvmeta.index_path(tmp_path / "new"))) == 8


def test_links_and_sparse_files(tmp_path: Path) -> None:
    (tmp_path / "ds").mkdir()
    with tarfile.open(tmp_path / "ds/a.tar", "w") as tar:
        info = tarfile.TarInfo("a.bin")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("a.link")
        link.type, link.linkname = tarfile.LNKTYPE, "a.bin"
        tar.addfile(link)
        soft = tarfile.TarInfo("a.soft")
        soft.type, soft.linkname = tarfile.SYMTYPE, "a.bin"
        tar.addfile(soft)
    fix_duplicates(tmp_path / "ds", tmp_path / "new")
    with tarfile.open(tmp_path / "new/a.tar") as tar:
        assert tar.extractfile("a.tar/a.link").read() == b"abc"  # type: ignore[union-attr]
        assert tar.getmember("a.tar/a.soft").linkname == "a.bin"
    assert keys(tmp_path / "new/a.tar") == ["a.tar/a"]


def test_existing_files_are_replaced_only_on_request(shards: Path, tmp_path: Path) -> None:
    fix_duplicates(shards, tmp_path / "new")
    with pytest.raises(TargetExists, match="exists"):
        fix_duplicates(shards, tmp_path / "new")
    assert fix_duplicates(shards, tmp_path / "new", force_overwrite=True, exclude="^b").shards == {"t/a.tar": 3}
    for target in (shards, shards / "../ds"):
        with pytest.raises(ValueError, match="would replace the shard"):
            fix_duplicates(shards, target, force_overwrite=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(JobError, match=r"no \.tar files"):
        fix_duplicates(tmp_path / "empty", tmp_path / "new")


def test_a_damaged_shard_is_not_copied(shards: Path, tmp_path: Path) -> None:
    os.truncate(shards / "t/a.tar", 700)
    with pytest.raises(FormatError, match=r"t/a\.tar"):
        fix_duplicates(shards, tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").rglob("*.tar")] == ["b.tar"]


def test_command_line(shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", str(shards), "--non-interactive", "--split-ratio", "1,1,1"]) == 1
    assert "2 sample keys occur more than once" in capsys.readouterr().err
    assert main(["fix-duplicates", str(shards), str(tmp_path / "new"), "--dry-run"]) == 0
    planned = capsys.readouterr().out
    assert not (tmp_path / "new").exists()
    assert main(["fix-duplicates", str(shards), str(tmp_path / "new")]) == 0
    n_bytes = sum(path.stat().st_size for path in (tmp_path / "new").rglob("*.tar"))
    assert planned == f"would write {tmp_path / 'new'}: 8 samples in 2 shards, {n_bytes:,} bytes\n"
    assert capsys.readouterr().out == f"{tmp_path / 'new'}: 8 samples in 2 shards\n"
    assert main(["fix_duplicates", str(shards), str(tmp_path / "new")]) == 1
    assert "--force-overwrite" in capsys.readouterr().err
