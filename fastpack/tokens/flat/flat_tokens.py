"""Flat token files, `.npy` or `.bin`, single or all of a folder, as a TokenFile. EOS tokens end documents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastpack.errors import FormatError
from fastpack.io import AnyPath, PathLike, read_head
from fastpack.tokens.flat.shard_warnings import metadata_dtype
from fastpack.tokens.flat.shards import NPY_MAGIC, check_dtypes, find_shards, scan_shards
from fastpack.tokens.token_file import DocumentEnds, SegmentedTokens
from fastpack.tokens.token_scan import eos_ends
from fastpack.tokens.token_segment import TokenSegment


class FlatTokens(SegmentedTokens):
    """Tokens in segments without document boundaries.

    With `eos_token_id`, every EOS token ends a document, and so does the end of every file.
    """

    def __init__(
        self, path: PathLike, format: str, segments: Sequence[TokenSegment], eos_token_id: int | None = None
    ) -> None:
        self.path, self.format = os.fspath(path), format
        self._segments, self._eos = segments, eos_token_id
        check_dtypes(segments)
        for segment in segments:
            if segment.dtype != segments[0].dtype:
                expected = f"{segments[0].dtype}, as {segments[0].path}"
                raise FormatError(segment.path, 0, f"the dtype {segment.dtype}", expected)
            if not segment.plain and segment.open().ndim != 1:
                raise FormatError(segment.path, 0, "an array that is not one-dimensional", "tokens [n]")

    def _has_documents(self) -> bool:
        return self._eos is not None

    def _read_document_ends(self) -> DocumentEnds:
        return eos_ends(self._segments, self._eos)


def open_npy(path: AnyPath, dtype: np.dtype[Any] | None, eos_token_id: int | None) -> FlatTokens:
    """Open a `.npy` file or the `.npy` files of a folder; FormatError if `dtype` contradicts a header."""
    segments = scan_shards(_paths(path, ".npy"))
    for segment in segments:
        if dtype is not None and segment.dtype != dtype:
            raise FormatError(segment.path, 0, f"the dtype {segment.dtype}", f"{dtype}, as given")
    return FlatTokens(path, "npy", segments, eos_token_id)


def open_bin(path: AnyPath, dtype: np.dtype[Any] | None, eos_token_id: int | None) -> FlatTokens:
    """Open a `.bin` file or the `.bin` files of a folder.

    The dtype is the given one, else that of tatm's metadata, else uint32 if the size is divisible by 4, else uint16.
    Raises FormatError if `dtype` contradicts the metadata.
    """
    paths = _paths(path, ".bin")
    if path.is_file() and read_head(path, len(NPY_MAGIC))[0] == NPY_MAGIC:
        raise FormatError(path, 0, f"{NPY_MAGIC!r}, NumPy's header", "tokens without a header; rename it to .npy")
    folder = path if path.is_dir() else path.parent
    described = metadata_dtype(folder)
    if dtype is not None and described is not None and described != dtype:
        raise FormatError(folder, 0, f"metadata with the dtype {described}", f"{dtype}, as given")
    segments = scan_shards(paths, dtype or described, raw=True)
    for segment in segments:
        n_bytes, size = segment.stamp[0] if segment.stamp else 0, segment.dtype.itemsize
        if n_bytes % size:
            raise FormatError(segment.path, 0, f"{n_bytes} bytes", f"tokens of {segment.dtype}, {size} bytes each")
    return FlatTokens(path, "bin", segments, eos_token_id)


def _paths(path: AnyPath, suffix: str) -> Sequence[AnyPath]:
    return find_shards(path, f"*{suffix}") if path.is_dir() else [path]
