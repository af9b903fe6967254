"""One of n chunks of a dataset of many files, shuffled: Modalities' bytes for the same seed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fastpack.io import AnyPath, ExistencePolicy, PathLike, Progress, as_path
from fastpack.tokens.edit.document_spans import Collection, Spans, packed_spans
from fastpack.tokens.edit.edit_result import Compat, EditResult, check_compat, is_kept
from fastpack.tokens.edit.line_spans import complete_lines, line_spans
from fastpack.tokens.edit.ordered_writing import Edit, write_edit
from fastpack.tokens.edit.shuffle_orders import Order, check_chunk, chunk_range, chunk_seed, numpy_order
from fastpack.tokens.pbin.packed_file import PackedFile


def create_shuffled_dataset_chunk(
    file_path_list: Sequence[PathLike],
    output_chunk_file_path: PathLike,
    chunk_id: int,
    num_chunks: int,
    file_existence_policy: ExistencePolicy = "error",
    global_seed: int | None = None,
    *,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Write chunk `chunk_id` of `num_chunks` of packed files (of any generations), its documents shuffled.

    Each file gives its share of documents, in the order of the list; then they are shuffled by NumPy's default
    generator, seeded from `global_seed` and `chunk_id`: Modalities' bytes for the same seed, another order every time
    without one. Memory: 28 bytes a document of the chunk, 16 a document of the largest file, and up to 0.5 GiB.
    dry_run writes nothing. progress(bytes written, in all).

    Raises FileNotFoundError and FormatError for a file; ValueError for no such chunk, a chunk without documents, files
    whose token sizes differ, and an output that is one of the files; TargetExists (a ValueError) by the policy "error".
    """
    paths, target = _check(file_path_list, output_chunk_file_path, chunk_id, num_chunks)
    if is_kept(paths, target, file_existence_policy):
        return EditResult(target, sources=len(paths), written=False, kept_existing=True)
    edit = chunk_of_documents(paths, chunk_id, num_chunks, global_seed)
    return replace(write_edit(edit, target, file_existence_policy, progress, dry_run), sources=len(paths))


def create_shuffled_jsonl_chunk(
    file_path_list: Sequence[PathLike],
    output_chunk_file_path: PathLike,
    chunk_id: int,
    num_chunks: int,
    file_existence_policy: ExistencePolicy = "error",
    global_seed: int | None = None,
    *,
    compat: Compat = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> EditResult:
    """Write chunk `chunk_id` of `num_chunks` of JSONL files, shuffled as `create_shuffled_dataset_chunk` shuffles.

    The last line of a file that has no newline gets one, with a DataWarning, unless it is the last of the chunk;
    Modalities joins it to the line that follows, as compat="modalities-0.5" does. Memory: 20 bytes a line of the chunk,
    16 a line of the largest file, and up to 0.5 GiB. Raises as `create_shuffled_dataset_chunk` does.
    """
    check_compat(compat)
    paths, target = _check(file_path_list, output_chunk_file_path, chunk_id, num_chunks)
    if is_kept(paths, target, file_existence_policy):
        return EditResult(target, sources=len(paths), written=False, kept_existing=True)
    edit = chunk_of_lines(paths, chunk_id, num_chunks, global_seed, compat)
    return replace(write_edit(edit, target, file_existence_policy, progress, dry_run), sources=len(paths))


def create_shuffled_jsonl_dataset_chunk(
    file_path_list: Sequence[PathLike],
    output_chunk_file_path: PathLike,
    chunk_id: int,
    num_chunks: int,
    file_existence_policy: ExistencePolicy = "error",
    global_seed: int | None = None,
) -> EditResult:
    """`create_shuffled_jsonl_chunk` under the name it has in Modalities' API."""
    return create_shuffled_jsonl_chunk(
        file_path_list, output_chunk_file_path, chunk_id, num_chunks, file_existence_policy, global_seed
    )


def read_file_list(list_path: PathLike, root: PathLike, suffix: str) -> list[AnyPath]:
    """The files that a list names: a path below `root` a line, whose suffix is replaced by `suffix`."""
    lines = as_path(list_path).read_text(encoding="utf-8").splitlines()
    return [as_path(root) / as_path(line.strip()).with_suffix(suffix) for line in lines]


def _check(files: Sequence[PathLike], target: PathLike, chunk_id: int, num_chunks: int) -> tuple[list[str], AnyPath]:
    check_chunk(chunk_id, num_chunks)
    if not files:
        raise ValueError("no file to take a chunk of")
    return [os.fspath(path) for path in files], as_path(target)


def chunk_of_documents(paths: Sequence[PathLike], chunk_id: int, num_chunks: int, global_seed: int | None) -> Edit:
    """The documents of a chunk of packed files, shuffled."""
    sources: list[Spans] = []
    sizes: dict[int, str] = {}
    for path in paths:
        with PackedFile(path) as file:
            sizes.setdefault(file.token_size_in_bytes, os.fspath(path))
            sources.append(packed_spans(file, *chunk_range(len(file), chunk_id, num_chunks)))
    size = _only_size(sizes)
    return Edit(*_shuffled(sources, chunk_id, num_chunks, global_seed), size)


def common_token_size(paths: Sequence[PathLike]) -> int:
    """Bytes a token of these packed files takes, as their headers say. ValueError where it is not the same in all."""
    sizes: dict[int, str] = {}
    for path in paths:
        with PackedFile(path) as file:
            sizes.setdefault(file.token_size_in_bytes, os.fspath(path))
    return _only_size(sizes)


def _only_size(sizes: Mapping[int, str]) -> int:
    """The one token size there is; of each, the first file that has it."""
    if len(sizes) > 1:
        named = ", ".join(f"{size} in {path}" for size, path in sorted(sizes.items()))
        raise ValueError(f"All datasets must have the same token size in bytes: it is {named}")
    return min(sizes)


def chunk_of_lines(
    paths: Sequence[PathLike], chunk_id: int, num_chunks: int, global_seed: int | None, compat: Compat
) -> Edit:
    """The lines of a chunk of JSONL files, shuffled; warns as `create_shuffled_jsonl_chunk` does."""
    sources = [line_spans(path, lambda n: chunk_range(n, chunk_id, num_chunks)) for path in paths]
    lines, order = _shuffled(sources, chunk_id, num_chunks, global_seed)
    if compat is None:
        lines = Collection(complete_lines(sources, paths, int(order[-1])))
    return Edit(lines, order, None)


def _shuffled(
    sources: Sequence[Spans], chunk_id: int, num_chunks: int, global_seed: int | None
) -> tuple[Collection, Order]:
    collection = Collection(sources)
    if collection.n_documents == 0:
        raise ValueError(
            f"Chunk {chunk_id} has no samples. Please decrease the number of chunks ({num_chunks}) to at most that of "
            "the documents in the largest file."
        )
    return collection, numpy_order(collection.n_documents, chunk_seed(global_seed, chunk_id))
