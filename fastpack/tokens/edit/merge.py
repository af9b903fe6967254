"""Concatenates packed files."""

from __future__ import annotations

import os
import pickle
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.argument_aliases import accept_aliases
from fastpack.errors import DataWarning, JobError
from fastpack.io import (
    AnyPath,
    AtomicFile,
    ExistencePolicy,
    PathLike,
    Progress,
    as_path,
    drop_pages,
    exists,
    real_path,
    same_file,
)
from fastpack.tokens.edit.edit_result import Compat, EditResult, check_compat, is_kept
from fastpack.tokens.pbin.layout import HEADER, HEADER_BYTES, INDEX_BASES
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.pbin.packed_index import BLOCK_ROWS, index_size, write_index
from fastpack.tokens.token_writer import TOKEN_SIZES

_BLOCK = 8 << 20  # bytes copied at once


class Source(NamedTuple):
    """A source of the merge. `shift` is added to the offsets of its index, in bytes."""

    path: str
    generation: int
    token_size: int
    n_tokens: int
    n_documents: int
    shift: int


@accept_aliases(file_existence_policy="if_exists")
def merge_packed_data(
    src_paths: PathLike | Sequence[PathLike],
    target_path: PathLike,
    *,
    compat: Compat = None,
    token_size_in_bytes: int | None = None,
    if_exists: ExistencePolicy = "error",
    progress: Progress | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Concatenate packed files of any generations into one file of the current generation.

    Documents keep their order, and sources are used in the given order.

    Parameters
    ----------
    src_paths
        Packed files and directories. A directory stands for all `.pbin` files below it except the target, sorted by
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
    progress
        Called with (bytes of tokens written, total bytes).
    dry_run
        Return the result without writing the output.

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
        If the target is one of the sources, there is no packed file, or the token sizes differ.
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
    target = as_path(target_path)
    paths = find_sources(given, target)
    if is_kept(paths, target, if_exists):
        return EditResult(target, sources=len(paths), written=False, kept_existing=True)
    sources, size = read_sources(paths, token_size_in_bytes, compat)
    if dry_run:
        n_bytes = HEADER_BYTES + _n_tokens(sources) * size + _index_bytes(sources, size)
        return replace(_result(sources, target, n_bytes), written=False)

    def put_tokens(output: AtomicFile) -> None:
        total = _n_tokens(sources) * size
        for source in sources:
            for _ in copy_tokens(source, 0, source.n_tokens, size, output):
                if progress is not None:
                    progress(output.tell() - HEADER_BYTES, total)

    return write_merged(sources, size, target, if_exists, put_tokens)


def write_merged(
    sources: Sequence[Source],
    size: int,
    target: AnyPath,
    policy: ExistencePolicy,
    put_tokens: Callable[[AtomicFile], object],
) -> EditResult:
    """Write the merged file; `put_tokens` writes the tokens of all sources, `size` bytes each."""
    n_bytes = _n_tokens(sources) * size
    with AtomicFile(target, policy=policy) as output:
        output.write(HEADER[5].pack(n_bytes, size))
        output.reserve(n_bytes)
        put_tokens(output)
        _write_index(sources, size, output)
        return _result(sources, target, output.tell())


def _result(sources: Sequence[Source], target: AnyPath, n_bytes: int) -> EditResult:
    n_documents = sum(source.n_documents for source in sources)
    return EditResult(target, n_documents, _n_tokens(sources), n_bytes, len(sources))


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


def find_sources(given: Sequence[PathLike], target: AnyPath) -> list[AnyPath]:
    """Return the packed files to merge, in order: the given files, and those below the given directories."""
    found: list[AnyPath] = []
    target_exists = exists(target)
    for path in map(as_path, given):
        if path.is_dir():
            below = (file for file in path.glob("**/*.pbin") if file.is_file())
            found += sorted(file for file in below if not (target_exists and same_file(file, target)))
        else:
            found.append(path)
    if not found:
        raise ValueError(f"no .pbin file in {', '.join(str(path) for path in given) or 'no source'}: nothing to merge")
    often = [path for path, count in Counter(real_path(file) for file in found).items() if count > 1]
    if often:
        warnings.warn(f"merged more than once: {', '.join(often)}", DataWarning, stacklevel=3)
    return found


def read_sources(
    paths: Sequence[PathLike], asked_size: int | None, compat: Compat, *, headers_only: bool = False
) -> tuple[list[Source], int]:
    """Check and return the sources, and the token size of the result.

    `headers_only`: do not read indexes; then `n_documents` and `shift` are meaningless, and generation 4 appears as 5.
    """
    if asked_size not in (None, *TOKEN_SIZES):
        raise ValueError(f"token size {asked_size!r}: tokens take 1, 2 or 4 bytes")
    sources: list[Source] = []
    for path in paths:
        with PackedFile(path) as file:
            generation, n_documents = (file.layout.generation, 0) if headers_only else (file.generation, len(file))
            size, n_tokens = file.token_size_in_bytes, file.n_tokens
        if compat is not None and generation < 4:
            raise ValueError(f"{path} is of generation {generation}, which Modalities 0.5 cannot read: compat=None can")
        sources.append(Source(os.fspath(path), generation, size, n_tokens, n_documents, 0))
    size = _common_size(sources) if asked_size is None else asked_size
    for source in sources:
        if source.token_size > size:
            raise ValueError(f"{source.path} has tokens of {source.token_size} bytes, which {size} cannot hold")
    end = 0
    for number, source in enumerate(sources):
        own_base = (
            INDEX_BASES[source.generation][0] if compat is not None else 0
        )  # Modalities copies the index unchanged
        sources[number] = source._replace(shift=end + own_base)
        end += source.n_tokens * size - (HEADER_BYTES if compat is not None else 0)
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


def _open(source: Source) -> PackedFile:
    file = PackedFile(source.path, generation=source.generation)
    if file.n_tokens != source.n_tokens or file.token_size_in_bytes != source.token_size:
        raise JobError(f"{source.path} changed while it was merged")
    return file


def copy_tokens(source: Source, start: int, end: int, size: int, output: AtomicFile) -> Iterator[None]:
    """Write the tokens [start, end) of a source, `size` bytes each, one block per step."""
    with _open(source) as file:
        dtype, step = np.dtype(f"<u{size}"), _BLOCK // size
        for first in range(start, end, step):
            tokens = file.tokens(first, min(first + step, end))
            output.write(tokens if tokens.dtype == dtype else tokens.astype(dtype))
            at = file.data_offset + first * source.token_size
            drop_pages(file.content, at, at + tokens.nbytes)
            yield


def _index_blocks(sources: Sequence[Source], size: int) -> Iterator[npt.NDArray[np.int64]]:
    for source in sources:
        with _open(source) as file:
            if len(file) != source.n_documents:
                raise JobError(f"{source.path} changed while it was merged")
            for first in range(0, source.n_documents, BLOCK_ROWS):
                rows = file.index[first : first + BLOCK_ROWS] * (size // source.token_size)
                rows[:, 0] += source.shift
                yield rows


def _write_index(sources: Sequence[Source], size: int, output: AtomicFile) -> None:
    if _has_negative_offsets(sources):
        output.write(_pickle(sources, size))
    else:
        write_index(output.write, _index_blocks(sources, size))


def _index_bytes(sources: Sequence[Source], size: int) -> int:
    if _has_negative_offsets(sources):
        return len(_pickle(sources, size))
    return index_size(_index_blocks(sources, size))


def _has_negative_offsets(sources: Sequence[Source]) -> bool:
    """Whether offsets may be negative, as Modalities' are after a file with fewer than 12 bytes of tokens."""
    return any(source.shift < 0 for source in sources)


def _pickle(sources: Sequence[Source], size: int) -> bytes:
    rows = np.concatenate([np.empty((0, 2), np.int64), *_index_blocks(sources, size)])
    return pickle.dumps(list(map(tuple, rows.tolist())), protocol=4)
