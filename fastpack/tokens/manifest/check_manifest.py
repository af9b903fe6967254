"""Checks the shards of a manifest against it: sizes, headers, and checksums if it contains them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from fastpack.analysis.findings import Finding, VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.errors import FormatError, JobError, MissingExtra
from fastpack.io import AnyPath, as_path, names_in
from fastpack.io.checksum_blocks import load_hash
from fastpack.io.checksums import file_hash
from fastpack.tokens.interop_formats import INTEROP_FORMATS
from fastpack.tokens.manifest.manifest_file import RAW, Manifest
from fastpack.tokens.manifest.manifest_shards import ManifestShards
from fastpack.tokens.token_scan import TokenScan
from fastpack.tokens.token_segment import TokenSegment

_BLOCK_SHARDS = 256  # shards between two calls of the progress function


def check(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    """Add the findings of a manifest and its shards to the report.

    Tokens are read for checksums, if there are any, and if an EOS token or a vocabulary size is given.
    """
    try:
        manifest = Manifest(path)
    except FormatError as error:
        report.take(Finding.of(error))
        return
    shards, total = ManifestShards(manifest, "**", None), manifest.n_shards
    hashed, n_ends = manifest.has_checksums and _can_hash(path, report), 0
    with ThreadPoolExecutor(options.threads, "fastpack-verify") as pool:
        for first in range(0, total, _BLOCK_SHARDS):
            numbers = range(first, min(first + _BLOCK_SHARDS, total))
            for found, n_eos in pool.map(lambda number: _check_shard(shards, number, hashed, options), numbers):
                report.take(*found)
                n_ends += n_eos
            if options.progress is not None:
                options.progress(numbers[-1] + 1, total)
    report.count(shards=total, checksums=total * hashed)
    if options.eos_token_id is not None and n_ends == 0:
        found_none = f"no token {options.eos_token_id}, the end of a document"
        report.add("warning", path, None, found_none, "at least one: samples would be one document")
    _check_names(path, manifest, report)


def _can_hash(path: AnyPath, report: VerifyReport) -> bool:
    try:
        load_hash()
    except MissingExtra as error:
        report.add("warning", path, None, f"checksums that were not checked: {error}", "the package")
        return False
    return True


def _check_shard(
    shards: ManifestShards, number: int, hashed: bool, options: VerifyOptions
) -> tuple[list[Finding], int]:
    """Return the findings of a shard, and the number of its EOS tokens if they are counted."""
    shard, manifest, found = shards[number], shards.manifest, list[Finding]()
    try:
        shard.check_unchanged()
        if not manifest.kinds[number] & RAW:
            _check_index(shard)
        if hashed:
            expected_hash, true = manifest.checksums[number].tobytes().hex(), file_hash(shard.path).hex()
            if expected_hash != true:
                expected = f"{expected_hash}, as {manifest.path} says"
                found.append(Finding("error", shard.path, 0, f"a file with the xxh3_128 {true}", expected))
        if options.vocab_size is not None or options.eos_token_id is not None:
            return found, _check_tokens(shard, options, found)
    except FormatError as error:
        found.append(Finding.of(error))
    except OSError as error:
        found.append(Finding("error", shard.path, None, error.strerror or str(error), f"what {manifest.path} says"))
    return found, 0


def _check_index(shard: TokenSegment) -> None:
    """Raise FormatError if the shard is of a format with an index that contradicts it."""
    path = as_path(shard.path)
    if path.suffix == ".pbin" or (path.suffix == ".npy" and shard.offset):  # checked by its header
        return
    row = next((row for row in INTEROP_FORMATS if row.detect(path, None)), None)
    if row is not None:
        with row.open(path, shard.dtype, None) as tokens:
            if tokens.n_documents is not None:
                tokens.document_ends()


def _check_tokens(shard: TokenSegment, options: VerifyOptions, found: list[Finding]) -> int:
    """Add a finding for the first id outside the vocabulary; return the number of EOS tokens."""
    scan = TokenScan(options.vocab_size, options.eos_token_id)
    scan.scan_all(shard)
    if scan.outside is not None:
        number, token = scan.outside
        place, expected = (
            shard.offset + number * shard.dtype.itemsize,
            f"ids below the vocabulary's {options.vocab_size}",
        )
        found.append(Finding("error", shard.path, place, f"token {token}", expected))
    return scan.n_eos


def _check_names(path: AnyPath, manifest: Manifest, report: VerifyReport) -> None:
    """Warn of files next to the manifest with the suffix of its shards that it does not name."""
    named = {name for name in manifest.names() if "/" not in name}
    suffixes = {os.path.splitext(name)[1] for name in named}
    try:
        names = names_in(as_path(path).parent)
    except (OSError, JobError):  # plain HTTP has no folders
        return
    others = sorted(name for name in names if name not in named and os.path.splitext(name)[1] in suffixes)
    if others:
        found = f"{len(others)} files that it does not name; the first is {others[0]}"
        report.add("warning", path, None, found, "all files of the folder (`fastpack manifest` updates it)")
