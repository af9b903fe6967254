"""Repairs packed files and indexes of JSON Lines files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack import kernels
from fastpack.argument_aliases import accept_aliases
from fastpack.display import Result, facts
from fastpack.documents.raw_index import write_raw_index
from fastpack.documents.repair_index import recover_raw_index
from fastpack.errors import FormatError, JobError
from fastpack.io import (
    AnyPath,
    AtomicFile,
    ExistencePolicy,
    PathLike,
    as_path,
    drop_pages,
    map_bytes,
    may_write,
    partial_path,
    real_path,
)
from fastpack.kernels.codecs.pickled_index_errors import IndexSyntaxError
from fastpack.tokens.journal import journal_path, read_journal
from fastpack.tokens.pbin.layout import HEADER, HEADER_BYTES, Layout, check_range, find_layout
from fastpack.tokens.pbin.legacy_merge import is_tiled, merge_borders, read_rows, settle, starts_in_order
from fastpack.tokens.pbin.packed_index import BLOCK_ROWS, index_rows, write_index
from fastpack.tokens.pbin.packed_writer import CheckpointedPackedWriter
from fastpack.tokens.token_writer import TOKEN_SIZES

_WINDOW = 64 << 20  # bytes searched at once
_INDEX_START = re.compile(rb"\x80\x04\x95.{8}\x5d\x94\x28?\x4b\x00", re.DOTALL)  # protocol 4, a frame, [, (, 0
_INDEX_START_BYTES = 16
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, repr=False)
class RepairResult(Result):
    """What `repair` found and wrote.

    Attributes
    ----------
    path
        The repaired file, or where it would be written.
    problem
        What was wrong; empty if the file is sound, and then nothing is written.
    documents
        Number of documents of the repaired file, or of lines of the index.
    tokens
        Number of tokens of the repaired file; None for an index.
    lost_bytes
        Bytes of the source that were left out, because they are not part of a complete document or line.
    written
        Whether the repaired file was written.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append_many([1, 0, 2, 0], [2, 2])
    >>> result = fastpack.repair(writer.path, dry_run=True)
    >>> result.problem, result.written
    ('', False)
    >>> folder.cleanup()
    """

    _shown = facts("path", "documents", "tokens", "lost_bytes", "written", "problem")

    path: AnyPath
    problem: str
    documents: int = 0
    tokens: int | None = None
    lost_bytes: int = 0
    written: bool = False


@accept_aliases(file_existence_policy="if_exists")
def repair(
    path: PathLike,
    output_path: PathLike | None = None,
    *,
    in_place: bool = False,
    eos_token_id: int | None = None,
    token_size_in_bytes: int | None = None,
    if_exists: ExistencePolicy = "error",
    dry_run: bool = False,
) -> RepairResult:
    """Repair a damaged packed file or the index of a JSON Lines file. A sound file is left alone.

    - An index with the offsets of Modalities' merge is corrected.
    - A file that fastpack did not finish writing ends at its last checkpoint.
    - If the index or the header is lost or wrong, documents are found by their end-of-document tokens
      (`eos_token_id`). A truncated file ends with its last complete document.
    - The index of a JSON Lines file is rebuilt, without lines that are not JSON.

    Parameters
    ----------
    path
        A `.pbin` file, or a `.jsonl` file or its `.idx`.
    output_path
        The repaired file.
    in_place
        Replace the damaged file, which is kept until the new one is complete.
    eos_token_id
        The end-of-document token, needed if the index is lost.
    token_size_in_bytes
        The token size, needed if the header is lost.
    if_exists
        What to do if the output exists: "error", "skip" or "overwrite".
    dry_run
        Return the result without writing the output.

    Returns
    -------
    RepairResult
        The problem, and what was written.

    Raises
    ------
    ValueError
        Unless exactly one of `output_path` and `in_place` is given (or none, with `dry_run`).
    FileNotFoundError
        If there is no such file.
    TargetExists
        If the output exists and the policy is "error" (a ValueError).
    JobError
        If nothing can be recovered, or an argument is missing for it.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> damaged = pathlib.Path(folder.name, "a.pbin")
    >>> with fastpack.PackedWriter(damaged, 2) as writer:
    ...     writer.append_many([1, 0, 2, 0], [2, 2])
    >>> _ = damaged.write_bytes(damaged.read_bytes()[:19])  # a copy that was cut off
    >>> result = fastpack.repair(damaged, in_place=True, eos_token_id=0)
    >>> result.documents, result.lost_bytes
    (1, 3)
    >>> fastpack.PackedFile(damaged)[0].tolist()
    [1, 0]
    >>> folder.cleanup()
    """
    if output_path is not None and (in_place or real_path(output_path) == real_path(path)):
        raise ValueError("the output is the damaged file: pass in_place instead of an output")
    if output_path is None and not (in_place or dry_run):
        raise ValueError("no output is given: pass an output, or in_place")
    source = as_path(path)
    target = None if output_path is None else as_path(output_path)
    if source.suffix == ".pbin":
        return _repair_packed(source, target, eos_token_id, token_size_in_bytes, if_exists, dry_run)
    if source.suffix in (".jsonl", ".idx") and not source.name.endswith(".jsonl.idx"):
        return _repair_index(source.with_suffix(".jsonl"), target, if_exists, dry_run)
    raise JobError(f"{source}: not a .pbin, .jsonl or .idx file (`fastpack prepare` rebuilds other indexes)")


def _repair_index(raw: AnyPath, target: AnyPath | None, policy: ExistencePolicy, dry_run: bool) -> RepairResult:
    index = recover_raw_index(raw)
    where = index.path if target is None else target
    written = bool(index.problem) and not dry_run and (target is None or may_write(target, policy))
    if written:
        write_raw_index(where, index.rows)
    return RepairResult(where, index.problem, len(index.rows), None, index.lost_bytes, written)


def _repair_packed(
    source: AnyPath, target: AnyPath | None, eos: int | None, size: int | None, policy: ExistencePolicy, dry_run: bool
) -> RepairResult:
    if not source.exists() and os.path.exists(partial_path(source)):
        if os.path.exists(journal_path(source)):
            return _finish(source, target, policy, dry_run)
        if target is None and not dry_run:
            raise JobError(f"{source} was begun and has no checkpoint: give another output")
        recovered = recover(as_path(partial_path(source)), eos, size)
    else:
        recovered = recover(source, eos, size)
    n_tokens = recovered.layout.data_length // recovered.layout.token_size
    where = source if target is None else target
    written = bool(recovered.problem) and not dry_run and (target is None or may_write(target, policy))
    if written:
        _write(recovered, where)
    return RepairResult(where, recovered.problem, len(recovered.rows), n_tokens, recovered.lost_bytes, written)


def _write(recovered: RecoveredFile, target: AnyPath) -> None:
    size, n_bytes = recovered.layout.token_size, recovered.layout.data_length
    with AtomicFile(target) as output:
        output.write(HEADER[5].pack(n_bytes, size))
        output.reserve(n_bytes)
        for tokens in recovered.blocks():
            output.write(tokens)
        rows = recovered.rows
        write_index(output.write, (rows[first : first + BLOCK_ROWS] for first in range(0, len(rows), BLOCK_ROWS)))


def _finish(source: AnyPath, target: AnyPath | None, policy: ExistencePolicy, dry_run: bool) -> RepairResult:
    """Finish a file whose writer was killed, at its last checkpoint."""
    frames = list(read_journal(journal_path(source)))
    if len(frames) < 2:
        raise JobError(f"{source} was begun and has no checkpoint: nothing can be recovered")
    first, size = frames[0][0], int(frames[0][0]["token_size"])
    n_tokens = int(frames[-1][0]["tokens"])
    lengths = np.frombuffer(b"".join(frame[1] for frame in frames[1:]), np.int64)
    partial = map_bytes(partial_path(source))
    layout = Layout(5, HEADER_BYTES, n_tokens * size, size)
    lost = len(partial) - layout.index_offset
    if lost < 0 or int(lengths.sum()) != n_tokens:
        raise FormatError(journal_path(source), 0, f"{n_tokens} tokens", f"those of {partial_path(source)}")
    where = source if target is None else target
    written = not dry_run and (target is None or may_write(target, policy))
    if written and target is None:
        writer = CheckpointedPackedWriter(source, size, first["identity"], resume=True)
        if writer.n_tokens != n_tokens:
            writer.suspend()
            raise JobError(f"{source}: another process continued to write it")
        writer.close()
    elif written:
        rows = np.concatenate([np.empty((0, 2), np.int64), *index_rows([lengths], size)])
        _write(RecoveredFile(partial, layout, rows, "", lost), where)
    return RepairResult(where, "an unfinished pack", len(lengths), n_tokens, lost, written)


class RecoveredFile(NamedTuple):
    """What can be recovered of a packed file: its tokens, as `layout` locates them, and the index.

    `problem` is empty if the file is sound. `lost_bytes` counts the bytes that are not part of a complete document.
    """

    file: npt.NDArray[np.uint8]
    layout: Layout
    rows: Rows
    problem: str
    lost_bytes: int = 0

    def blocks(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the tokens in blocks, little-endian."""
        size, layout = self.layout.token_size, self.layout
        for start in range(layout.data_offset, layout.index_offset, _WINDOW):
            end = min(start + _WINDOW, layout.index_offset)
            yield _tokens(self.file, layout, start, end).astype(f"<u{size}", copy=False)
            drop_pages(self.file, start, end)


def recover(path: AnyPath, eos: int | None, token_size: int | None) -> RecoveredFile:
    """Recover a packed file; if the index is lost, documents are found by the token `eos` that ends each of them.

    `token_size`: for files whose header does not contain it. Raises JobError if one of the two is needed and not given,
    or no document is found, and FormatError if the file is not a packed file.
    """
    file = map_bytes(path)
    try:
        layout = find_layout(file, path)
    except FormatError as error:
        return _without_layout(file, path, error, eos, token_size)
    try:
        rows, rest = read_rows(file, path, layout)
    except FormatError as error:
        _check_certain(path, layout, token_size)
        return _by_eos(path, file, layout, eos, f"an index that cannot be read: {error}")
    layout = settle(rows, layout)
    borders = merge_borders(rows, layout.data_length)
    if borders:
        right = starts_in_order(rows, layout.data_length)
        assert right is not None
        problem = f"offsets of Modalities 0.5's merge, 12 bytes more too low at {borders} places"
        return RecoveredFile(file, layout, np.stack([right, rows[:, 1]], axis=1), problem)
    try:
        check_range(rows, layout, path)
    except FormatError as error:
        _check_certain(path, layout, token_size)
        return _by_eos(path, file, layout, eos, f"an index that does not fit the data: {error}")
    if layout.data_length and not len(rows):
        return _by_eos(path, file, layout, eos, "an index of no documents")
    problem = f"{len(rest)} bytes after the index" if len(rest) else ""
    return RecoveredFile(file, layout, rows, problem, len(rest))


def _check_certain(path: AnyPath, layout: Layout, token_size: int | None) -> None:
    """Raise JobError for a generation that only the index proves, unless the user gives its token size."""
    if layout.generation < 4 and layout.token_size != token_size:
        raise JobError(
            f"{path}: its index is damaged; it looks like a packed file of generation {layout.generation} with tokens "
            f"of {layout.token_size} bytes: give that token size if it is one"
        )


def _without_layout(
    file: npt.NDArray[np.uint8], path: AnyPath, error: FormatError, eos: int | None, token_size: int | None
) -> RecoveredFile:
    """Recover a file of generation 4 or 5 that is truncated or unfinished."""
    if len(file) < HEADER_BYTES:
        raise error
    length, stored_size = HEADER[5].unpack(file[:HEADER_BYTES].tobytes())
    size = token_size or stored_size
    if size not in TOKEN_SIZES:
        raise JobError(f"{error}: give the token size, if it is a packed file")
    problem = f"cut off: {error.found}"
    end = len(file)
    rows: Rows | None = None
    if HEADER_BYTES + length == len(file):
        problem = "no index"
    elif HEADER_BYTES + length < len(file):
        problem = "an unfinished pack"
        end, rows = _find_index(file, size)
    n_bytes = (end - HEADER_BYTES) // size * size
    layout = Layout(5, HEADER_BYTES, n_bytes, size)
    if rows is not None:
        return RecoveredFile(file, layout, rows, f"{problem}, of which only the header is missing")
    return _by_eos(path, file, layout, eos, problem, is_cut=True)


def _find_index(file: npt.NDArray[np.uint8], size: int) -> tuple[int, Rows | None]:
    """Find where the index begins; return it if it is complete. Without an index, return the end of the file."""
    for start in range(HEADER_BYTES, len(file), _WINDOW):
        window = file[start : start + _WINDOW + _INDEX_START_BYTES - 1]
        for match in _INDEX_START.finditer(window.data):
            place = start + match.start()
            try:
                rows, n_bytes, _ = kernels.decode_index(file[place:])
            except IndexSyntaxError as error:
                if (place - HEADER_BYTES) % size == 0 and place + error.offset > len(file) - 20:  # it is truncated
                    return place, None
                continue
            if place + n_bytes == len(file) and is_tiled(rows, place - HEADER_BYTES):
                return place, rows
        drop_pages(file, start, start + len(window))
    return len(file), None


def _by_eos(
    path: AnyPath, file: npt.NDArray[np.uint8], layout: Layout, eos: int | None, problem: str, *, is_cut: bool = False
) -> RecoveredFile:
    """Find documents by their EOS tokens; the tokens after the last one are left out if the file is truncated."""
    if eos is None:
        raise JobError(f"{path}: {problem}. Give the end-of-document token: its documents can be found by it")
    size = layout.token_size
    found: list[Rows] = []
    for start in range(layout.data_offset, layout.index_offset, _WINDOW):
        end = min(start + _WINDOW, layout.index_offset)
        tokens = _tokens(file, layout, start, end)
        found.append(np.flatnonzero(tokens == eos) + 1 + (start - layout.data_offset) // size)
        drop_pages(file, start, end)
    ends = np.concatenate([*found, np.empty(0, np.int64)]) * size
    if not len(ends):
        raise JobError(f"{path}: {problem}, and no token {eos} in it that ends a document")
    if int(ends[-1]) < layout.data_length and not is_cut:
        ends = np.append(ends, layout.data_length)
    starts = np.concatenate(([0], ends[:-1]))
    lost = len(file) - layout.data_offset - int(ends[-1]) if is_cut else 0
    whole = layout._replace(data_length=int(ends[-1]))
    return RecoveredFile(file, whole, np.stack([starts, ends - starts], axis=1), problem, lost)


def _tokens(file: npt.NDArray[np.uint8], layout: Layout, start: int, end: int) -> npt.NDArray[Any]:
    return file[start:end].view(f"{'<' if layout.generation >= 4 else '>'}u{layout.token_size}")
