"""The result of editing operations, and the checks that all of them make first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.display import Result, facts
from fastpack.io import AnyPath, Bytes, ExistencePolicy, PathLike, as_path, exists, may_write, same_file, size_of
from fastpack.io.atomic_folder import INDEX
from fastpack.tokens.formats import FORMATS, format_named
from fastpack.tokens.interop_formats import first_output, is_interop, output_files
from fastpack.tokens.token_file import TokenFormat, TokenWriter

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
        Size of the output: of all its files; of a folder, without its index.
    sources
        Number of files read.
    left_out
        Number of documents of the sources that a filter did not keep.
    n_empty_dropped
        Number of documents without tokens that were dropped, because the format cannot store them.
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
    n_empty_dropped: int = 0
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
        if not exists(source) and not is_interop(as_path(source), None, "megatron"):
            raise FileNotFoundError(f"{os.fspath(source)} does not exist")
        if target_exists and same_file(first_input(source), target):
            raise ValueError(f"Input and output file paths must be different: both are {os.fspath(source)}")
    return not may_write(target, policy)


def first_input(source: PathLike) -> AnyPath:
    """Return the file of the tokens of a source that is named by another file, or by the prefix, of Megatron's."""
    path = as_path(source)
    named = path.suffix in ("", ".idx") and is_interop(path, None, "megatron")
    return first_output("megatron", path) if named else path


def output_format(target: AnyPath, name: str | None = None) -> TokenFormat:
    """Return the format called `name`, else that of the suffix of an output, else that of packed files.

    Raises ValueError if the format is unknown or not written.
    """
    if name is not None:
        row = format_named(name)
        if row.create is None:
            raise ValueError(f"the format {name} describes files and is not written")
        return row
    found = (row for row in FORMATS if row.create is not None and target.suffix in row.suffixes)
    return next(found, format_named("pbin"))


def edit_dtype(row: TokenFormat, token_size: int) -> np.dtype[Any]:
    """Return the dtype in which a format stores tokens of a size; ValueError if they may not fit."""
    stored = [np.dtype(name) for name in row.dtypes]
    same = [dtype for dtype in stored if dtype.itemsize == token_size]
    unsigned = [dtype for dtype in same if dtype.kind == "u"]
    larger = [dtype for dtype in stored if dtype.itemsize > token_size]
    for dtype in (*unsigned, *same, *larger):
        return dtype
    raise ValueError(f"{row.name} stores {', '.join(row.dtypes)}, and the tokens take {token_size} bytes: use convert")


class EmptyDocuments:
    """Drops documents without tokens, and counts them, if a format cannot store them."""

    def __init__(self, row: TokenFormat) -> None:
        self._kept = row.stores_empty
        self.n_dropped = 0

    def drop(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the lengths, in any unit, of the documents that are written."""
        return lengths if self._kept else lengths[self.mask(lengths)]

    def mask(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which documents of these lengths are written, bool [n]."""
        written = (lengths > 0) | self._kept
        self.n_dropped += len(lengths) - int(np.count_nonzero(written))
        return written


def append_encoded(writer: TokenWriter, data: Bytes, lengths: npt.NDArray[np.int64], size: int, stored: Any) -> None:
    """Append documents of little-endian unsigned tokens of `size` bytes to a file of the dtype `stored`."""
    encoded = np.dtype(f"<u{size}")
    if stored == encoded:
        writer.append_bytes(data, lengths)
    else:
        writer.append_many(np.frombuffer(data, np.uint8).view(encoded), lengths)


def written_bytes(row: TokenFormat, target: AnyPath) -> int:
    """Return the size of an output in bytes: of all its files, and of the chunks in a folder."""
    return sum(size_of(file) for file in output_files(row.name, target) if file.name != INDEX)
