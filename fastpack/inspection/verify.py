"""`verify(path)`: whether a dataset or file is sound, by the checker of its format."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from fastpack.analysis.findings import VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.errors import JobError
from fastpack.inspection.check_checksums import check_sums, files_to_sum, files_with_sums, write_sums
from fastpack.io import AnyPath, PathLike, Progress, as_path, check_exists
from fastpack.tokens.flat.check_shards import SUFFIXES, has_shards
from fastpack.tokens.manifest.manifest_file import is_manifest
from fastpack.tokens.pbin.check_packed import is_unfinished
from fastpack.webdataset.metadata import meta_path


class Checker(NamedTuple):
    """How a format is known, what its datasets are called, and the function that looks at one.

    function: "module:name" of a function (path, report, look) that fills the report it is given; imported when it is
    needed.
    """

    kind: str
    description: str
    is_one: Callable[[AnyPath], bool]
    function: str


def _is_webdataset(path: AnyPath) -> bool:
    return meta_path(path).is_dir()


def _is_shards(path: AnyPath) -> bool:
    return has_shards(path) if path.is_dir() else path.suffix in SUFFIXES


def _is_packed(path: AnyPath) -> bool:
    return path.suffix == ".pbin" and not path.is_dir()


CHECKERS = (
    Checker(
        "webdataset",
        "a WebDataset that was prepared (a folder with .nv-meta)",
        _is_webdataset,
        "fastpack.webdataset.verification.check_dataset:check",
    ),
    Checker(
        "shards",
        "a .bin or .npy file of tokens, or a folder of such",
        _is_shards,
        "fastpack.tokens.flat.check_shards:check",
    ),
    Checker("manifest", "a manifest of shards (.fpm)", is_manifest, "fastpack.tokens.manifest.check_manifest:check"),
    Checker("pbin", "a .pbin file", _is_packed, "fastpack.tokens.pbin.check_packed:check"),
    Checker("jsonl", "a .jsonl file", lambda path: path.suffix == ".jsonl", "fastpack.documents.check_jsonl:check"),
    Checker("idx", "an .idx file", lambda path: path.suffix == ".idx", "fastpack.documents.check_jsonl:check_index"),
)


def verify(
    path: PathLike,
    *,
    vocab_size: int | None = None,
    eos_token_id: int | None = None,
    deep: bool = False,
    decode: bool = False,
    trust_code: bool = False,
    split_config: str = "split.yaml",
    dataset_config: str = "dataset.yaml",
    split_parts: Sequence[str] | None = None,
    write_checksums: bool = False,
    threads: int = 2,
    progress: Progress | None = None,
) -> VerifyReport:
    """VerifyOptions at all of a file or dataset; the report lists what is wrong and is never an exception.

    A packed file: header, index and tokens against each other, and what the writer of an unfinished one left behind.
    JSON lines: every entry of the indexes beside them against the lines. Shards: headers, sizes, tokens and metadata.
    A manifest: each shard that it names, by size, time and header, and by its checksum where it has one; with
    vocab_size or eos_token_id its tokens too.
    A prepared WebDataset: its tars by their headers and every file of `.nv-meta`, each against the others. A folder of
    packed files and JSON lines: each of them.

    vocab_size: an id that large or larger is an error (shards: default the metadata's). eos_token_id: every document
    of a packed file has to end in it. deep: every line has to be JSON, every sample of a WebDataset to decode
    (`decode`: the same); trust_code: as `WebDataset` has it. split_config, dataset_config: other names in `.nv-meta`
    for a WebDataset's split.yaml and dataset.yaml; split_parts: the splits whose samples are decoded, which implies
    deep (default: all shards). threads: that scan shards of a WebDataset, or decode it.
    Files with checksums beside them (`<file>.fpsum`) are compared with those; write_checksums: write them instead, for
    every file, where no error was found.
    Raises FileNotFoundError, JobError for what no checker is for, MissingExtra where checksums cannot be written.
    """
    where = found(path)
    look = VerifyOptions(
        vocab_size=vocab_size,
        eos_token_id=eos_token_id,
        deep=deep or decode or split_parts is not None,
        trust_code=trust_code,
        split_config=split_config,
        dataset_config=dataset_config,
        split_parts=split_parts,
        threads=threads,
        progress=progress,
    )
    jobs = jobs_in(where)
    files = files_to_sum(where) if write_checksums else files_with_sums(where)
    parts = _parts(progress, [job.path for job in jobs] + files)
    report = VerifyReport(os.fspath(path), kind_of(where, jobs))
    for job, part in zip(jobs, parts, strict=False):
        look_at(job, report, replace(look, progress=part))
    if report.kind == "folder":
        report.count(files=len(jobs))
    if not write_checksums:
        check_sums(files, report, parts[len(jobs) :])
    elif report.is_sound:
        write_sums(files, report, parts[len(jobs) :])
    return report


def found(path: PathLike) -> AnyPath:
    """The path, which is there, be it of a packed file that was never finished; FileNotFoundError."""
    where = as_path(path)
    if not (_is_packed(where) and is_unfinished(where)):
        check_exists(where)
    return where


class Job(NamedTuple):
    """A file or dataset, and how it is looked at."""

    path: AnyPath
    checker: Checker


def kind_of(where: AnyPath, jobs: Sequence[Job]) -> str:
    """What the report of a path says that it is."""
    return jobs[0].checker.kind if jobs[0].path == where else "folder"


def look_at(job: Job, report: VerifyReport, look: VerifyOptions) -> None:
    """Fill the report with what is wrong with one file or dataset."""
    module, name = job.checker.function.split(":")
    getattr(importlib.import_module(module), name)(job.path, report, look)


def jobs_in(where: AnyPath) -> list[Job]:
    """What to look at, and how: a file or dataset, or the files of a folder that is none."""
    checker = _checker_of(where)
    if checker is not None and not (checker.kind == "shards" and where.is_dir()):
        return [Job(where, checker)]
    others = _members(where)
    if checker is not None:  # shards are looked at together
        return [Job(where, checker), *(job for job in others if job.checker.kind != "shards")]
    if not others:
        if where.is_dir() and next(where.glob("*.tar"), None):
            raise JobError(f"{where} has tars, but is not prepared as a WebDataset: run `fastpack prepare` first")
        known = ", ".join(checker.description for checker in CHECKERS)
        raise JobError(f"{where}: not one of what can be verified: {known}, or a folder of such files")
    return others


def _parts(progress: Progress | None, paths: Sequence[AnyPath]) -> list[Progress | None]:
    """The progress of each of several pieces of work, all in one: by the bytes of what they read."""
    if progress is None or len(paths) == 1:
        return [progress] * len(paths)
    sizes = [max(1, _n_bytes(path)) for path in paths]
    ends = list(accumulate(sizes))
    return [partial(_report_part, progress, end - size, size, ends[-1]) for end, size in zip(ends, sizes, strict=True)]


def _report_part(progress: Progress, before: int, n_bytes: int, whole: int, done: int, total: int) -> None:
    progress(before + n_bytes * done // max(1, total), whole)


def _n_bytes(path: AnyPath) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.exists() else 0


def _checker_of(path: AnyPath) -> Checker | None:
    return next((checker for checker in CHECKERS if checker.is_one(path)), None)


def _members(folder: AnyPath) -> list[Job]:
    """The files of a folder that can be verified, those that were never finished among them, and their checkers."""
    if not folder.is_dir():
        return []
    names = set(os.listdir(folder))
    names |= {name[1 : -len(".partial")] for name in names if name.startswith(".") and name.endswith(".pbin.partial")}
    raw = {name for name in names if name.endswith(".jsonl")}
    covered = {f"{name}.idx" for name in raw} | {f"{name[: -len('.jsonl')]}.idx" for name in raw}  # looked at with it
    found = []
    for name in sorted(names - covered):
        path = folder / name
        checker = None if name.startswith(".") or path.is_dir() else _checker_of(path)
        if checker is not None:
            found.append(Job(path, checker))
    return found
