"""`repair(path)`: a packed file or an index as it should be, as a new file."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastpack.display import Result, facts
from fastpack.documents.create_index import all_lines
from fastpack.documents.raw_index import write_raw_index
from fastpack.documents.raw_index_check import check_bounds, counts_characters, default_index_path
from fastpack.errors import FormatError, JobError
from fastpack.io import (
    AnyPath,
    AtomicFile,
    ExistencePolicy,
    PathLike,
    as_path,
    map_bytes,
    may_write,
    partial_path,
    pickled_index,
    real_path,
)
from fastpack.tokens.edit.recovery import Rescue, Rows, plan_rescue
from fastpack.tokens.journal import journal_path, read_journal
from fastpack.tokens.pbin.layout import HEADER, HEADER_BYTES, Layout
from fastpack.tokens.pbin.packed_writer import CheckpointedPackedWriter

_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, repr=False)
class RepairResult(Result):
    """What was repaired.

    path: what was written, or would be; problem: what was wrong, empty for nothing, and then nothing is written;
    documents (lines, of an index) and tokens: in what is written; lost_bytes: of the source, left out as they are no
    whole document or line.
    """

    _shown = facts("path", "documents", "tokens", "lost_bytes", "written", "problem")

    path: AnyPath
    problem: str
    documents: int = 0
    tokens: int | None = None
    lost_bytes: int = 0
    written: bool = False


def repair(
    path: PathLike,
    output_path: PathLike | None = None,
    *,
    in_place: bool = False,
    eos_token_id: int | None = None,
    token_size_in_bytes: int | None = None,
    file_existence_policy: ExistencePolicy = "error",
    dry_run: bool = False,
) -> RepairResult:
    """Write a damaged packed file, or the index of a JSON lines file, as it should be; a sound one is left alone.

    A `.pbin`: an index with the offsets of Modalities' merge is corrected; a pack that fastpack did not finish ends at
    its last checkpoint; a file whose index or header is lost or wrong gets an index by its end-of-document tokens
    (eos_token_id), each of which ends a document, and ends with its last whole document if it was cut off.
    token_size_in_bytes: for a file whose header does not tell. A `.jsonl`, or its `.idx`: the index is made anew, lines
    that are no JSON left out.

    output_path: where the repaired file goes; in_place: over the damaged one (which stays until the new one is whole).
    Raises ValueError unless just one of the two is given (none with dry_run), FileNotFoundError, TargetExists by the
    policy "error", JobError where nothing can be saved or an argument is missing for it.
    """
    if output_path is not None and (in_place or real_path(output_path) == real_path(path)):
        raise ValueError("the output is the damaged file itself: in_place alone says so")
    if output_path is None and not (in_place or dry_run):
        raise ValueError("nowhere to write: give an output, or say in_place")
    source = as_path(path)
    target = None if output_path is None else as_path(output_path)
    if source.suffix == ".pbin":
        result = _repair_packed(source, target, eos_token_id, token_size_in_bytes, file_existence_policy, dry_run)
    elif source.suffix in (".jsonl", ".idx") and not source.name.endswith(".jsonl.idx"):
        result = _repair_index(source.with_suffix(".jsonl"), target, file_existence_policy, dry_run)
    else:
        raise JobError(f"{source}: not a .pbin, .jsonl or .idx file (`fastpack prepare` writes the others anew)")
    return result


def _repair_packed(
    source: AnyPath, target: AnyPath | None, eos: int | None, size: int | None, policy: ExistencePolicy, dry_run: bool
) -> RepairResult:
    if not source.exists() and os.path.exists(partial_path(source)):
        if os.path.exists(journal_path(source)):
            return _finish(source, target, policy, dry_run)
        if target is None and not dry_run:
            raise JobError(f"{source} was begun and has no checkpoint: give another output")
        rescue = plan_rescue(as_path(partial_path(source)), eos, size)
    else:
        rescue = plan_rescue(source, eos, size)
    n_tokens = rescue.layout.data_length // rescue.layout.token_size
    where = source if target is None else target
    written = bool(rescue.problem) and not dry_run and (target is None or may_write(target, policy))
    if written:
        _write(rescue, where)
    return RepairResult(where, rescue.problem, len(rescue.rows), n_tokens, rescue.lost_bytes, written)


def _write(rescue: Rescue, target: AnyPath) -> None:
    size, n_bytes = rescue.layout.token_size, rescue.layout.data_length
    with AtomicFile(target) as output:
        output.write(HEADER[5].pack(n_bytes, size))
        output.reserve(n_bytes)
        for tokens in rescue.pieces():
            output.write(tokens)
        encoder = pickled_index.IndexEncoder(output.write)
        for first in range(0, len(rescue.rows), _BLOCK_ROWS):
            encoder.append(rescue.rows[first : first + _BLOCK_ROWS])
        encoder.close()


def _finish(source: AnyPath, target: AnyPath | None, policy: ExistencePolicy, dry_run: bool) -> RepairResult:
    """A pack that was killed, up to its last checkpoint."""
    frames = list(read_journal(journal_path(source)))
    if len(frames) < 2:
        raise JobError(f"{source} was begun and came to no checkpoint: nothing can be saved")
    first, size = frames[0][0], int(frames[0][0]["token_size"])
    n_tokens = int(frames[-1][0]["tokens"])
    lengths = np.frombuffer(b"".join(frame[1] for frame in frames[1:]), np.int64) * size
    partial = map_bytes(partial_path(source))
    layout = Layout(5, HEADER_BYTES, n_tokens * size, size)
    lost = len(partial) - layout.index_offset
    if lost < 0 or int(lengths.sum()) != layout.data_length:
        raise FormatError(journal_path(source), 0, f"{n_tokens} tokens", f"those of {partial_path(source)}")
    where = source if target is None else target
    written = not dry_run and (target is None or may_write(target, policy))
    if written and target is None:
        writer = CheckpointedPackedWriter(source, size, first["identity"], resume=True)
        if writer.n_tokens != n_tokens:
            writer.suspend()
            raise JobError(f"{source}: its pack went on meanwhile")
        writer.close()
    elif written:
        ends = np.cumsum(lengths)
        _write(Rescue(partial, layout, np.stack([ends - lengths, lengths], axis=1), "", lost), where)
    return RepairResult(where, "an unfinished pack", len(lengths), n_tokens, lost, written)


def _repair_index(raw: AnyPath, target: AnyPath | None, policy: ExistencePolicy, dry_run: bool) -> RepairResult:
    data, index = map_bytes(raw), default_index_path(raw)
    lines, are_json = all_lines(data)
    problem = _problem_of(index, data, lines, are_json)
    where = index if target is None else target
    right = lines[are_json]
    written = bool(problem) and not dry_run and (target is None or may_write(target, policy))
    if written:
        write_raw_index(where, right)
    return RepairResult(where, problem, len(right), None, int(lines[~are_json, 1].sum()), written)


def _problem_of(path: AnyPath, data: npt.NDArray[np.uint8], lines: Rows, are_json: npt.NDArray[np.bool_]) -> str:
    """What is wrong with an index of these lines; empty where its entries are lines and no line of JSON is missing."""
    if not path.exists():
        return "no index"
    try:
        index = pickled_index.decode(map_bytes(path), path, allow_trailing=False)
        check_bounds(index, len(data), path)
    except FormatError as error:
        return f"an index that cannot be used: {error}"
    if counts_characters(data, index):
        return "lengths of lines in characters"
    index = index[np.argsort(index[:, 0], kind="stable")]
    at = np.searchsorted(lines[:, 0], index[:, 0]).clip(max=max(0, len(lines) - 1))
    if len(index) and (not len(lines) or (lines[at] != index).any()):
        return "entries that are no lines"
    are_json = are_json.copy()
    are_json[at] = False
    return f"no entries for {np.count_nonzero(are_json)} lines" if are_json.any() else ""
