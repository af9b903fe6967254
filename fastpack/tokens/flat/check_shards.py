"""Checks flat token files: headers, sizes, tokens, and tatm's metadata next to them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpack.analysis.findings import Finding, VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.errors import FormatError
from fastpack.io import AnyPath, as_path, counting, size_of
from fastpack.tokens.flat.shard_warnings import find_warnings, token_dtype
from fastpack.tokens.flat.shards import find_shards, scan_shards
from fastpack.tokens.flat.tatm_metadata import find_metadata, tokenized_info
from fastpack.tokens.token_scan import TokenScan
from fastpack.tokens.token_segment import TokenSegment

SUFFIXES = (".bin", ".npy")
_USUAL = ("uint16", "uint32")


def check(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    """Add the findings of a file, or of the shards of a folder, to the report.

    Headerless tokens have the dtype of the metadata if there is one, else the dtype that datasets guess.
    """
    folder = path if path.is_dir() else path.parent
    info = _read_metadata(folder, report)
    described = _metadata_dtype(info, report, folder)
    for suffix in SUFFIXES:
        paths = _paths(path, suffix)
        if paths:
            shards = list(_open(paths, described if suffix == ".bin" else None, report))
            report.count(shards=len(paths))
            _check_together(shards, paths, report)
            _check_metadata(folder, info, suffix, paths, report)
            _check_tokens(shards, info, report, options)


def _paths(path: AnyPath, suffix: str) -> list[AnyPath]:
    if not path.is_dir():
        return [path] if path.suffix == suffix else []
    try:
        return find_shards(path, f"*{suffix}")
    except FileNotFoundError:
        return []


def _read_metadata(folder: AnyPath, report: VerifyReport) -> dict[str, Any]:
    """tokenized_info of the metadata in a folder; empty if there is none."""
    try:
        return tokenized_info(folder)
    except (ValueError, OSError) as error:
        report.add("error", find_metadata(folder), None, str(error), "readable metadata")
        return {}


def _metadata_dtype(info: dict[str, Any], report: VerifyReport, folder: AnyPath) -> np.dtype[np.integer] | None:
    if "dtype" not in info:
        return None
    try:
        return token_dtype(info["dtype"])
    except ValueError as error:
        report.add("error", find_metadata(folder), None, str(error), "the dtype of the tokens")
        return None


def _open(paths: list[AnyPath], described: np.dtype[np.integer] | None, report: VerifyReport) -> Iterator[TokenSegment]:
    """Scan the shards, check their sizes, and yield those that can be read."""
    for path in paths:
        try:
            (shard,) = scan_shards([path], described)
        except FormatError as error:
            report.take(Finding.of(error))
            continue
        except (ValueError, OSError, EOFError) as error:
            report.add("error", path, 0, str(error), "a file of tokens")
            continue
        end = shard.offset + shard.length * shard.dtype.itemsize
        n_bytes = size_of(path)
        if shard.plain and end < n_bytes:
            expected = f"whole tokens of {shard.dtype}" if path.suffix == ".bin" else "the end of the file"
            severity: Any = "error" if path.suffix == ".bin" else "warning"
            report.add(severity, path, end, f"{n_bytes - end} bytes after the last token", expected)
        if shard.dtype.kind not in "ui":
            report.add("error", path, None, f"the dtype {shard.dtype}", "integers")
            continue
        if not shard.plain:
            report.add("warning", path, None, "an array that is not one-dimensional, or an odd header", "[n] tokens")
        if shard.length == 0:
            report.add("warning", path, None, "no tokens", "at least one")
        yield shard


def _check_together(shards: list[TokenSegment], paths: list[AnyPath], report: VerifyReport) -> None:
    """Check that the files of a folder fit together, and that a dataset would read them as intended."""
    dtypes = sorted({str(shard.dtype) for shard in shards})
    where = paths[0].parent if len(paths) > 1 else paths[0]
    if len(dtypes) > 1:
        report.add("warning", where, None, f"the dtypes {', '.join(dtypes)}", "one dtype")
    odd = [dtype for dtype in dtypes if dtype not in _USUAL]
    if odd:
        report.add("warning", where, None, f"the dtype {odd[0]}", "uint16 or uint32 (KempnerForge)")
    readable = [as_path(shard.path) for shard in shards if shard.length]
    if readable:
        for warning in find_warnings(scan_shards(readable), tail_is_trimmed=True):
            report.add("warning", where, None, warning, "files that are what they seem")


def _check_metadata(
    folder: AnyPath, info: dict[str, Any], suffix: str, paths: list[AnyPath], report: VerifyReport
) -> None:
    """Check that the files begin with the file_prefix of tatm's metadata."""
    prefix = info.get("file_prefix")
    if suffix != ".bin" or not isinstance(prefix, str):
        return
    others = [path for path in paths if not path.name.startswith(os.path.basename(prefix))]
    if others:
        found = f"{len(others)} files that do not begin with its file_prefix; the first is {others[0].name}"
        report.add("warning", find_metadata(folder), None, found, f"files that begin with {os.path.basename(prefix)!r}")


def _check_tokens(
    shards: list[TokenSegment], info: dict[str, Any], report: VerifyReport, options: VerifyOptions
) -> None:
    given = info.get("vocab_size")
    vocab_size = options.vocab_size or (given if isinstance(given, int) else None)
    scan = TokenScan(vocab_size, options.eos_token_id)
    total, done = sum(shard.length * shard.dtype.itemsize for shard in shards), 0
    progress = counting(options.progress, None, sum(shard.length for shard in shards))
    for shard in shards:
        trimmed = shard.trimmed()
        _check_tail(shard, trimmed, report)
        for start, tokens in scan.scan(trimmed):
            if progress is not None:
                progress(done + (start + len(tokens)) * shard.dtype.itemsize, total)
        if scan.outside is not None:
            number, token = scan.outside
            place = shard.offset + number * shard.dtype.itemsize
            report.add("error", shard.path, place, f"token {token}", f"ids below the vocabulary's {vocab_size}")
        done += shard.length * shard.dtype.itemsize
    if progress is not None:
        progress(total, total)
    report.count(tokens=sum(shard.length for shard in shards), bytes=total)
    if shards and scan.eos > 0 and scan.n_eos == 0:
        found = f"no token {scan.eos}, the end of a document"
        report.add(
            "warning", as_path(shards[0].path).parent, None, found, "at least one: packed samples would be one document"
        )


def _check_tail(shard: TokenSegment, trimmed: TokenSegment, report: VerifyReport) -> None:
    n_zeros = shard.length - trimmed.length
    if n_zeros > max(1, shard.length // 1000):
        place = trimmed.offset + trimmed.length * shard.dtype.itemsize
        found = f"{n_zeros} of {shard.length} tokens are zeros at the end"
        report.add("warning", shard.path, place, found, "tokens (trim_zero_tail=True leaves out the zeros)")
