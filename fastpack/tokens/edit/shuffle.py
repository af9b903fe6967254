"""The documents of a packed file, or the lines of a JSONL file, in random order: Modalities' for the same seed."""

from __future__ import annotations

from collections.abc import Sequence

from fastpack.io import ExistencePolicy, PathLike, Progress, as_path
from fastpack.tokens.edit.document_spans import Collection, packed_spans
from fastpack.tokens.edit.edit_result import Compat, EditResult, check_compat, is_kept
from fastpack.tokens.edit.line_spans import complete_lines, line_spans
from fastpack.tokens.edit.ordered_writing import Edit, write_edit
from fastpack.tokens.edit.shuffle_orders import Seed, stdlib_order
from fastpack.tokens.pbin.packed_file import PackedFile


def shuffle_tokenized_data(
    input_data_path: PathLike,
    output_data_path: PathLike,
    batch_size: int = 100,
    file_existence_policy: ExistencePolicy = "error",
    seed: Seed = None,
    *,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Write the documents of a packed file (of any generation) in the order of `random.Random(seed).shuffle`.

    The bytes are Modalities' for the same seed; without a seed each run has its own order. batch_size is checked and
    has no effect on anything. Memory: 28 bytes a document and up to 0.5 GiB. dry_run writes nothing.
    progress(bytes written, in all).

    Raises FileNotFoundError and FormatError for the input, ValueError for an output that is the input, TargetExists (a
    ValueError) by the policy "error".
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    target = as_path(output_data_path)
    if is_kept([input_data_path], target, file_existence_policy):
        return EditResult(target, written=False, kept_existing=True)
    return write_edit(shuffled_documents([input_data_path], seed), target, file_existence_policy, progress, dry_run)


def shuffle_jsonl_data(
    input_data_path: PathLike,
    output_data_path: PathLike,
    file_existence_policy: ExistencePolicy = "error",
    seed: Seed = None,
    *,
    compat: Compat = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Write the lines of a JSONL file in the order of `random.Random(seed).shuffle`; lines are not looked into.

    The bytes are Modalities' for the same seed, but for one case: where the last line of the input has no newline and
    is not the last of the output, it gets one, with a DataWarning; Modalities joins it to the line that follows, as
    compat="modalities-0.5" does. Memory: 20 bytes a line and up to 0.5 GiB. dry_run writes nothing.
    progress(bytes written, in all). Raises as `shuffle_tokenized_data` does.
    """
    check_compat(compat)
    target = as_path(output_data_path)
    if is_kept([input_data_path], target, file_existence_policy):
        return EditResult(target, written=False, kept_existing=True)
    edit = shuffled_lines([input_data_path], seed, compat)
    return write_edit(edit, target, file_existence_policy, progress, dry_run)


def shuffled_documents(paths: Sequence[PathLike], seed: Seed) -> Edit:
    """The documents of the one packed file that `paths` names, shuffled."""
    (path,) = paths
    with PackedFile(path) as file:
        documents, size = Collection([packed_spans(file)]), file.token_size_in_bytes
    return Edit(documents, stdlib_order(documents.n_documents, seed), size)


def shuffled_lines(paths: Sequence[PathLike], seed: Seed, compat: Compat) -> Edit:
    """The lines of the one JSONL file that `paths` names, shuffled; warns as `shuffle_jsonl_data` does."""
    (path,) = paths
    sources = [line_spans(path)]
    order = stdlib_order(len(sources[0].rows), seed)
    if compat is None and len(order):
        sources = complete_lines(sources, paths, int(order[-1]))
    return Edit(Collection(sources), order, None)
