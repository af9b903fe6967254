"""Concatenates token files that store documents."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.argument_aliases import accept_aliases
from fastpack.errors import DataWarning, JobError
from fastpack.io import (
    AnyPath,
    ExistencePolicy,
    PathLike,
    Progress,
    as_path,
    counting,
    exists,
    names_in,
    real_path,
    same_file,
)
from fastpack.tokens.common_fingerprint import CommonFingerprint, shared_fingerprint
from fastpack.tokens.document_masks import DocumentMasks
from fastpack.tokens.edit.edit_result import (
    Compat,
    EditResult,
    EmptyDocuments,
    check_compat,
    edit_dtype,
    is_kept,
    output_format,
    written_bytes,
)
from fastpack.tokens.edit.edit_source import open_source
from fastpack.tokens.interop_formats import FOLDER_FORMATS, first_output, is_interop
from fastpack.tokens.mask_bits import MaskBits
from fastpack.tokens.pbin.layout import HEADER_BYTES
from fastpack.tokens.pbin.legacy_merge import legacy_format, stored_base
from fastpack.tokens.token_file import BLOCK_ROWS, Rows, TokenFile, TokenFormat
from fastpack.tokens.token_scan import stored_blocks
from fastpack.tokens.token_writer import TOKEN_SIZES
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint

_BLOCK = 8 << 20  # bytes copied at once


class Source(NamedTuple):
    """A source of the merge. `shift` is added to the starts of its documents, in tokens."""

    path: str
    token_size: int
    n_tokens: int
    n_documents: int
    shift: int
    fingerprint: TokenizerFingerprint | None = None
    eos_token_id: int | None = None


@accept_aliases(file_existence_policy="if_exists")
def merge_packed_data(
    src_paths: PathLike | Sequence[PathLike],
    target_path: PathLike,
    *,
    compat: Compat = None,
    token_size_in_bytes: int | None = None,
    if_exists: ExistencePolicy = "error",
    mix_tokenizers: bool = False,
    progress: Progress | None = None,
    dry_run: bool = False,
    format: str | None = None,
    eos_token_id: int | None = None,
) -> EditResult:
    """Concatenate packed files of any generations into one file of the current generation.

    Documents keep their order, and sources are used in the given order.

    Parameters
    ----------
    src_paths
        Token files and directories. A directory stands for all `.pbin` files below it except the target, sorted by
        path.
    target_path
        The output.
    compat
        "modalities-0.5" writes the bytes of Modalities, whose index is wrong: 12 bytes too low for each preceding
        file. Only generations that Modalities can read are accepted then.
    token_size_in_bytes
        Token size of the output, for sources with different token sizes; smaller tokens are widened.
    if_exists
        What to do if the output exists: "error", "skip" or "overwrite".
    mix_tokenizers
        Combine sources whose recorded tokenizers differ, with a DataWarning (see `TokenizerFingerprint`). By default
        they are refused.
    progress
        Called with (bytes of tokens written, total bytes).
    dry_run
        Return the result without writing the output.
    format
        Format of the output, such as "megatron"; default: by its suffix, else "pbin".
    eos_token_id
        The token that ends documents in sources without document boundaries (`npy`, `bin`, `llmc`, `nanogpt`).

    Returns
    -------
    EditResult
        Path, documents, tokens and size of the output, and the number of sources.

    Raises
    ------
    FileNotFoundError
        If a source does not exist.
    FormatError
        If a source is damaged; the message names it.
    TargetExists
        If the output exists and the policy is "error" (a ValueError and FileExistsError).
    ValueError
        If the target is one of the sources, there is no packed file, or the token sizes or the tokenizers differ.
    JobError
        If a source changes during the merge.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> for name in ("a", "b"):
    ...     with fastpack.PackedWriter(f"{folder.name}/{name}.pbin", 2) as writer:
    ...         writer.append([1, 2, 0])
    >>> result = fastpack.merge_packed_data(folder.name, f"{folder.name}/all.pbin")
    >>> result.documents, result.tokens, result.sources
    (2, 6, 2)
    >>> folder.cleanup()
    """
    check_compat(compat)
    given = [src_paths] if isinstance(src_paths, (str, os.PathLike)) else list(src_paths)
    row = output_format(as_path(target_path), format)
    target = first_output(row.name, as_path(target_path))
    paths = find_sources(given, target, row)
    if is_kept(paths, target, if_exists):
        return EditResult(target, sources=len(paths), written=False, kept_existing=True)
    sources, size = read_sources(
        paths, token_size_in_bytes, compat, mix_tokenizers=mix_tokenizers, eos_token_id=eos_token_id
    )
    if dry_run:
        predict_size = _variant(row, sources).predict_size
        assert predict_size is not None
        empty = EmptyDocuments(row)
        rows = (rows[empty.mask(rows[:, 1])] for rows in _rows(sources))
        n_bytes = predict_size(_n_tokens(sources), edit_dtype(row, size).itemsize, rows)
        return replace(_result(sources, target, n_bytes, empty), written=False)

    counts = [source.n_documents for source in sources]
    progress = counting(progress, sum(filter(None, counts)), _n_tokens(sources))

    def blocks() -> Iterator[npt.NDArray[Any]]:
        done, total = 0, _n_tokens(sources) * size
        for source in sources:
            for tokens in read_tokens(source, 0, source.n_tokens):
                yield tokens
                done += len(tokens) * size
                if progress is not None:
                    progress(done, total)

    return write_merged(sources, size, row, target, if_exists, blocks())


def write_merged(
    sources: Sequence[Source],
    size: int,
    row: TokenFormat,
    target: AnyPath,
    policy: ExistencePolicy,
    blocks: Iterable[npt.NDArray[Any]],
) -> EditResult:
    """Write the merged file; `blocks` are the tokens of all sources, which take `size` bytes each."""
    create, empty = _variant(row, sources).create, EmptyDocuments(row)
    assert create is not None
    with create(target, edit_dtype(row, size), policy) as writer:
        writer.fingerprint = shared_fingerprint([source.fingerprint for source in sources])
        writer.mask = _merged_mask(sources)
        writer.reserve(_n_tokens(sources))
        if row.name in FOLDER_FORMATS:
            writer.append_blocks(blocks, np.concatenate([empty.drop(rows[:, 1]) for rows in _rows(sources)]))
        else:
            for block in blocks:
                writer.append_tokens(block)
            if row.stores_documents:
                writer.append_documents(_rows(sources))
    return _result(sources, target, written_bytes(row, target), empty)


def _merged_mask(sources: Sequence[Source]) -> MaskBits | None:
    masks = DocumentMasks()
    for source in sources:
        with _open(source) as file:
            masks.add(file, whole=True)
    return masks.bits()


def _variant(row: TokenFormat, sources: Sequence[Source]) -> TokenFormat:
    """Return the format of the output; with negative starts, which only Modalities' merge writes, its variant."""
    return legacy_format(row) if any(source.shift < 0 for source in sources) else row


def _result(sources: Sequence[Source], target: AnyPath, n_bytes: int, empty: EmptyDocuments) -> EditResult:
    n_documents = sum(source.n_documents for source in sources) - empty.n_dropped
    n_tokens = _n_tokens(sources)
    return EditResult(target, n_documents, n_tokens, n_bytes, len(sources), n_empty_dropped=empty.n_dropped)


def _n_tokens(sources: Sequence[Source]) -> int:
    return sum(source.n_tokens for source in sources)


def merge_packed_data_files(src_paths: Sequence[PathLike], target_path: PathLike) -> EditResult:
    """Call `merge_packed_data`, with the name and arguments of Modalities' API.

    Parameters
    ----------
    src_paths
        The packed files, or folders of them.
    target_path
        The merged file.

    Returns
    -------
    EditResult
        The result of `merge_packed_data`.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append([1, 2, 3])
    >>> fastpack.modalities.merge_packed_data_files([writer.path], f"{folder.name}/all.pbin").documents
    1
    >>> folder.cleanup()
    """
    return merge_packed_data(src_paths, target_path)


def find_sources(given: Sequence[PathLike], target: AnyPath, row: TokenFormat) -> list[AnyPath]:
    """Return the files to merge, in order: the given ones, and those of the target's format below directories.

    For formats without document boundaries or without a suffix, the files of directories are packed files.
    """
    found: list[AnyPath] = []
    target_exists = exists(target)
    suffixes = row.suffixes if row.stores_documents and row.suffixes else (".pbin",)
    for path in map(as_path, given):
        if path.is_dir() and not is_interop(path, names_in(path), *FOLDER_FORMATS):
            below = (file for suffix in suffixes for file in path.glob(f"**/*{suffix}") if file.is_file())
            found += sorted(file for file in below if not (target_exists and same_file(file, target)))
        else:
            found.append(path)
    if not found:
        places = ", ".join(str(path) for path in given) or "no source"
        raise ValueError(f"no {' or '.join(suffixes)} file in {places}: nothing to merge")
    often = [path for path, count in Counter(real_path(file) for file in found).items() if count > 1]
    if often:
        warnings.warn(f"merged more than once: {', '.join(often)}", DataWarning, stacklevel=3)
    return found


def read_sources(
    paths: Sequence[PathLike],
    asked_size: int | None,
    compat: Compat,
    *,
    headers_only: bool = False,
    mix_tokenizers: bool = False,
    eos_token_id: int | None = None,
) -> tuple[list[Source], int]:
    """Check and return the sources, and the token size of the result. ValueError for different tokenizers, or sizes.

    `headers_only`: do not read indexes; then `n_documents` and `shift` are meaningless.
    """
    if asked_size not in (None, *TOKEN_SIZES):
        raise ValueError(f"token size {asked_size!r}: tokens take 1, 2 or 4 bytes")
    sources: list[Source] = []
    tokenizers = CommonFingerprint(mix_tokenizers)
    bases: list[int] = []  # what the stored starts count from, in bytes
    for path in paths:
        with open_source(path, eos_token_id) as file:
            n_documents = 0 if headers_only else file.n_documents or 0
            bases.append(stored_base(file, headers_only=headers_only) if compat is not None else 0)
            fingerprint = tokenizers.add_file(file)
            size = file.dtype.itemsize
            sources.append(Source(os.fspath(path), size, file.n_tokens, n_documents, 0, fingerprint, eos_token_id))
    size = _common_size(sources) if asked_size is None else asked_size
    for source in sources:
        if source.token_size > size:
            raise ValueError(f"{source.path} has tokens of {source.token_size} bytes, which {size} cannot hold")
    end = 0
    for number, (source, base) in enumerate(zip(sources, bases, strict=True)):
        sources[number] = source._replace(shift=end + base // size)  # Modalities copies the index unchanged
        end += source.n_tokens - (HEADER_BYTES // size if compat is not None else 0)
    return sources, size


def _common_size(sources: Sequence[Source]) -> int:
    first = {source.token_size: source.path for source in reversed(sources)}
    if len(first) > 1:
        named = ", ".join(f"{size} in {path}" for size, path in sorted(first.items()))
        raise ValueError(
            f"the token sizes differ, perhaps because of different tokenizers: bytes per token are {named}. Give the "
            "token size of the result if all tokens are of one vocabulary"
        )
    return sources[0].token_size


def _open(source: Source) -> TokenFile:
    file = open_source(source.path, source.eos_token_id, checked=True)
    if file.n_tokens != source.n_tokens or file.dtype.itemsize != source.token_size:
        raise JobError(f"{source.path} changed while it was merged")
    return file


def read_tokens(source: Source, start: int, end: int) -> Iterator[npt.NDArray[Any]]:
    """Yield the tokens [start, end) of a source in blocks."""
    with _open(source) as file:
        for segment in file.segments():
            for _, tokens in stored_blocks(segment, _BLOCK, max(0, start), min(end, segment.length)):
                yield tokens
            start, end = start - segment.length, end - segment.length


def _rows(sources: Sequence[Source]) -> Iterator[Rows]:
    for source in sources:
        with _open(source) as file:
            if file.n_documents != source.n_documents:
                raise JobError(f"{source.path} changed while it was merged")
            for first in range(0, source.n_documents, BLOCK_ROWS):
                rows = file.document_rows(first, first + BLOCK_ROWS)
                rows[:, 0] += source.shift
                yield rows
