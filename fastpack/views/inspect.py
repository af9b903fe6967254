"""`inspect(path)`: what a file or folder is, how much it holds, of what dtype, and how long its documents are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.errors import JobError
from fastpack.files import PathLike, drop_pages, map_bytes
from fastpack.formats.jsonl import check_bounds, counts_characters, default_index_path, read_raw_index
from fastpack.formats.nvmeta import meta_path
from fastpack.formats.pbin import PackedFile
from fastpack.formats.shards import Shard, find_shards, scan_shards
from fastpack.formats.traps import find_traps
from fastpack.views.webdataset.facts import inspect_webdataset

_NEWLINE = 10
_COUNTED_BYTES = 64 << 20  # between two advices to the kernel to drop the pages behind


def inspect(path: PathLike) -> dict[str, Any]:
    """What `path` holds: {"path", "kind", "bytes", ...}, "warnings" being a list of sentences.

    kind "webdataset" (a folder with .nv-meta): as `inspect_webdataset` says; "jsonl": lines, index (its path or None),
    line_bytes; "idx": entries, line_bytes; "pbin": generation, token_size_in_bytes, documents, tokens, document_tokens;
    "shards" (a folder or one shard): format, files, dtypes, tokens, file_tokens. line_bytes, document_tokens and
    file_tokens are {"min", "median", "mean", "p90", "max"}, or None when there are none. Raises FileNotFoundError,
    FormatError for a damaged file, JobError for what fastpack cannot read.
    """
    where = Path(path)
    if where.is_dir():
        return inspect_webdataset(where) if meta_path(where).is_dir() else _inspect_folder(where)
    readers = {".jsonl": _inspect_jsonl, ".idx": _inspect_index, ".pbin": _inspect_packed}
    readers |= {".npy": _inspect_shard, ".bin": _inspect_shard}
    os.stat(where)  # FileNotFoundError before a word about suffixes
    if where.suffix not in readers:
        raise JobError(f"{where}: not a folder, nor one of {', '.join(readers)}")
    return readers[where.suffix](where)


def _inspect_jsonl(path: Path) -> dict[str, Any]:
    data = map_bytes(path)
    n_lines = 0
    for start in range(0, len(data), _COUNTED_BYTES):
        end = min(start + _COUNTED_BYTES, len(data))
        n_lines += kernels.count_newlines(data[start:end])
        drop_pages(data, start, end)
    n_lines += bool(len(data)) and int(data[-1]) != _NEWLINE
    found: dict[str, Any] = {"path": str(path), "kind": "jsonl", "bytes": len(data), "lines": n_lines}
    index_path = default_index_path(path)
    found |= {"index": None, "line_bytes": None, "warnings": []}
    if index_path.exists():
        index = read_raw_index(index_path)
        check_bounds(index, len(data), index_path)
        found |= {"index": str(index_path), "line_bytes": summary(index[:, 1])}
        if len(index) != n_lines:
            found["warnings"].append(f"the index has {len(index)} entries, the file {n_lines} lines")
        if counts_characters(data, index):
            found["warnings"].append("the index counts characters, not bytes: `fastpack index --repair-legacy`")
    return found


def _inspect_index(path: Path) -> dict[str, Any]:
    index = read_raw_index(path)
    return {
        "path": str(path),
        "kind": "idx",
        "bytes": path.stat().st_size,
        "entries": len(index),
        "line_bytes": summary(index[:, 1]),
        "warnings": [],
    }


def _inspect_packed(path: Path) -> dict[str, Any]:
    with PackedFile(path) as file:
        lengths = file.index[:, 1] // file.token_size_in_bytes
        warnings = []
        if file.generation < 5:
            warnings.append(f"generation {file.generation}: Modalities 0.5.0 does not read its documents rightly")
        if int(lengths.sum()) != len(file.data):
            warnings.append(f"the documents hold {int(lengths.sum())} of {len(file.data)} tokens")
        return {
            "path": str(path),
            "kind": "pbin",
            "bytes": path.stat().st_size,
            "generation": file.generation,
            "token_size_in_bytes": file.token_size_in_bytes,
            "documents": len(lengths),
            "tokens": len(file.data),
            "document_tokens": summary(lengths),
            "warnings": warnings,
        }


def _inspect_folder(path: Path) -> dict[str, Any]:
    for suffix in ("bin", "npy"):  # any .bin hides all .npy, as for KempnerForge's validator
        try:
            return _describe_shards(path, scan_shards(find_shards(path, f"*.{suffix}")), suffix)
        except FileNotFoundError:
            continue
    raise JobError(f"{path}: no .bin or .npy files in this folder")


def _inspect_shard(path: Path) -> dict[str, Any]:
    return _describe_shards(path, scan_shards([path]), path.suffix[1:])


def _describe_shards(path: Path, shards: list[Shard], suffix: str) -> dict[str, Any]:
    lengths = np.array([shard.length for shard in shards], np.int64)
    dtypes = sorted({str(shard.dtype) for shard in shards})
    warnings = []
    if len(dtypes) > 1:
        warnings.append(f"the shards differ in dtype: {', '.join(dtypes)}")
    if suffix == "bin":
        warnings.append("a .bin file does not say its dtype: uint32 is taken where its size divides by 4, else uint16")
    warnings += find_traps(shards)
    return {
        "path": str(path),
        "kind": "shards",
        "bytes": sum(os.path.getsize(shard.path) for shard in shards),
        "format": suffix,
        "files": len(shards),
        "dtypes": dtypes,
        "tokens": int(lengths.sum()),
        "file_tokens": summary(lengths),
        "warnings": warnings,
    }


def summary(lengths: npt.NDArray[np.int64]) -> dict[str, float] | None:
    """{"min", "median", "mean", "p90", "max"} of `lengths` [n], or None when n is 0."""
    if not len(lengths):
        return None
    median, p90 = np.quantile(lengths, [0.5, 0.9], method="inverted_cdf").tolist()
    return {
        "min": int(lengths.min()),
        "median": int(median),
        "mean": round(float(lengths.mean()), 2),
        "p90": int(p90),
        "max": int(lengths.max()),
    }
