"""Writes manifests, which datasets open instead of scanning every file of a folder."""

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
from fastpack.argument_aliases import accept_aliases
from fastpack.display import Result, facts
from fastpack.errors import FormatError, JobError
from fastpack.io import (
    AnyPath,
    ExistencePolicy,
    PathLike,
    Progress,
    absolute,
    as_path,
    is_remote,
    may_write,
    names_in,
)
from fastpack.io.checksum_blocks import load_hash
from fastpack.tokens.common_fingerprint import first_of_files
from fastpack.tokens.flat.shard_warnings import doubtful_dtype, named_dtype, stray_bytes, zero_tail
from fastpack.tokens.flat.shards import find_shards, scan_shards
from fastpack.tokens.interop_formats import INTEROP_FORMATS
from fastpack.tokens.manifest import manifest_file as manifest
from fastpack.tokens.pbin.packed_file import open_packed_segment
from fastpack.tokens.token_file import TokenFormat
from fastpack.tokens.token_segment import TokenSegment

SUFFIXES = ((".bin", ".npy"), (".pbin",))  # packed files only if there are no flat ones
TOKEN_SUFFIXES = {"megatron": ".bin", "datatrove": ".ds", "olmo": ".npy", "llmc": ".bin"}  # formats of one file each
THREADS, REMOTE_THREADS = 4, 16
_SHARDS_PER_TASK = 64  # starting a task takes as long as scanning a shard
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, repr=False)
class ManifestResult(Result):
    """What `write_manifest` wrote, or the existing manifest that was kept.

    Attributes
    ----------
    path
        The manifest.
    shards, tokens, bytes
        Totals of the shards.
    documents
        Number of documents; None if they were not counted.
    dtypes
        Names of the dtypes.
    checksums
        Whether the manifest contains a checksum of each shard.
    manifest_bytes
        Size of the manifest.
    kept_existing
        Whether the manifest existed and was kept.
    warnings
        Sentences about shards that are probably not what they seem.

    Examples
    --------
    >>> import tempfile, numpy, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> numpy.save(f"{folder.name}/0.npy", numpy.array([1, 2, 0], numpy.uint16))
    >>> result = fastpack.write_manifest(folder.name)
    >>> result.shards, result.tokens, result.bytes, result.dtypes
    (1, 3, 134, ['uint16'])
    >>> result.documents is None
    True
    >>> folder.cleanup()
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


class _ScanOptions(NamedTuple):
    """How shards are scanned."""

    base: str
    dtype: np.dtype[Any] | None
    eos: int | None
    new_hash: Any
    row: TokenFormat | None


@accept_aliases(file_existence_policy="if_exists")
def write_manifest(
    folder: PathLike,
    output: PathLike | None = None,
    *,
    file_pattern: str | None = None,
    dtype: str | None = None,
    eos_token_id: int | None = None,
    checksums: bool = False,
    num_threads: int | None = None,
    if_exists: ExistencePolicy = "error",
    progress: Progress | None = None,
) -> ManifestResult:
    """Write the manifest of a folder of shards.

    Datasets (`MemoryMappedDataset`, `PackedMemMapDatasetContinuous`) open a manifest without scanning the shards.

    Parameters
    ----------
    folder
        The folder of the shards.
    output
        The manifest; by default `manifest.fpm` in the folder. It must be in the folder or in one above, because it
        contains the paths of the shards relative to its own folder.
    file_pattern
        The shards, such as `**/*.npy` for all subfolders. By default all `.npy` and `.bin` files of the folder itself,
        else all `.pbin` files; or the files of the first of the formats `megatron`, `datatrove`, `olmo` and `llmc` that
        is found.
    dtype
        The dtype of `.bin` shards, as in `MemoryMappedDataset`, and of files of `olmo`.
    eos_token_id
        Count the documents of flat shards by this token, which reads all tokens. The documents of files with an index
        are known from it.
    checksums
        Store the xxh3_128 of each shard, which `verify` compares (extra `checksum`). Reads all tokens.
    num_threads
        Number of threads that scan shards; by default 4, and 16 for a store. The manifest does not depend on it.
    if_exists
        What to do if the manifest exists: "error", "skip" or "overwrite".
    progress
        Called with (shards done, all shards).

    Returns
    -------
    ManifestResult
        The path of the manifest, totals, and warnings.

    Raises
    ------
    FileNotFoundError
        If there are no shards.
    FormatError, ValueError
        If a shard is damaged or an argument does not fit, as `MemoryMappedDataset`.
    TargetExists
        If the manifest exists and the policy is "error" (a ValueError).
    JobError
        If a shard cannot be described, because of its dtype or its name.

    Examples
    --------
    >>> import tempfile, numpy, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> for number in range(3):
    ...     numpy.save(f"{folder.name}/{number}.npy", numpy.array([1, 2, 0], numpy.uint16))
    >>> result = fastpack.write_manifest(folder.name, eos_token_id=0)
    >>> result.shards, result.tokens, result.documents
    (3, 9, 3)
    >>> folder.cleanup()
    """
    output = as_path(folder) / manifest.DEFAULT_NAME if output is None else as_path(output)
    if not os.fspath(output).endswith(manifest.SUFFIX):
        raise ValueError(f"{output}: the name of a manifest must end in {manifest.SUFFIX}")
    if not may_write(output, if_exists):
        return _summary(manifest.Manifest(output), kept=True)
    paths, row = _find(as_path(folder), file_pattern)
    base = _base(output, folder)
    named = None if dtype is None else named_dtype(dtype, folder)
    if named is not None and row is None and not any(path.suffix == ".bin" for path in paths):
        raise ValueError(f"dtype={named} is for .bin shards: {paths[0]} says its dtype itself")
    options = _ScanOptions(base, named, eos_token_id, load_hash() if checksums else None, row)
    threads = num_threads or (REMOTE_THREADS if is_remote(folder) else THREADS)
    entries, raw = _scan_all(paths, options, threads, progress)
    warnings, flags = _warnings(raw, named is not None)
    flags |= {"has_checksums"} if checksums else set()
    if mixed := _different_tokenizers(paths):
        warnings, flags = [*warnings, mixed], flags | {"mixes_tokenizers"}
    manifest.write(output, entries, flags=flags, policy=if_exists)
    return _summary(manifest.Manifest(output), warnings=warnings)


def _find(folder: AnyPath, file_pattern: str | None) -> tuple[list[AnyPath], TokenFormat | None]:
    """Return the shards, and their format if it is that of another system."""
    files = [path for path in find_shards(folder, file_pattern or "*") if path.suffix != manifest.SUFFIX]
    row = _format_of(folder, files)
    if row is not None:
        suffix = TOKEN_SUFFIXES[row.name]
        return sorted({path.with_suffix(suffix) for path in files if path.suffix in (suffix, *row.suffixes)}), row
    if file_pattern is not None:
        return files, None
    for suffixes in SUFFIXES:
        if paths := [path for path in files if path.suffix in suffixes]:
            return paths, None
    raise FileNotFoundError(f"No files matching '*.npy', '*.bin', '*.pbin' or '*.ds' in {os.fspath(folder)}")


def _format_of(folder: AnyPath, files: Sequence[AnyPath]) -> TokenFormat | None:
    """Return the format of another system that the first file of tokens has; it stands for all.

    Raises JobError for a folder that has an index.
    """
    names = names_in(folder)
    if any(row.detect(folder, names) for row in INTEROP_FORMATS):
        raise JobError(f"{folder} has an index.json, which describes its shards: open it without a manifest")
    for path in files:
        row = next((row for row in INTEROP_FORMATS if row.detect(path, None)), None)
        if row is not None or path.suffix in (".npy", ".bin", ".pbin"):
            return row
    return None


def _base(output: AnyPath, folder: PathLike) -> str:
    """Return the folder of the manifest, with a final slash; ValueError if the shards are not in it."""
    base, inside = absolute(output.parent).rstrip("/") + "/", absolute(folder).rstrip("/") + "/"
    if not inside.startswith(base):
        raise ValueError(f"{output} must be in {folder} or a folder above it, because it contains relative paths")
    return base


def _scan_all(
    paths: Sequence[AnyPath], options: _ScanOptions, threads: int, progress: Progress | None
) -> tuple[list[manifest.Entry], list[TokenSegment]]:
    """Return the entry of each file, and the segments of headerless files."""
    entries, raw = [], []
    with ThreadPoolExecutor(threads, "fastpack-manifest") as pool:
        at_once = 1 if options.eos is not None or options.new_hash is not None else _SHARDS_PER_TASK
        groups = [paths[first : first + at_once] for first in range(0, len(paths), at_once)]
        tasks = [pool.submit(_scan_several, group, options) for group in groups]
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


def _scan_several(paths: Sequence[AnyPath], options: _ScanOptions) -> list[tuple[TokenSegment, manifest.Entry]]:
    return [_scan(path, options) for path in paths]


def _scan(path: AnyPath, options: _ScanOptions) -> tuple[TokenSegment, manifest.Entry]:
    raw, indexed = path.suffix == ".bin" and options.row is None, None
    if options.row is not None:
        with options.row.open(path, options.dtype, None) as tokens:
            (shard,), indexed = tokens.segments(), tokens.n_documents
    elif path.suffix == ".pbin":
        shard, packed = open_packed_segment(path)
        indexed = len(packed)
    else:
        (shard,) = scan_shards([path], options.dtype if raw else None, raw=raw)
    if indexed is not None:
        options = options._replace(eos=None)
    assert shard.stamp is not None
    size, time_ns, _ = shard.stamp
    assert time_ns is not None
    manifest.dtype_code(shard.dtype, path)
    documents, checksum = manifest.UNKNOWN, bytes(16)
    if options.eos is not None or options.new_hash is not None:
        documents, checksum = _read(shard, size, options)
        if shard.version is None:
            shard.check_unchanged()
    entry = manifest.Entry(
        absolute(path).removeprefix(options.base),
        size,
        time_ns,
        shard.offset,
        shard.length,
        shard.length if shard.plain else int(shard.open().size),
        shard.dtype,
        manifest.PLAIN * shard.plain | manifest.RAW * raw,
        documents if indexed is None else indexed,
        checksum,
    )
    return shard, entry


def _read(shard: TokenSegment, size: int, options: _ScanOptions) -> tuple[int, bytes]:
    """Count the documents and compute the checksum of a shard, as far as they are needed, in one pass."""
    digest = None if options.new_hash is None else options.new_hash()
    file, buffer, documents = shard.open_reader(), np.empty(_READ_BYTES, np.uint8), 0
    counts = options.eos is not None and shard.plain and shard.dtype.kind in "ui"
    end = shard.offset + shard.length * shard.dtype.itemsize if shard.plain else 0
    # The cuts do not divide tokens.
    ranges = ((0, shard.offset), (shard.offset, end), (end, size))
    cuts = [*(cut for start, stop in ranges for cut in range(start, stop, _READ_BYTES)), size]
    for first, last in pairwise(cuts):
        piece = _read_piece(file, buffer, first, last, size)
        if digest is not None:
            digest.update(piece.data)
        if counts and shard.offset <= first < end:
            documents += _n_ends(piece.view(shard.dtype), options.eos)
    if options.eos is not None and not counts:
        documents = _n_ends(np.asarray(shard.open()).reshape(-1), options.eos)
    return (manifest.UNKNOWN if options.eos is None else documents), bytes(16) if digest is None else digest.digest()


def _read_piece(file: Any, buffer: npt.NDArray[np.uint8], first: int, last: int, size: int) -> npt.NDArray[np.uint8]:
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


def _warnings(raw: Sequence[TokenSegment], dtype_is_given: bool) -> tuple[list[str], set[str]]:
    """Return warnings about headerless shards, and the flags for the manifest."""
    if not raw:
        return [], set()
    doubt, tail = "" if dtype_is_given else doubtful_dtype(raw), zero_tail(raw)
    found = {"dtype_is_given": dtype_is_given, "dtype_is_doubtful": bool(doubt), "has_zero_tail": bool(tail)}
    texts = [text for text in (stray_bytes(raw), doubt, tail) if text]
    return texts, {name for name, holds in found.items() if holds}


def _different_tokenizers(paths: Sequence[AnyPath]) -> str:
    """Return a sentence about the first shards with different recorded tokenizers; empty if there are none."""
    try:
        first_of_files(map(os.fspath, paths))
    except ValueError as error:
        return str(error).partition(". ")[0]
    return ""


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
