"""Write tar files of small members, prepare them, and read the rows of the index."""

from __future__ import annotations

import sqlite3
import tarfile
import warnings
from pathlib import Path

import tar_files

import fastpack
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.preparation.prepare_webdataset import PrepareResult

RATIO = (8, 1, 1)


def write_tar(path: Path, members: list[str], content: bytes = b"{}") -> Path:
    return tar_files.write_tar(path, [(name, content) for name in members], tarfile.USTAR_FORMAT)


def rows(folder: Path, table: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(nvmeta.index_path(folder))
    try:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return sorted(db.execute(f"SELECT * FROM {table}"))
    finally:
        db.close()


def keys(folder: Path) -> list[tuple[object, object]]:
    return [(row[0], row[1]) for row in rows(folder, "samples")]


def prepare(folder: Path, **options: object) -> PrepareResult:
    """Call `fastpack.prepare` with other defaults; the warnings are in the result."""
    options = {"split_ratio": RATIO, "force_overwrite": True, "num_workers": 1} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fastpack.DataWarning)
        result = fastpack.prepare(folder, **options)  # type: ignore[arg-type]
    assert isinstance(result, PrepareResult)
    return result
