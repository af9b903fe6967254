"""The first documents of token shards, which are split at the EOS token."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpack.errors import JobError
from fastpack.inspection.preview_tokens import Reader
from fastpack.io import AnyPath, PathLike, as_path
from fastpack.tokens.flat.shard_warnings import token_dtype
from fastpack.tokens.flat.shards import find_shards, scan_shards
from fastpack.tokens.flat.tatm_metadata import MetadataNotFound, TatmDataMetadata, TokenizedInfo, find_metadata
from fastpack.tokens.manifest.manifest_file import is_manifest
from fastpack.tokens.manifest.manifest_shards import open_shards
from fastpack.tokens.token_segment import TokenSegment

MAX_SEARCHED = 1 << 20  # tokens searched for the end of a document


@dataclass(frozen=True)
class FoundShards:
    """The files in order, and the origin of their dtype; metadata: path of tatm's metadata, info: its contents.

    files: paths, or segments of a manifest.
    """

    files: Sequence[AnyPath | TokenSegment]
    dtype: np.dtype[Any] | None
    metadata: AnyPath | None = None
    info: TokenizedInfo | None = None

    @property
    def raw(self) -> bool:
        """Return whether the files have no header, by their suffix."""
        first = self.files[0]
        return (
            self.dtype is not None or as_path(first.path if isinstance(first, TokenSegment) else first).suffix == ".bin"
        )

    def scan(self, number: int) -> TokenSegment:
        """Return length and dtype of a shard, from `scan_shards` or the manifest."""
        file = self.files[number]
        if isinstance(file, TokenSegment):
            return file
        (shard,) = scan_shards([file], self.dtype, self.raw)
        return shard


def find(path: PathLike, dtype: str | None = None) -> FoundShards:
    """Find the shards of a folder or manifest, or a single shard.

    The dtype of headerless files is `dtype`, else that of tatm's metadata or the manifest. Raises FileNotFoundError,
    JobError for a folder without shards, ValueError for unreadable metadata and a dtype that is not an integer,
    FormatError for a damaged manifest.
    """
    where = as_path(path)
    folder = where if where.is_dir() else where.parent
    metadata, info = _metadata(folder)
    if is_manifest(where):
        named = open_shards(where, "**/*")
        given = None if dtype is None else token_dtype(dtype)
        return FoundShards(named if given is None else named.read_as(given), given, metadata, info)
    if where.is_dir():
        paths = _files(where, info)
    else:
        paths = [where]
        if info is not None and not _is_named(where, info):
            metadata = info = None
    headerless = paths[0].suffix != ".npy"
    name = dtype or (info.dtype if info is not None and headerless else None)
    return FoundShards(paths, None if name is None else token_dtype(name), metadata, info)


def _metadata(folder: AnyPath) -> tuple[AnyPath | None, TokenizedInfo | None]:
    try:
        path = find_metadata(folder)
    except MetadataNotFound:
        return None, None
    try:
        return path, TatmDataMetadata.from_file(path).tokenized_info
    except TypeError as error:
        raise ValueError(f"{path}: not what tatm writes: {error}") from None


def _files(folder: AnyPath, info: TokenizedInfo | None) -> list[AnyPath]:
    """Return the shards in the metadata, else all .bin, else all .npy, as KempnerForge's validator."""
    suffixes = ["bin", "npy"]
    if info is not None and info.file_extension not in suffixes:
        suffixes.insert(0, info.file_extension)
    for suffix in suffixes:
        try:
            found = find_shards(folder, f"*.{suffix}")
        except FileNotFoundError:
            continue
        return [path for path in found if info is not None and _is_named(path, info)] or found
    raise JobError(f"{folder}: no .bin or .npy files in this folder, nor .nv-meta of a prepared WebDataset")


def _is_named(path: AnyPath, info: TokenizedInfo) -> bool:
    """Return whether the metadata are about this file; the folder may have been moved."""
    return path.name.startswith(os.path.basename(info.file_prefix)) and path.suffix == f".{info.file_extension}"


def preview_shards(shards: FoundShards, reader: Reader, start: int = 0) -> Iterator[dict[str, Any]]:
    """Yield documents from token `start` of all files on: {"file", "document", "start", ...}.

    document: its number in the file, None if unknown (`start` is after the file's first token, or there is no
    `reader.eos`; without it, spans of `reader.max_tokens` are yielded); start: position of its first token in the file;
    and the items of `Reader.describe`. tokens is None if the end is not among the next MAX_SEARCHED tokens; such a
    document is the last. Raises as `scan_shards` and `Reader.describe`, and ValueError for an array with more than one
    dimension, or if there is no token `start`.
    """
    skipped = start
    shown = 0
    for number in range(len(shards.files)):
        shard = shards.scan(number)
        if not shard.plain and shard.open().ndim != 1:
            raise ValueError(f"{shard.path}: an array of {shard.open().ndim} dimensions, expected one of token ids")
        if skipped and skipped >= shard.length:
            skipped -= shard.length
            continue
        for found in _documents(shard, reader, skipped):
            shown += 1
            yield {"file": shard.path, **found}
            if found["tokens"] is None:
                return
        skipped = 0
    if start and not shown:
        raise ValueError(f"there is no token {start}: the shards hold {start - skipped:,}")


def _documents(shard: TokenSegment, reader: Reader, start: int) -> Iterator[dict[str, Any]]:
    tokens = shard.open()
    number, first = 0, start
    while first < shard.length:
        rest = tokens[first:]
        n_tokens: int | None = min(reader.max_tokens, len(rest))
        if reader.eos is not None:
            n_tokens = reader.find_end(rest, MAX_SEARCHED)
        document = None if start or reader.eos is None else number
        shown = rest if n_tokens is None else rest[:n_tokens]
        yield {"document": document, "start": first, **reader.describe(shown, n_tokens, shard.path, first)}
        if n_tokens is None:
            return
        number, first = number + 1, first + n_tokens
