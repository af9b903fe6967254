"""`write_manifest`: what a folder's files of tokens hold, written into one file that datasets open instead of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.display import Result, facts
from fastpack.errors import FormatError
from fastpack.io import (
    AnyPath,
    ExistencePolicy,
    PathLike,
    Progress,
    absolute,
    as_path,
    is_remote,
    may_write,
)
from fastpack.io.checksums import load_hash
from fastpack.tokens.flat.shard_warnings import doubtful_dtype, named_dtype, stray_bytes, zero_tail
from fastpack.tokens.flat.shards import find_shards, scan_shards
from fastpack.tokens.manifest import manifest_file as manifest
from fastpack.tokens.pbin.packed_file import open_packed_segment
from fastpack.tokens.token_segment import TokenSegment

SUFFIXES = ((".bin", ".npy"), (".pbin",))  # packed files where there are no flat ones
THREADS, REMOTE_THREADS = 4, 16
_AT_ONCE = 64  # shards a task: handing out a task takes as long as looking at one
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, repr=False)
class ManifestResult(Result):
    """What `write_manifest` wrote, or found there and kept: `path`, and what it says of all shards together.

    shards, tokens, bytes (of the shards); documents (None: not counted); dtypes: their names; checksums: whether each
    shard has one; manifest_bytes; warnings: sentences about shards that are probably not what they seem.
    """

    _shown = facts("path", "shards", "tokens", "documents", "bytes", "kept_existing", "warnings")

    path: str
    shards: int
    tokens: int
    documents: int | None
    bytes: int
    dtypes: list[str]
    checksums: bool
    manifest_bytes: int
    kept_existing: bool = False
    warnings: list[str] = field(default_factory=list)


class _Wanted(NamedTuple):
    """How closely each shard is looked at."""

    base: str
    dtype: np.dtype[Any] | None
    eos: int | None
    new_hash: Any


def write_manifest(
    folder: PathLike,
    output: PathLike | None = None,
    *,
    file_pattern: str | None = None,
    dtype: str | None = None,
    eos_token_id: int | None = None,
    checksums: bool = False,
    num_threads: int | None = None,
    file_existence_policy: ExistencePolicy = "error",
    progress: Progress | None = None,
) -> ManifestResult:
    """Write the manifest of a folder's shards, from which `MemoryMappedDataset` opens without looking at them.

    And of packed files, from which `PackedMemMapDatasetContinuous` does.

    output: default `manifest.fpm` in the folder; it has to lie in the folder, or one above it, since it names shards by
    their way from there. file_pattern: which files (`**/*.npy`: of folders below as well; default: all `.npy` and
    `.bin` of the folder itself, else all `.pbin`). dtype: of `.bin` shards, as `MemoryMappedDataset` has it.
    eos_token_id: count the documents of each flat shard, by their ends (those of packed files are known by their
    indexes); checksums: have the xxh3_128 of each in it (extra `checksum`), which `verify` compares: both read all
    tokens. num_threads: that look at shards (default: 4, and 16 for a store). progress(shards done, of all). What is
    written does not depend on num_threads.

    Raises FileNotFoundError (no shard), ValueError and FormatError as `MemoryMappedDataset`, TargetExists, JobError.
    """
    output = as_path(folder) / manifest.DEFAULT_NAME if output is None else as_path(output)
    if not os.fspath(output).endswith(manifest.SUFFIX):
        raise ValueError(f"{output}: a manifest's name has to end in {manifest.SUFFIX}")
    if not may_write(output, file_existence_policy):
        return _summary(manifest.Manifest(output), kept=True)
    paths = _find(folder, file_pattern)
    base = _base(output, folder)
    named = None if dtype is None else named_dtype(dtype, folder)
    if named is not None and not any(path.suffix == ".bin" for path in paths):
        raise ValueError(f"dtype={named} is for .bin shards: {paths[0]} says its dtype itself")
    wanted = _Wanted(base, named, eos_token_id, load_hash() if checksums else None)
    threads = num_threads or (REMOTE_THREADS if is_remote(folder) else THREADS)
    entries, raw = _look_at_all(paths, wanted, threads, progress)
    warnings, flags = _doubts(raw, named is not None)
    flags |= {"has_checksums"} if checksums else set()
    manifest.write(output, entries, flags=flags, policy=file_existence_policy)
    return _summary(manifest.Manifest(output), warnings=warnings)


def _find(folder: PathLike, file_pattern: str | None) -> list[AnyPath]:
    if file_pattern is not None:
        found = find_shards(folder, file_pattern)
        return [path for path in found if path.suffix != manifest.SUFFIX]
    there = find_shards(folder, "*")
    for suffixes in SUFFIXES:
        if paths := [path for path in there if path.suffix in suffixes]:
            return paths
    raise FileNotFoundError(f"No files matching '*.npy', '*.bin' or '*.pbin' in {os.fspath(folder)}")


def _base(output: AnyPath, folder: PathLike) -> str:
    """The folder of the manifest, with a slash behind; ValueError where the shards do not lie in it."""
    base, inside = absolute(output.parent).rstrip("/") + "/", absolute(folder).rstrip("/") + "/"
    if not inside.startswith(base):
        raise ValueError(f"{output} names shards by their way from its own folder, and {folder} does not lie in that")
    return base


def _look_at_all(
    paths: Sequence[AnyPath], wanted: _Wanted, threads: int, progress: Progress | None
) -> tuple[list[manifest.Entry], list[TokenSegment]]:
    """What is to be said of each file, and those that are headerless."""
    entries, raw = [], []
    with ThreadPoolExecutor(threads, "fastpack-manifest") as pool:
        at_once = 1 if wanted.eos is not None or wanted.new_hash is not None else _AT_ONCE
        parts = [paths[first : first + at_once] for first in range(0, len(paths), at_once)]
        tasks = [pool.submit(_look_at_some, part, wanted) for part in parts]
        try:
            for task in tasks:
                for shard, entry in task.result():
                    entries.append(entry)
                    if entry.kind & manifest.RAW:
                        raw.append(shard)
                if progress is not None:
                    progress(len(entries), len(paths))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return entries, raw


def _look_at_some(paths: Sequence[AnyPath], wanted: _Wanted) -> list[tuple[TokenSegment, manifest.Entry]]:
    return [_look_at(path, wanted) for path in paths]


def _look_at(path: AnyPath, wanted: _Wanted) -> tuple[TokenSegment, manifest.Entry]:
    raw, packed = path.suffix == ".bin", None
    if path.suffix == ".pbin":
        shard, packed = open_packed_segment(path)
        wanted = wanted._replace(eos=None)  # its index knows the documents
    else:
        (shard,) = scan_shards([path], wanted.dtype if raw else None, raw=raw)
    assert shard.stamp is not None
    size, time_ns, _ = shard.stamp
    assert time_ns is not None
    manifest.dtype_code(shard.dtype, path)
    documents, checksum = manifest.UNKNOWN, bytes(16)
    if wanted.eos is not None or wanted.new_hash is not None:
        documents, checksum = _read(shard, size, wanted)
        if shard.version is None:
            shard.check_unchanged()
    entry = manifest.Entry(
        absolute(path).removeprefix(wanted.base),
        size,
        time_ns,
        shard.offset,
        shard.length,
        shard.length if shard.plain else int(shard.open().size),
        shard.dtype,
        manifest.PLAIN * shard.plain | manifest.RAW * raw,
        documents if packed is None else len(packed),
        checksum,
    )
    return shard, entry


def _read(shard: TokenSegment, size: int, wanted: _Wanted) -> tuple[int, bytes]:
    """Documents that end in a shard, and its checksum, as far as they are wanted: by one reading of the file."""
    digest = None if wanted.new_hash is None else wanted.new_hash()
    file, buffer, documents = shard.open_reader(), np.empty(_READ_BYTES, np.uint8), 0
    counts = wanted.eos is not None and shard.plain and shard.dtype.kind in "ui"
    end = shard.offset + shard.length * shard.dtype.itemsize if shard.plain else 0
    # Cut so that no token lies in two pieces.
    parts = ((0, shard.offset), (shard.offset, end), (end, size))
    cuts = [*(cut for start, stop in parts for cut in range(start, stop, _READ_BYTES)), size]
    for first, last in pairwise(cuts):
        piece = _filled(file, buffer, first, last, size)
        if digest is not None:
            digest.update(piece.data)
        if counts and shard.offset <= first < end:
            documents += _n_ends(piece.view(shard.dtype), wanted.eos)
    if wanted.eos is not None and not counts:
        documents = _n_ends(np.asarray(shard.open()).reshape(-1), wanted.eos)
    return (manifest.UNKNOWN if wanted.eos is None else documents), bytes(16) if digest is None else digest.digest()


def _filled(file: Any, buffer: npt.NDArray[np.uint8], first: int, last: int, size: int) -> npt.NDArray[np.uint8]:
    piece = buffer[: last - first]
    done = file.read_into(piece, first)
    if done < len(piece):
        raise FormatError(file.path, first + done, "the end of the file", f"{size} bytes, as when it was opened")
    return piece


def _n_ends(tokens: npt.NDArray[Any], eos: int | None) -> int:
    kind, size = tokens.dtype.kind, tokens.dtype.itemsize
    if tokens.dtype.isnative and tokens.flags.aligned and kind in "ui" and (size, kind) != (8, "u"):
        return int(kernels.scan_tokens(tokens, -1 if eos is None else eos)[2])
    return int(np.count_nonzero(tokens == eos))


def _doubts(raw: Sequence[TokenSegment], dtype_is_given: bool) -> tuple[list[str], set[str]]:
    """Sentences about headerless shards, and what the manifest remembers of them."""
    if not raw:
        return [], set()
    doubt, tail = "" if dtype_is_given else doubtful_dtype(raw), zero_tail(raw)
    found = {"dtype_is_given": dtype_is_given, "dtype_is_doubtful": bool(doubt), "has_zero_tail": bool(tail)}
    texts = [text for text in (stray_bytes(raw), doubt, tail) if text]
    return texts, {name for name, holds in found.items() if holds}


def _summary(written: manifest.Manifest, *, kept: bool = False, warnings: list[str] | None = None) -> ManifestResult:
    known = bool((written.documents != manifest.UNKNOWN).all())
    return ManifestResult(
        written.path,
        written.n_shards,
        int(written.cumulative[-1]),
        int(written.documents.sum()) if known else None,
        int(written.sizes.sum()),
        sorted({manifest.DTYPES[code].name for code in set(written.dtypes.tolist())}),
        written.has_checksums,
        written.n_bytes,
        kept,
        warnings or [],
    )
