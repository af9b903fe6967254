"""Checks datasets and files with the checker of their format."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fastpack.analysis.findings import VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.errors import JobError
from fastpack.inspection.check_checksums import check_sums, files_to_sum, files_with_sums, write_sums
from fastpack.inspection.loss_facts import check_loss_mask
from fastpack.inspection.recorded_tokenizer import check_tokenizer
from fastpack.io import AnyPath, PathLike, Progress, as_path, divide_progress
from fastpack.tokens.formats import FORMATS, check_dataset_exists, formats_of, is_side_file, is_unfinished
from fastpack.tokens.interop_formats import FOLDER_FORMATS
from fastpack.webdataset.metadata import meta_path


class Checker(NamedTuple):
    """How datasets of a kind are described and checked. Functions import the checks when they are called."""

    kind: str
    description: str
    check: Callable[[AnyPath, VerifyReport, VerifyOptions], None]


def _check_webdataset(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    from fastpack.webdataset.verification.check_dataset import check

    check(path, report, options)


def _check_jsonl(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    from fastpack.documents.check_jsonl import check

    check(path, report, options)


def _check_index(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    from fastpack.documents.check_jsonl import check_index

    check_index(path, report, options)


def _check_plan(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    from fastpack.plans.check_plan import check

    check(path, report, options)


_WEBDATASET = Checker("webdataset", "a prepared WebDataset (a folder with .nv-meta)", _check_webdataset)
_TOKENS = {row.kind: Checker(row.kind, row.description, row.check) for row in FORMATS}
_BY_SUFFIX = {
    ".jsonl": Checker("jsonl", "a .jsonl file", _check_jsonl),
    ".idx": Checker("idx", "an .idx file", _check_index),
    ".plan": Checker("plan", "a packing plan (.plan)", _check_plan),
}
CHECKERS = (_WEBDATASET, *_TOKENS.values(), *_BY_SUFFIX.values())


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
    """Check a file or dataset completely.

    What is wrong is listed in the report, it does not raise. What is checked depends on the format:

    - packed file: header, index and tokens against each other, and the remains of an unfinished write;
    - JSON Lines: every entry of its indexes against the lines;
    - shards (`.npy`, `.bin`): headers, sizes, tokens and metadata;
    - manifest: each shard by size, time and header, and by its checksum if the manifest contains one; its tokens with
      `vocab_size` or `eos_token_id`;
    - prepared WebDataset: its tars by their headers, and every file of `.nv-meta`, against each other;
    - packing plan: that its rows are possible and contain each token once, and that its sources have not changed;
    - folder of packed files and JSON Lines files: each of them.

    Parameters
    ----------
    path
        A file or folder.
    vocab_size
        Token ids from here on are errors. The default is that of the recorded tokenizer (see `TokenizerFingerprint`),
        for shards also that of the metadata. A recorded tokenizer with more ids is a warning.
    eos_token_id
        The token that must end every document of a packed file. A recorded tokenizer with another one is a warning.
    deep
        Also check that every line is JSON and that every sample of a WebDataset can be decoded.
    decode
        The same as `deep`.
    trust_code
        Whether code from the dataset may run, as in `WebDataset`.
    split_config, dataset_config
        Names of the files in `.nv-meta` to use instead of split.yaml and dataset.yaml.
    split_parts
        The splits whose samples are decoded; implies `deep`. By default all shards.
    write_checksums
        Write the checksum of every file to `<file>.fpsum` if no error was found. Otherwise existing checksums are
        compared.
    threads
        Number of threads that scan or decode the shards of a WebDataset.
    progress
        Called with (bytes done, total bytes).

    Returns
    -------
    VerifyReport
        The findings, and what was checked.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    JobError
        If the file has no known format.
    MissingExtra
        If checksums cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "a.pbin")
    >>> with fastpack.PackedWriter(file, 2) as writer:
    ...     writer.append_many([1, 0, 2, 0], [2, 2])
    >>> fastpack.verify(file).is_sound
    True
    >>> fastpack.verify(file, vocab_size=2).findings[0].found
    'token 2'
    >>> folder.cleanup()
    """
    where = found(path)
    options = VerifyOptions(
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
    shares = divide_progress(progress, [job.path for job in jobs] + files)
    report = VerifyReport(os.fspath(path), kind_of(where, jobs))
    for job, share in zip(jobs, shares, strict=False):
        checked = replace(options, progress=share)
        if job.checker in _TOKENS.values():
            fingerprint = check_tokenizer(job.path, report, options)
            check_loss_mask(job.path, report)
            if fingerprint is not None and options.vocab_size is None:
                checked = replace(checked, vocab_size=fingerprint.vocab_size)
        job.checker.check(job.path, report, checked)
    if report.kind == "folder":
        report.count(files=len(jobs))
    if not write_checksums:
        check_sums(files, report, shares[len(jobs) :])
    elif report.is_sound:
        write_sums(files, report, shares[len(jobs) :])
    return report


def found(path: PathLike) -> AnyPath:
    """Return the path of a file that exists, or of an unfinished token file; else raise FileNotFoundError."""
    where = as_path(path)
    if not is_unfinished(where):
        check_dataset_exists(where)
    return where


class Job(NamedTuple):
    """A file or dataset, and its checker."""

    path: AnyPath
    checker: Checker


def kind_of(where: AnyPath, jobs: Sequence[Job]) -> str:
    """Return the kind that the report of a path states."""
    return jobs[0].checker.kind if jobs[0].path == where else "folder"


def jobs_in(where: AnyPath) -> list[Job]:
    """Return what to check: the file or dataset, or the files of a folder that is not a dataset."""
    checker = _checker_of(where)
    if checker is not None and (checker is _WEBDATASET or checker.kind in FOLDER_FORMATS or not where.is_dir()):
        return [Job(where, checker)]  # the files of such a folder belong to the dataset
    others = _jobs_of_files(where)
    if checker is not None:  # the shards of a folder are checked together
        return [Job(where, checker), *(job for job in others if job.checker is not checker)]
    if not others:
        if where.is_dir() and next(where.glob("*.tar"), None):
            raise JobError(f"{where} has tars, but is not prepared as a WebDataset: run `fastpack prepare` first")
        known = ", ".join(checker.description for checker in CHECKERS)
        raise JobError(f"{where}: not one of what can be verified: {known}, or a folder of such files")
    return others


def _checker_of(path: AnyPath) -> Checker | None:
    if meta_path(path).is_dir():
        return _WEBDATASET
    row = next(iter(formats_of(path)), None)
    return _BY_SUFFIX.get(path.suffix) if row is None else _TOKENS[row.kind]


def _jobs_of_files(folder: AnyPath) -> list[Job]:
    """Return the files of a folder that can be checked, unfinished ones included."""
    if not folder.is_dir():
        return []
    paths = {path.name: path for path in folder.iterdir()}
    names = set(paths)
    begun = {name[1 : -len(".partial")] for name in names if name.startswith(".") and name.endswith(".partial")}
    names |= {name for name in begun if is_unfinished(folder / name)}
    raw = {name for name in names if name.endswith(".jsonl")}
    covered = {f"{name}.idx" for name in raw} | {f"{name[: -len('.jsonl')]}.idx" for name in raw}  # checked with it
    jobs = []
    for name in sorted(names - covered):
        path = paths.get(name, folder / name)
        checker = None if name.startswith(".") or path.is_dir() or is_side_file(path) else _checker_of(path)
        if checker is not None:
            jobs.append(Job(path, checker))
    return jobs
