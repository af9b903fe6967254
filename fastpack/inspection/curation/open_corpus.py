"""Opens what a user names as one corpus: token files of one format, or text sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fastpack.documents.source_formats import BY_SUFFIX, format_of_content, format_of_name
from fastpack.documents.source_paths import is_pattern
from fastpack.errors import JobError
from fastpack.inspection.curation.documents import TokenDocuments
from fastpack.inspection.curation.texts import TextDocuments
from fastpack.io import PathLike, as_path
from fastpack.tokens.convert import open_sources
from fastpack.tokens.convert_sources import find_shards
from fastpack.tokens.formats import check_dataset_exists, formats_of
from fastpack.tokens.token_corpus import joined
from fastpack.webdataset.metadata import meta_path


@contextmanager
def open_corpus(
    path: PathLike,
    *,
    eos_token_id: int | None = None,
    dtype: str | None = None,
    text_field: str | None = None,
    split_on: str | None = None,
    group: str | None = None,
    key: str | None = None,
) -> Iterator[TokenDocuments | TextDocuments]:
    """Open a token file, text file, folder or pattern; group, key: fields of texts, as in `TextDocuments`.

    Raises FileNotFoundError, FormatError, JobError for a prepared WebDataset, and ValueError for fields of a token file
    and for one whose document boundaries are unknown.
    """
    where = as_path(path)
    if where.is_dir() and meta_path(where).is_dir():
        raise JobError(f"{where} is a prepared WebDataset: expected token files or text sources")
    if not _is_tokens(path):
        if where.is_file() and format_of_name(where) is None and format_of_content(where) is None:
            raise JobError(f"{where}: neither a token file nor one of {', '.join(BY_SUFFIX)}")
        names = {"text_field": text_field, "split_on": split_on, "group": group, "key": key}
        yield TextDocuments([str(where)], **names)
        return
    named = group or key
    if named is not None:
        raise ValueError(f"{where} contains tokens, which have no field {named!r}: name the source of the texts")
    with open_sources([path], None, dtype, eos_token_id) as files:
        yield TokenDocuments(joined(files, eos_token_id))


def token_files_of(path: PathLike) -> Sequence[PathLike]:
    """Return the token files that a path stands for; none if it stands for texts."""
    try:
        found = find_shards(path, None)
    except FileNotFoundError:
        return []
    return found if all(formats_of(as_path(one)) for one in found) else []


def _is_tokens(path: PathLike) -> bool:
    where = as_path(path)
    if not is_pattern(path):
        check_dataset_exists(where)
    return bool(formats_of(where) or token_files_of(path))
