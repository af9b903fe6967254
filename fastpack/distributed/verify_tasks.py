"""`verify` as tasks: verify files in any order, then merge the findings into one report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from fastpack.analysis.findings import Finding, VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.distributed.map_concatenate import numbered_tasks, task_folder
from fastpack.distributed.plan import Plan, results
from fastpack.errors import FastpackError
from fastpack.inspection.check_checksums import check_sums, files_with_sums
from fastpack.inspection.verify import CHECKERS, found, jobs_in, kind_of
from fastpack.io import AnyPath, PathLike, absolute, as_path
from fastpack.io.source_fingerprints import fingerprint


def plan_verify(paths: Sequence[PathLike], options: VerifyOptions, *, folder: str | None = None) -> Plan:
    """Plan `verify` of each of `paths` as tasks, one per file or dataset; `collect_verify` is the last step.

    folder: of the tasks' files (default: that of the first path). Raises what `verify` raises before it reads files,
    for a single path; of several paths, the last step reports those that cannot be verified.
    """
    home = task_folder(f"{absolute(paths[0])}.verify", folder)
    options = replace(options, deep=options.deep or options.split_parts is not None, progress=None)
    tasks: list[tuple[dict[str, Any], int]] = []
    stamps: list[Any] = []
    for number, path in enumerate(paths):
        try:
            where = found(path)
            jobs, sums = jobs_in(where), files_with_sums(where)
        except (FastpackError, OSError, ValueError) as error:
            if len(paths) == 1:
                raise
            stamps.append([os.fspath(path), str(error)])
            continue
        work = [(job.path, job.checker.kind) for job in jobs] + [(file, "checksums") for file in sums]
        for file, kind in work:
            known = _stamps(file, home)
            stamps += known
            arguments = {"number": number, "path": os.fspath(file), "kind": kind}
            tasks.append((arguments, max(1, sum(size for _, size, _ in known))))
    settings = {"paths": [os.fspath(path) for path in paths], "options": asdict(options)}
    return Plan("verify", home, settings, stamps, numbered_tasks(tasks))


def _stamps(path: AnyPath, home: str) -> list[Any]:
    """Return fingerprints of a file, which may be missing, or of all files of a dataset except those in `home`."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    files = [file for file in files if not absolute(file).startswith(f"{absolute(home)}/")]
    return [fingerprint(os.fspath(file)) if file.exists() else [os.fspath(file), 0, 0] for file in files]


def verify_task(settings: Mapping[str, Any], arguments: Mapping[str, Any], _path: str) -> dict[str, Any]:
    """Verify one file or dataset; return its findings."""
    path, kind = as_path(arguments["path"]), arguments["kind"]
    report = VerifyReport(os.fspath(path), kind)
    if kind == "checksums":
        check_sums([path], report, [None])
    else:
        checker = next(checker for checker in CHECKERS if checker.kind == kind)
        checker.check(path, report, VerifyOptions(**settings["options"]))
    return {
        "checked": report.checked,
        "findings": [asdict(finding) for finding in report.findings],
        "more": report.n_more,
        "errors": report.n_errors,
    }


def collect_verify(plan: Plan) -> list[VerifyReport | Exception]:
    """Return the report of each path, as `verify` does, or the error why it cannot be verified.

    Raises JobError with the names of tasks that are not done.
    """
    done = results(plan)
    reports: list[VerifyReport | Exception] = []
    for number, path in enumerate(plan.settings["paths"]):
        try:
            where = found(path)
            jobs = jobs_in(where)
        except (FastpackError, OSError, ValueError) as error:
            reports.append(error)
            continue
        report = VerifyReport(path, kind_of(where, jobs))
        own = [task for task in plan.tasks if task.arguments["number"] == number]
        for task in own:
            if task.arguments["kind"] != "checksums":
                _add(report, done[task.name].result)
        if report.kind == "folder":
            report.count(files=len(jobs))
        for task in own:
            if task.arguments["kind"] == "checksums":
                _add(report, done[task.name].result)
        reports.append(report)
    return reports


def _add(report: VerifyReport, result: Mapping[str, Any]) -> None:
    report.count(**result["checked"])
    report.take(*(Finding(**finding) for finding in result["findings"]))
    unlisted = result["errors"] - sum(finding["severity"] == "error" for finding in result["findings"])
    report.n_more += result["more"]
    report.n_errors += unlisted
