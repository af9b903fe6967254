"""Opens the sources of editing operations: files that store documents, and flat files whose documents end with EOS."""

from __future__ import annotations

from fastpack.errors import FormatError, spoken
from fastpack.io import PathLike, as_path
from fastpack.tokens.common_fingerprint import warn_of_other_eos_in
from fastpack.tokens.convert_dtypes import check_guess
from fastpack.tokens.formats import format_named, formats_of
from fastpack.tokens.token_file import TokenFile


def open_source(path: PathLike, eos_token_id: int | None = None, *, checked: bool = False) -> TokenFile:
    """Open a token file with its documents; files of unknown names are read as packed files.

    eos_token_id: ends the documents of formats without boundaries. Raises ValueError if it is needed and not given,
    FormatError for flat files whose dtype is a guess that the ids do not confirm, or whose arrays are unusual
    (not if the file was `checked` before: the check reads all of it).
    """
    where = as_path(path)
    found = formats_of(where)
    row = next((row for row in found if row.stores_documents), found[0] if found else format_named("pbin"))
    file = row.open(where, None, eos_token_id)
    if eos_token_id is None and file.n_documents is None:
        raise ValueError(
            f"{file.path}: {row.name} does not store document boundaries: pass {spoken('eos_token_id')}, the token "
            "that ends its documents"
        )
    if not row.stores_documents and not checked:
        _check_flat(file)
        warn_of_other_eos_in(file, eos_token_id)
    return file


def _check_flat(file: TokenFile) -> None:
    for segment in file.segments():
        if not segment.plain or segment.dtype.kind not in "ui":
            found = f"an array of {segment.dtype}" if segment.plain else "an unusual header of .npy"
            raise FormatError(segment.path, 0, found, "a flat array of integers: convert it first")
    try:
        check_guess(file)
    except FormatError as error:
        expected = f"a dtype that its ids show: convert it first, with {spoken('dtype=')}"
        raise FormatError(error.path, 0, error.found, expected) from None
