"""Whether the shards that a manifest names are what it says: sizes, headers, and checksums where it has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from fastpack.checks.findings import Finding, Look, VerifyReport
from fastpack.errors import FormatError, JobError, MissingExtra
from fastpack.files import AnyPath, as_path, names_in
from fastpack.formats.checksums import file_hash, load_hash
from fastpack.formats.manifest import Manifest
from fastpack.formats.manifest_shards import ManifestShards

_AT_ONCE = 256  # shards between two reports of progress


def check(path: AnyPath, report: VerifyReport, look: Look) -> None:
    """Fill the report; see `fastpack.checks.verify.verify`. Tokens are not looked at, but for their checksums."""
    try:
        manifest = Manifest(path)
    except FormatError as error:
        report.take(Finding.of(error))
        return
    shards, total = ManifestShards(manifest, "**", None), manifest.n_shards
    hashed = manifest.has_checksums and _can_hash(path, report)
    with ThreadPoolExecutor(look.threads, "fastpack-verify") as pool:
        for first in range(0, total, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, total))
            for found in pool.map(lambda number: list(_check_shard(shards, number, hashed)), numbers):
                report.take(*found)
            if look.progress is not None:
                look.progress(numbers[-1] + 1, total)
    report.count(shards=total, checksums=total * hashed)
    _check_names(path, manifest, report)


def _can_hash(path: AnyPath, report: VerifyReport) -> bool:
    try:
        load_hash()
    except MissingExtra as error:
        report.add("warning", path, None, f"checksums that were not looked at: {error}", "the package")
        return False
    return True


def _check_shard(shards: ManifestShards, number: int, hashed: bool) -> Iterator[Finding]:
    shard, manifest = shards[number], shards.manifest
    try:
        shard.check_unchanged()
        if hashed:
            said, found = manifest.checksums[number].tobytes().hex(), file_hash(shard.path).hex()
            if said != found:
                expected = f"{said}, as {manifest.path} says"
                yield Finding("error", shard.path, 0, f"a file with the xxh3_128 {found}", expected)
    except FormatError as error:
        yield Finding.of(error)
    except OSError as error:
        yield Finding("error", shard.path, None, error.strerror or str(error), f"what {manifest.path} says")


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
