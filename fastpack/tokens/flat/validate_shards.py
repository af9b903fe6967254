"""KempnerForge's validator prepare_data.py, with the same output (`validate`), and deeper checks (`check_contents`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastpack.errors import JobError
from fastpack.io import AnyPath, PathLike, Progress
from fastpack.tokens.flat.shard_warnings import find_warnings, token_dtype
from fastpack.tokens.flat.shards import find_shards, scan_shards
from fastpack.tokens.flat.tatm_metadata import load_yaml
from fastpack.tokens.token_scan import TokenScan
from fastpack.tokens.token_segment import TokenSegment

RULE = "=" * 60


class Validation(NamedTuple):
    """The output and exit code of prepare_data.py."""

    stdout: str
    stderr: str
    code: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem: the file or folder, the offset in bytes from its start (or None), and a sentence."""

    file: str
    offset: int | None
    what: str


@dataclass(frozen=True, slots=True)
class _Folder:
    path: AnyPath
    suffix: str
    shards: list[AnyPath]
    info: Any  # tokenized_info of the metadata; {} without metadata


def validate(path: PathLike) -> Validation:
    """Return the output and exit code of KempnerForge's prepare_data.py (5666d0d) for a folder of shards.

    The script assumes the dtype of the metadata, or uint32, for `.bin` files, and that of the first file for `.npy`;
    `check_contents` checks it. Raises as the script: AttributeError for an empty tokenized_info, TypeError for an
    invalid dtype, ValueError for a damaged `.npy` file or metadata.yaml.
    """
    where = Path(path)
    if not where.is_dir():
        hint = f" (`fastpack verify {where}` checks the shards of a manifest)" if where.suffix == ".fpm" else ""
        return Validation("", f"Error: not a directory: {where}{hint}\n", 1)
    folder = _open(where)
    if folder is None:
        return Validation("", f"Error: no .bin or .npy files in {where}\n", 1)
    facts = _facts(folder)
    lines = ["", RULE, f"  {where}", RULE]
    lines.append(f"  Shards:     {facts['shards']} .{folder.suffix} files")
    lines.append(f"  Total size: {facts['bytes'] / 1024**3:.1f} GB")
    lines.append(f"  Tokens:     {facts['tokens']:,}")
    lines.append(f"  Dtype:      {facts['dtype']}")
    if facts["tokenizer"]:
        lines.append(f"  Tokenizer:  {facts['tokenizer']}")
    if facts["vocab_size"]:
        lines.append(f"  Vocab size: {facts['vocab_size']:,}")
    if facts["compatible"]:
        lines += ["", "  Compatible with KempnerForge MemoryMappedDataset.", "", "  Train with:"]
        lines += [f"    --data.dataset_path={where}", f"    --data.file_pattern='*.{folder.suffix}'"]
        if facts["vocab_size"]:
            lines.append(f"    --model.vocab_size={facts['vocab_size']}")
    else:
        lines += ["", f"  WARNING: dtype {facts['dtype']} — expected uint16 or uint32"]
    return Validation("\n".join([*lines, "", ""]), "", 0)


def facts(path: PathLike) -> dict[str, Any]:
    """Return what `validate` prints as {"path", "format", "shards", "bytes", ...}; JobError without shards."""
    folder = _open(Path(path))
    if folder is None:
        raise JobError(f"no .bin or .npy files in {path}")
    return _facts(folder)


def _open(where: AnyPath) -> _Folder | None:
    for suffix in ("bin", "npy"):  # .bin files hide .npy files
        try:
            shards = find_shards(where, f"*.{suffix}")
        except FileNotFoundError:
            continue
        metadata = where / "metadata.yaml"
        tree = load_yaml(metadata) if metadata.exists() else None
        info = tree["tokenized_info"] if tree and "tokenized_info" in tree else {}
        return _Folder(where, suffix, shards, info)
    return None


def _facts(folder: _Folder) -> dict[str, Any]:
    n_bytes = sum(shard.stat().st_size for shard in folder.shards)
    if folder.suffix == "bin":
        dtype = np.dtype(folder.info.get("dtype", "uint32"))
        n_tokens = n_bytes // dtype.itemsize
    else:
        shards = scan_shards(folder.shards)
        dtype, n_tokens = shards[0].dtype, sum(shard.length for shard in shards)
    return {
        "path": str(folder.path),
        "format": folder.suffix,
        "shards": len(folder.shards),
        "bytes": n_bytes,
        "tokens": n_tokens,
        "dtype": str(dtype),
        "tokenizer": folder.info.get("tokenizer"),
        "vocab_size": folder.info.get("vocab_size"),
        "compatible": dtype in (np.dtype(np.uint16), np.dtype(np.uint32)),
    }


def check_contents(
    path: PathLike,
    *,
    vocab_size: int | None = None,
    eos_token_id: int | None = None,
    seq_len: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Read every token of the shards of a folder; return {"dtypes", "tokens", "largest_id", ..., "findings"}.

    Tokens are read with the dtype of the metadata, else as the dataset reads them. Findings are ids from `vocab_size`
    on (default: that of the metadata), the absence of `eos_token_id`, and the absence of a sample of `seq_len` tokens.
    Samples are counted with and without trailing zeros. Raises JobError for a folder without shards, and as
    `scan_shards`.
    """
    folder = _open(Path(path))
    if folder is None:
        raise JobError(f"no .bin or .npy files in {path}")
    info = folder.info or {}
    is_raw = folder.suffix == "bin"
    described = token_dtype(info["dtype"]) if is_raw and info.get("dtype") else None
    findings = [
        Finding(str(path), None, trap) for trap in find_warnings(scan_shards(folder.shards), tail_is_trimmed=True)
    ]
    scan = TokenScan(vocab_size or info.get("vocab_size"), eos_token_id)
    shards = scan_shards(folder.shards, described)
    used, scanned = _scan(shards, scan, progress)
    findings += scanned
    found: dict[str, Any] = {
        "dtypes": sorted({str(shard.dtype) for shard in shards}),
        "tokens": sum(shard.length for shard in shards),
        "zero_tail_tokens": sum(shard.length - length for shard, length in zip(shards, used, strict=True)),
        "smallest_id": scan.smallest,
        "largest_id": scan.largest,
        "vocab_size": scan.vocab_size,
    }
    if eos_token_id is not None:
        found["eos_tokens"] = scan.n_eos
        if scan.n_eos == 0:
            text = f"token {eos_token_id}, the end of a document, does not occur: packed samples would be one document"
            findings.append(Finding(str(path), None, text))
    if seq_len:
        found["samples"] = sum(shard.length // seq_len for shard in shards)
        found["samples_without_zero_tails"] = sum(length // seq_len for length in used)
        if found["samples_without_zero_tails"] == 0:
            findings.append(Finding(str(path), None, f"no shard contains a sample of {seq_len} tokens"))
    return found | {"findings": findings}


def _scan(shards: list[TokenSegment], scan: TokenScan, progress: Progress | None) -> tuple[list[int], list[Finding]]:
    """Read every token; return the tokens of each shard without the zeros at its end, and the findings."""
    used, findings = [], []
    total, done = sum(shard.length * shard.dtype.itemsize for shard in shards), 0
    for shard in shards:
        size = shard.dtype.itemsize
        if shard.dtype.kind not in "ui":
            findings.append(Finding(shard.path, 0, f"the dtype is {shard.dtype}: tokens must be integers"))
            used.append(shard.length)
            continue
        trimmed = shard.trimmed()
        used.append(trimmed.length)
        n_zeros = shard.length - trimmed.length
        if n_zeros > max(1, shard.length // 1000):
            text = f"{n_zeros:,} of {shard.length:,} tokens are zeros at the end (trim_zero_tail=True leaves them out)"
            findings.append(Finding(shard.path, trimmed.offset + trimmed.length * size, text))
        scan.scan_all(trimmed)
        if scan.outside is not None:
            number, token = scan.outside
            text = f"token {token} is not an id of a vocabulary of {scan.vocab_size}"
            findings.append(Finding(shard.path, trimmed.offset + number * size, text))
        done += shard.length * size
        if progress:
            progress(done, total)
    return used, findings
