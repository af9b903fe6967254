"""Packed files one behind the other in one file."""

from __future__ import annotations

import os
import pickle
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.build.editing.results import (
    BLOCK_ROWS,
    Compat,
    EditResult,
    check_compat,
    index_size,
    is_kept,
)
from fastpack.errors import DataWarning, JobError
from fastpack.files import (
    AnyPath,
    AtomicFile,
    ExistencePolicy,
    PathLike,
    Progress,
    as_path,
    drop_pages,
    real_path,
    same_file,
)
from fastpack.formats.pbin import PackedFile
from fastpack.formats.pbin_layout import HEADER, HEADER_BYTES, INDEX_BASES, TOKEN_SIZES
from fastpack.formats.pickled_index import IndexEncoder

_BLOCK = 8 << 20  # bytes copied at once


class _Part(NamedTuple):
    """A source: what it will add. shift: to its index entries, in bytes."""

    path: str
    generation: int
    token_size: int
    n_tokens: int
    n_documents: int
    shift: int


def merge_packed_data(
    src_paths: PathLike | Sequence[PathLike],
    target_path: PathLike,
    *,
    compat: Compat = None,
    token_size_in_bytes: int | None = None,
    file_existence_policy: ExistencePolicy = "error",
    progress: Progress | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Merge packed files of any generations into one of today's, documents in the order of the sources.

    A directory stands for all `.pbin` files below it, sorted by path, the target not among them. Modalities writes a
    wrong index, 12 bytes too low for each file before: compat="modalities-0.5" writes the same bytes (of files that it
    can read; directories are sorted all the same). token_size_in_bytes: of the target, for sources whose tokens differ
    in size; narrower ones are widened. dry_run writes nothing. progress(bytes of tokens written, in all).

    Raises FileNotFoundError for a missing source; FormatError, naming it, for a damaged one; TargetExists (a ValueError
    and FileExistsError) by the policy "error"; ValueError for a target that is one of the sources, sources without a
    packed file, and tokens of different sizes; JobError when a source changes meanwhile.
    """
    check_compat(compat)
    given = [src_paths] if isinstance(src_paths, (str, os.PathLike)) else list(src_paths)
    target = as_path(target_path)
    paths = _find_sources(given, target)
    if is_kept(paths, target, file_existence_policy):
        return EditResult(target, sources=len(paths), written=False, kept_existing=True)
    parts, size = _plan(paths, token_size_in_bytes, compat)
    n_tokens = sum(part.n_tokens for part in parts)
    if dry_run:
        n_bytes = HEADER_BYTES + n_tokens * size + _index_bytes(parts, size)
    else:
        with AtomicFile(target, policy=file_existence_policy) as output:
            output.write(HEADER[5].pack(n_tokens * size, size))
            output.reserve(n_tokens * size)
            for part in parts:
                _copy_tokens(part, size, output, n_tokens * size, progress)
            _write_index(parts, size, output)
            n_bytes = output.tell()
    n_documents = sum(part.n_documents for part in parts)
    return EditResult(target, n_documents, n_tokens, n_bytes, len(parts), written=not dry_run)


def merge_packed_data_files(src_paths: Sequence[PathLike], target_path: PathLike) -> EditResult:
    """`merge_packed_data` under the name and with the arguments of Modalities' API."""
    return merge_packed_data(src_paths, target_path)


def _find_sources(given: Sequence[PathLike], target: AnyPath) -> list[AnyPath]:
    found: list[AnyPath] = []
    for path in map(as_path, given):
        if path.is_dir():
            below = (file for file in path.glob("**/*.pbin") if file.is_file())
            found += sorted(file for file in below if not same_file(file, target))
        else:
            found.append(path)
    if not found:
        raise ValueError(f"no .pbin file in {', '.join(str(path) for path in given) or 'no source'}: nothing to merge")
    often = [path for path, count in Counter(real_path(file) for file in found).items() if count > 1]
    if often:
        warnings.warn(f"merged more than once: {', '.join(often)}", DataWarning, stacklevel=3)
    return found


def _plan(paths: Sequence[AnyPath], asked_size: int | None, compat: Compat) -> tuple[list[_Part], int]:
    """The parts, every one of them checked, and the token size they will have."""
    if asked_size not in (None, *TOKEN_SIZES):
        raise ValueError(f"token size {asked_size!r}: tokens take 1, 2 or 4 bytes")
    parts: list[_Part] = []
    for path in paths:
        with PackedFile(path) as file:
            generation, documents = file.generation, len(file)
            size, n_tokens = file.token_size_in_bytes, len(file.data)
        if compat is not None and generation < 4:
            raise ValueError(f"{path} is of generation {generation}, which Modalities 0.5 cannot read: compat=None can")
        parts.append(_Part(os.fspath(path), generation, size, n_tokens, documents, 0))
    size = _common_size(parts) if asked_size is None else asked_size
    for part in parts:
        if part.token_size > size:
            raise ValueError(f"{part.path} has tokens of {part.token_size} bytes, which {size} cannot hold")
    end = 0
    for number, part in enumerate(parts):
        own_base = INDEX_BASES[part.generation][0] if compat is not None else 0  # it takes indices as they stand
        parts[number] = part._replace(shift=end + own_base)
        end += part.n_tokens * size - (HEADER_BYTES if compat is not None else 0)
    return parts, size


def _common_size(parts: Sequence[_Part]) -> int:
    first = {part.token_size: part.path for part in reversed(parts)}
    if len(first) > 1:
        named = ", ".join(f"{size} in {path}" for size, path in sorted(first.items()))
        raise ValueError(
            f"tokens of different sizes, maybe of different tokenizers: bytes a token are {named}. Give the token size "
            "of the result if the tokens are of one vocabulary all the same"
        )
    return parts[0].token_size


def _open(part: _Part) -> PackedFile:
    file = PackedFile(part.path, generation=part.generation)
    if len(file.data) != part.n_tokens or file.token_size_in_bytes != part.token_size:
        raise JobError(f"{part.path} changed while it was merged")
    return file


def _copy_tokens(part: _Part, size: int, output: AtomicFile, total: int, progress: Progress | None) -> None:
    with _open(part) as file:
        dtype, step = np.dtype(f"<u{size}"), _BLOCK // size
        for first in range(0, part.n_tokens, step):
            tokens = file.data[first : first + step]
            output.write(tokens if tokens.dtype == dtype else tokens.astype(dtype))
            start = file.data_offset + first * part.token_size
            drop_pages(file.file, start, start + tokens.nbytes)
            if progress is not None:
                progress(output.tell() - HEADER_BYTES, total)


def _index_blocks(parts: Sequence[_Part], size: int) -> Iterator[npt.NDArray[np.int64]]:
    for part in parts:
        with _open(part) as file:
            if len(file) != part.n_documents:
                raise JobError(f"{part.path} changed while it was merged")
            for first in range(0, part.n_documents, BLOCK_ROWS):
                rows = file.index[first : first + BLOCK_ROWS] * (size // part.token_size)
                rows[:, 0] += part.shift
                yield rows


def _write_index(parts: Sequence[_Part], size: int, output: AtomicFile) -> None:
    if _negative(parts):
        output.write(_pickle(parts, size))
        return
    encoder = IndexEncoder(output.write)
    for rows in _index_blocks(parts, size):
        encoder.append(rows)
    encoder.close()


def _index_bytes(parts: Sequence[_Part], size: int) -> int:
    return len(_pickle(parts, size)) if _negative(parts) else index_size(_index_blocks(parts, size))


def _negative(parts: Sequence[_Part]) -> bool:
    """Whether entries may be negative, as Modalities' are behind a file of fewer than 12 bytes of tokens."""
    return any(part.shift < 0 for part in parts)


def _pickle(parts: Sequence[_Part], size: int) -> bytes:
    rows = np.concatenate([np.empty((0, 2), np.int64), *_index_blocks(parts, size)])
    return pickle.dumps(list(map(tuple, rows.tolist())), protocol=4)
