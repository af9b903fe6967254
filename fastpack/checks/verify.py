"""`verify(path)`: whether a dataset or file is sound, by the checker of its format."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fastpack.checks.findings import VerifyReport
from fastpack.errors import JobError
from fastpack.files import PathLike, Progress
from fastpack.formats import nvmeta


class Checker(NamedTuple):
    """How a format is known, what its datasets are called, and the function that looks at one.

    function: "module:name" of a function (path, report, *, decode, trust_code, threads, progress) that fills the report
    it is given; imported when it is needed.
    """

    kind: str
    description: str
    is_one: Callable[[Path], bool]
    function: str


def _is_webdataset(path: Path) -> bool:
    return nvmeta.meta_path(path).is_dir()


CHECKERS = (
    Checker(
        "webdataset",
        "a WebDataset that was prepared (a folder with .nv-meta)",
        _is_webdataset,
        "fastpack.checks.webdataset.verify:check",
    ),
)


def verify(
    path: PathLike,
    *,
    decode: bool = False,
    trust_code: bool = False,
    threads: int = 2,
    progress: Progress | None = None,
) -> VerifyReport:
    """Look at all of a dataset; the report lists what is wrong and is never an exception.

    A prepared WebDataset: its tars by their headers, `.tar.idx`, index.sqlite, .info.json, split.yaml and the others of
    `.nv-meta`, each against the others. decode: every part of every sample as well. trust_code: as `WebDataset` has it.
    Raises FileNotFoundError, JobError for what no checker is for.
    """
    where = Path(path)
    os.stat(where)
    for checker in CHECKERS:
        if checker.is_one(where):
            report = VerifyReport(os.fspath(path), checker.kind)
            module, name = checker.function.split(":")
            check = getattr(importlib.import_module(module), name)
            check(where, report, decode=decode, trust_code=trust_code, threads=threads, progress=progress)
            return report
    known = ", ".join(checker.description for checker in CHECKERS)
    raise JobError(f"{where}: not one of what can be verified: {known}")
