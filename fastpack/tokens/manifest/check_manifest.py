"""Whether the shards that a manifest names are what it says: sizes, headers, and checksums where it has them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from fastpack.analysis.findings import Finding, VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.errors import FormatError, JobError, MissingExtra
from fastpack.io import AnyPath, as_path, names_in
from fastpack.io.checksums import file_hash, load_hash
from fastpack.tokens.manifest.manifest_file import Manifest
from fastpack.tokens.manifest.manifest_shards import ManifestShards
from fastpack.tokens.token_scan import TokenScan
from fastpack.tokens.token_segment import TokenSegment

_AT_ONCE = 256  # shards between two reports of progress


def check(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    """Fill the report; see `fastpack.inspection.verify.verify`.

    Tokens are only read for their checksums, where there are some, and where an EOS or a vocabulary is asked for.
    """
    try:
        manifest = Manifest(path)
    except FormatError as error:
        report.take(Finding.of(error))
        return
    shards, total = ManifestShards(manifest, "**", None), manifest.n_shards
    hashed, n_ends = manifest.has_checksums and _can_hash(path, report), 0
    with ThreadPoolExecutor(options.threads, "fastpack-verify") as pool:
        for first in range(0, total, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, total))
            for found, n_eos in pool.map(lambda number: _check_shard(shards, number, hashed, options), numbers):
                report.take(*found)
                n_ends += n_eos
            if options.progress is not None:
                options.progress(numbers[-1] + 1, total)
    report.count(shards=total, checksums=total * hashed)
    if options.eos_token_id is not None and n_ends == 0:
        found_none = f"no token {options.eos_token_id}, the end of a document"
        report.add("warning", path, None, found_none, "some: packed samples would be one document")
    _check_names(path, manifest, report)


def _can_hash(path: AnyPath, report: VerifyReport) -> bool:
    try:
        load_hash()
    except MissingExtra as error:
        report.add("warning", path, None, f"checksums that were not looked at: {error}", "the package")
        return False
    return True


def _check_shard(
    shards: ManifestShards, number: int, hashed: bool, options: VerifyOptions
) -> tuple[list[Finding], int]:
    """What is wrong with a shard, and how many of its tokens are EOS, where that is asked for."""
    shard, manifest, found = shards[number], shards.manifest, list[Finding]()
    try:
        shard.check_unchanged()
        if hashed:
            said, true = manifest.checksums[number].tobytes().hex(), file_hash(shard.path).hex()
            if said != true:
                expected = f"{said}, as {manifest.path} says"
                found.append(Finding("error", shard.path, 0, f"a file with the xxh3_128 {true}", expected))
        if options.vocab_size is not None or options.eos_token_id is not None:
            return found, _check_tokens(shard, options, found)
    except FormatError as error:
        found.append(Finding.of(error))
    except OSError as error:
        found.append(Finding("error", shard.path, None, error.strerror or str(error), f"what {manifest.path} says"))
    return found, 0


def _check_tokens(shard: TokenSegment, options: VerifyOptions, found: list[Finding]) -> int:
    """Ids that are none of the vocabulary; returns how many tokens are EOS."""
    scan = TokenScan(options.vocab_size, options.eos_token_id)
    for _ in scan.scan(shard):
        pass
    if scan.outside is not None:
        number, token = scan.outside
        place, expected = (
            shard.offset + number * shard.dtype.itemsize,
            f"ids below the vocabulary's {options.vocab_size}",
        )
        found.append(Finding("error", shard.path, place, f"token {token}", expected))
    return scan.n_eos


def _check_names(path: AnyPath, manifest: Manifest, report: VerifyReport) -> None:
    """A warning for files beside the manifest that look like its shards, and that it does not name."""
    named = {name for name in manifest.names() if "/" not in name}
    suffixes = {os.path.splitext(name)[1] for name in named}
    try:
        beside = names_in(as_path(path).parent)
    except (OSError, JobError):  # plain HTTP has no folders
        return
    others = sorted(name for name in beside if name not in named and os.path.splitext(name)[1] in suffixes)
    if others:
        found = f"{len(others)} files that it does not name, the first being {others[0]}"
        report.add("warning", path, None, found, "all of the folder (`fastpack manifest` writes it anew)")
