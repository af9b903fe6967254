"""The result of editing operations, and the checks that all of them make first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fastpack.display import Result, facts
from fastpack.io import AnyPath, ExistencePolicy, PathLike, exists, may_write, same_file
from fastpack.tokens.formats import FORMATS, format_named
from fastpack.tokens.token_file import TokenFormat

Compat: TypeAlias = Literal["modalities-0.5"] | None
COMPAT: Compat = "modalities-0.5"


@dataclass(frozen=True, slots=True, repr=False)
class EditResult(Result):
    """What an editing operation wrote, or would write (`dry_run`).

    Attributes
    ----------
    path
        The output.
    documents
        Number of documents in the output; number of lines of a JSON Lines file.
    tokens
        Number of tokens in the output; None for a JSON Lines file.
    bytes
        Size of the output.
    sources
        Number of files read.
    left_out
        Number of documents of the sources that a filter did not keep.
    written
        False after a dry run, and if the existing output was kept.
    kept_existing
        Whether the output existed and was kept. The numbers are 0 then.

    Examples
    --------
    >>> import fastpack
    >>> fastpack.EditResult("out.pbin", documents=3, tokens=9, bytes=64)
    EditResult(path='out.pbin', documents=3, tokens=9, bytes=64, left_out=0)
    """

    _shown = facts("path", "documents", "tokens", "bytes", "left_out", "written", "kept_existing")

    path: AnyPath
    documents: int = 0
    tokens: int | None = None
    bytes: int = 0
    sources: int = 1
    left_out: int = 0
    written: bool = True
    kept_existing: bool = False


def check_compat(compat: Compat) -> None:
    """Raise ValueError for an unknown value."""
    if compat not in (None, COMPAT):
        raise ValueError(f"unknown compat {compat!r}: the only one is {COMPAT!r}")


def is_kept(sources: Sequence[PathLike], target: PathLike, policy: ExistencePolicy) -> bool:
    """Return whether the target exists and is kept, so that there is nothing to do.

    Raises FileNotFoundError for a missing source, ValueError for a target that is one of the sources, TargetExists (a
    ValueError) by the policy "error".
    """
    target_exists = exists(target)  # a target that does not exist is no source; comparing 50,000 paths takes a second
    for source in sources:
        if not exists(source):
            raise FileNotFoundError(f"{os.fspath(source)} does not exist")
        if target_exists and same_file(source, target):
            raise ValueError(f"Input and output file paths must be different: both are {os.fspath(source)}")
    return not may_write(target, policy)


def output_format(target: AnyPath) -> TokenFormat:
    """Return the format of an output by its suffix, if it stores document boundaries; else that of packed files."""
    found = (row for row in FORMATS if row.stores_documents and row.predict_size is not None)
    return next((row for row in found if target.suffix in row.suffixes), format_named("pbin"))
