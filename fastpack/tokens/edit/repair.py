"""Repairs token files and indexes of JSON Lines files."""

from __future__ import annotations

from dataclasses import dataclass

from fastpack.argument_aliases import accept_aliases
from fastpack.display import Result, facts
from fastpack.documents.raw_index import write_raw_index
from fastpack.documents.repair_index import recover_raw_index
from fastpack.errors import JobError
from fastpack.io import AnyPath, ExistencePolicy, PathLike, as_path, may_write, real_path
from fastpack.tokens.formats import FORMATS
from fastpack.tokens.loss_mask import carried_mask
from fastpack.tokens.token_file import RecoveryOptions
from fastpack.tokens.tokenizer_fingerprint import carried_fingerprint, record_fingerprint, record_mask


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
    - The loss mask of a packed file is kept, as far as the tokens are.
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

    def is_written(problem: str) -> bool:
        return bool(problem) and not dry_run and (target is None or may_write(target, if_exists))

    for row in FORMATS:
        if row.recover is not None and source.suffix in row.suffixes:
            options = RecoveryOptions(
                eos_token_id=eos_token_id,
                token_size_in_bytes=token_size_in_bytes,
                in_place=target is None and not dry_run,
            )
            found = row.recover(source, options)
            where = source if target is None else target
            if written := is_written(found.problem):
                fingerprint, mask = None, found.mask
                if source.exists():  # it is not unfinished
                    fingerprint, mask = carried_fingerprint(source), carried_mask(source, found.n_tokens)
                found.write(target)
                if fingerprint is not None or target is not None:
                    record_fingerprint(where, fingerprint)
                record_mask(where, mask)
            return RepairResult(where, found.problem, found.n_documents, found.n_tokens, found.lost_bytes, written)
    if source.suffix in (".jsonl", ".idx") and not source.name.endswith(".jsonl.idx"):
        index = recover_raw_index(source.with_suffix(".jsonl"))
        where = index.path if target is None else target
        if written := is_written(index.problem):
            write_raw_index(where, index.rows)
        return RepairResult(where, index.problem, len(index.rows), None, index.lost_bytes, written)
    raise JobError(f"{source}: not a .pbin, .jsonl or .idx file (`fastpack prepare` rebuilds other indexes)")
