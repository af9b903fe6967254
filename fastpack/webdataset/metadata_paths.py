"""Where a prepared WebDataset has its `.nv-meta`: apart from what reads that, which takes 40 ms to import."""

from __future__ import annotations

from fastpack.io import AnyPath, PathLike, as_path

FOLDER = ".nv-meta"


def meta_path(folder: PathLike, name: str = "") -> AnyPath:
    """A file of `.nv-meta`, or `.nv-meta` itself."""
    return as_path(folder) / FOLDER / name if name else as_path(folder) / FOLDER


def index_path(folder: PathLike) -> AnyPath:
    """Where the dataset's `index.sqlite` is."""
    return meta_path(folder, "index.sqlite")
