"""Check that the files of a prepared WebDataset agree with each other; of the shards, only headers are read."""

from __future__ import annotations

import glob
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from fastpack.analysis.findings import Finding, Severity, VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.documents.offset_index import read_offset_index
from fastpack.errors import FastpackError, FormatError
from fastpack.io import AnyPath, Progress, size_of
from fastpack.webdataset import metadata as nvmeta
from fastpack.webdataset.sample_index import IndexChecker
from fastpack.webdataset.selection import shards_and_keys
from fastpack.webdataset.shard_index import ShardScan, scan_shard, scan_shards, shard_index_path

_MAX_LISTED = 20  # repeated keys, or shards named in a finding
_PREPARE = "`fastpack prepare` writes it"


def check(folder: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    """Fill the report; see `fastpack.inspection.verify.verify`."""
    try:
        counts = nvmeta.read_info(folder)
    except FormatError as error:
        report.take(Finding.of(error))
        return
    except FileNotFoundError:
        report.add("error", nvmeta.meta_path(folder, ".info.json"), None, "no file", f"one; {_PREPARE}")
        return
    report.count(shards=len(counts), samples=sum(counts.values()))
    rows = _open_index(folder, report)
    try:
        _check_split(folder, counts, rows, report, options)
        _check_small_files(folder, report, options.dataset_config)
        _check_unknown(folder, counts, report)
        phases = 1 + options.deep
        keys = _check_shards(folder, counts, rows, report, options.threads, _phase(options.progress, 0, phases))
        if rows is not None:
            rows.check_numbers(len(counts))
    finally:
        if rows is not None:
            rows.close()
    _check_keys(folder, list(counts), keys, report)
    if options.deep:
        from fastpack.webdataset.verification.decode_samples import decode_all

        decode_all(folder, report, replace(options, progress=_phase(options.progress, 1, phases)))


def _phase(progress: Progress | None, number: int, phases: int) -> Progress | None:
    """Return the progress callback of one of several phases of equal length."""
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, phases * total)


def _open_index(folder: AnyPath, report: VerifyReport) -> IndexChecker | None:
    path = nvmeta.index_path(folder)
    if not path.is_file():
        report.add(
            "warning",
            path,
            None,
            "no file",
            "one, as Energon 6 and later write; without it there are no lookups by key and no joins",
        )
        return None
    rows = IndexChecker(path, report)
    if report.is_sound and not rows.fields:
        missing = "sample_parts" if rows.samples else "samples"
        report.add("warning", path, None, f"no table {missing}", "one; without it there is no lookup by key")
    return rows


def _check_split(
    folder: AnyPath, counts: dict[str, int], rows: IndexChecker | None, report: VerifyReport, options: VerifyOptions
) -> None:
    path = nvmeta.meta_path(folder, options.split_config)
    try:
        split = nvmeta.read_split(folder, options.split_config)
        nvmeta.select_splits(path, split.shards, options.split_parts)
    except FormatError as error:
        report.take(Finding.of(error))
        return
    except FileNotFoundError:
        report.add("error", path, None, "no file", f"one; {_PREPARE}")
        return
    used: dict[str, list[str]] = {}
    for name, shards in split.shards.items():
        if not shards:
            report.add("warning", path, None, f"no shards in the split {name!r}", "at least one")
        for shard in shards:
            used.setdefault(shard, []).append(name)
    excluded = set(split.exclude)
    for shard, splits in used.items():
        if shard not in counts:
            report.add("error", path, None, f"{shard!r} in the split {splits[0]!r}", "a shard of .info.json")
        if len(splits) > 1:
            report.add("warning", path, None, f"{shard!r} in {' and '.join(splits)}", "each shard in one split")
    unused = [shard for shard in counts if shard not in used and shard not in excluded]
    if unused:
        found = f"{len(unused)} shards in no split: {_listed(unused)}"
        report.add("warning", path, None, found, "each shard in a split or under exclude")
    _check_exclusions(path, split.exclude, counts, rows, report)


def _check_exclusions(
    path: AnyPath, exclude: Sequence[str], counts: dict[str, int], rows: IndexChecker | None, report: VerifyReport
) -> None:
    numbers = {shard: number for number, shard in enumerate(counts)}
    for name in exclude:
        if name in numbers:
            continue
        found = list(shards_and_keys(name, numbers))
        if not found or (rows is not None and not any(rows.key_exists(numbers[shard], key) for shard, key in found)):
            report.add("warning", path, None, f"{name!r} under exclude", "an existing shard or <shard>/<key>")


def _check_small_files(folder: AnyPath, report: VerifyReport, dataset_config: str) -> None:
    path = nvmeta.meta_path(folder, "index.uuid")
    if path.is_file():
        text = path.read_bytes()[:100].decode("ascii", "replace").strip()
        try:
            uuid.UUID(text)
        except ValueError:
            report.add("error", path, 0, repr(text), "a uuid of 36 characters")
    else:
        report.add("warning", path, None, "no file", f"one; {_PREPARE}")
    try:
        nvmeta.read_dataset_yaml(folder, dataset_config)
    except FormatError as error:
        report.take(Finding.of(error))
    except FileNotFoundError:
        path = nvmeta.meta_path(folder, dataset_config)
        severity: Severity = "warning" if dataset_config == nvmeta.DATASET_CONFIG else "error"
        report.add(severity, path, None, "no file", "one that defines the sample type")


def _check_unknown(folder: AnyPath, counts: dict[str, int], report: VerifyReport) -> None:
    existing = set(glob.iglob("**/*.tar", root_dir=folder, recursive=True))
    unknown = sorted(existing.difference(counts))
    if unknown:
        found = f"{len(unknown)} tars that are not prepared: {_listed(unknown)}"
        report.add("warning", folder, None, found, "only the shards of .info.json")


def _check_shards(
    folder: AnyPath,
    counts: dict[str, int],
    rows: IndexChecker | None,
    report: VerifyReport,
    threads: int,
    progress: Progress | None,
) -> list[npt.NDArray[np.int64]]:
    """Check each shard; return the hashes of its keys, an empty array for an unreadable shard."""
    info = nvmeta.meta_path(folder, ".info.json")
    existing = []
    for number, shard in enumerate(counts):
        path = PurePosixPath(shard)
        if path.is_absolute() or ".." in path.parts:
            report.add("error", info, None, f"the shard {shard!r}", "one in the dataset's folder")
        elif not (folder / shard).is_file():
            report.add("error", folder / shard, None, "no file", "a shard, as .info.json says")
        else:
            existing.append((number, shard))
    sizes = [size_of(folder / shard) for _, shard in existing]
    hashes = [np.empty(0, np.int64)] * len(counts)
    done = 0
    scans = scan_shards((folder / shard for _, shard in existing), threads=threads)
    for (number, shard), n_bytes, scan in zip(existing, sizes, scans, strict=True):
        if isinstance(scan, ShardScan):
            _check_shard(folder / shard, number, counts[shard], scan, rows, report)
            hashes[number] = np.fromiter(map(hash, scan.sample_keys), np.int64, scan.n_samples)
        else:
            report.take(_as_finding(scan, folder / shard))
        done += n_bytes
        if progress is not None:
            progress(done, sum(sizes))
    return hashes


def _check_shard(
    path: AnyPath, number: int, count: int, scan: ShardScan, rows: IndexChecker | None, report: VerifyReport
) -> None:
    report.count(parts=scan.n_fields, members=scan.n_members)
    if scan.n_samples != count:
        report.add("error", path, None, f"{scan.n_samples} samples", f"{count}, as .info.json says")
    index = shard_index_path(path)
    try:
        _compare_offsets(index, read_offset_index(index), scan, report)
    except FileNotFoundError:
        report.add("error", index, None, "no file", f"one; {_PREPARE}")
    except FormatError as error:
        report.take(Finding.of(error))
    if rows is not None:
        rows.compare(number, scan)


def _compare_offsets(index: str, offsets: npt.NDArray[np.int64], scan: ShardScan, report: VerifyReport) -> None:
    correct = scan.sample_offsets
    if len(offsets) != len(correct):
        found = f"{len(offsets) - 1} samples"
        report.add("error", index, 8 * min(len(offsets), len(correct)), found, f"{scan.n_samples}, as in the shard")
    n_both = min(len(offsets), len(correct))
    wrong = np.flatnonzero(offsets[:n_both] != correct[:n_both])
    if len(wrong):
        at = int(wrong[0])
        expected = (
            f"{correct[at]}, the start of sample {at}"
            if at < scan.n_samples
            else f"{correct[at]}, the end of the last sample"
        )
        report.add("error", index, 8 * at, f"the offset {offsets[at]}", expected)


def _check_keys(folder: AnyPath, shards: list[str], hashes: list[npt.NDArray[np.int64]], report: VerifyReport) -> None:
    """Find repeated keys by their hashes; shards with equal hashes are scanned again."""
    values, seen = np.unique(np.concatenate([*hashes, np.empty(0, np.int64)]), return_counts=True)
    repeated_hashes = values[seen > 1]
    if not len(repeated_hashes):
        return
    shards_of_key: dict[bytes, list[str]] = {}
    for shard, shard_hashes in zip(shards, hashes, strict=True):
        positions = np.flatnonzero(np.isin(shard_hashes, repeated_hashes))
        if len(positions):
            keys = scan_shard(folder / shard).sample_keys
            for position in positions.tolist():
                shards_of_key.setdefault(keys[position], []).append(shard)
    repeated = {key: found for key, found in shards_of_key.items() if len(found) > 1}
    for key, found in list(repeated.items())[:_MAX_LISTED]:
        times = ", ".join(f"{n} times in {shard}" for shard, n in Counter(found).items())
        report.add("error", folder, None, f"the key {key.decode()!r} {times}", "unique keys")
    if len(repeated) > _MAX_LISTED:
        report.add("error", folder, None, f"{len(repeated) - _MAX_LISTED} more repeated keys", "unique keys")


def _as_finding(error: FastpackError | OSError, path: AnyPath) -> Finding:
    if isinstance(error, FormatError):
        return Finding.of(error)
    return Finding("error", str(path), None, str(error), "a shard that can be read")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
