"""Writes one of n chunks of a dataset of many files, shuffled, with Modalities' bytes for the same seed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from fastpack.argument_aliases import accept_aliases
from fastpack.io import AnyPath, ExistencePolicy, PathLike, Progress, as_path
from fastpack.tokens.common_fingerprint import CommonFingerprint
from fastpack.tokens.document_masks import DocumentMasks
from fastpack.tokens.edit.document_collection import DocumentCollection
from fastpack.tokens.edit.edit_result import Compat, EditResult, check_compat
from fastpack.tokens.edit.edit_source import open_source
from fastpack.tokens.edit.edit_writer import Edit, edit_files
from fastpack.tokens.edit.jsonl_lines import complete_lines, line_spans
from fastpack.tokens.edit.shuffle_order import Order, check_chunk, chunk_range, chunk_seed, numpy_order
from fastpack.tokens.token_file import DocumentSpans, TokenFile
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint


@accept_aliases(file_existence_policy="if_exists")
def create_shuffled_dataset_chunk(
    file_path_list: Sequence[PathLike],
    output_chunk_file_path: PathLike,
    chunk_id: int,
    num_chunks: int,
    if_exists: ExistencePolicy = "error",
    global_seed: int | None = None,
    *,
    mix_tokenizers: bool = False,
    progress: Progress | None = None,
    dry_run: bool = False,
    format: str | None = None,
    eos_token_id: int | None = None,
) -> EditResult:
    """Write chunk `chunk_id` of `num_chunks` of token files, with its documents shuffled.

    Each file contributes its share of documents, in the order of the list; they are then shuffled by NumPy's default
    generator, seeded by `global_seed` and `chunk_id`. The bytes are those of Modalities for the same seed. Memory: 28
    bytes per document of the chunk, 16 per document of the largest file, and up to 0.5 GiB.

    Parameters
    ----------
    file_path_list
        Token files of any formats.
    output_chunk_file_path
        The output.
    chunk_id
        Number of the chunk, 0 <= chunk_id < num_chunks.
    num_chunks
        Number of chunks. Their sizes differ by at most one document per file.
    if_exists
        What to do if the output exists: "error", "skip" or "overwrite".
    global_seed
        Seed of all chunks. By default every call gives another order.
    mix_tokenizers
        Combine sources whose recorded tokenizers differ, with a DataWarning (see `TokenizerFingerprint`). By default
        they are refused.
    progress
        Called with (bytes written, total bytes).
    dry_run
        Return the result without writing the output.
    format
        Format of the output, such as "megatron"; default: by its suffix, else "pbin".
    eos_token_id
        The token that ends documents in sources without document boundaries (`npy`, `bin`, `llmc`, `nanogpt`).

    Returns
    -------
    EditResult
        Path, documents, tokens and size of the output.

    Raises
    ------
    FileNotFoundError, FormatError
        If a file does not exist or is damaged.
    TargetExists
        If the output exists and the policy is "error" (a ValueError).
    ValueError
        If there is no such chunk, the chunk has no documents, the token sizes or the tokenizers differ, or the output
        is one of the files.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append_many([1, 0, 2, 0, 3, 0], [2, 2, 2])
    >>> target = f"{folder.name}/chunk.pbin"
    >>> fastpack.create_shuffled_dataset_chunk([writer.path], target, 0, num_chunks=2, global_seed=1).documents
    2
    >>> folder.cleanup()
    """
    paths, target = _check(file_path_list, output_chunk_file_path, chunk_id, num_chunks)
    edit = partial(
        chunk_of_documents,
        chunk_id=chunk_id,
        num_chunks=num_chunks,
        global_seed=global_seed,
        mix_tokenizers=mix_tokenizers,
        eos_token_id=eos_token_id,
    )
    return edit_files(edit, paths, target, if_exists, progress, dry_run, format)


@accept_aliases(file_existence_policy="if_exists")
def create_shuffled_jsonl_chunk(
    file_path_list: Sequence[PathLike],
    output_chunk_file_path: PathLike,
    chunk_id: int,
    num_chunks: int,
    if_exists: ExistencePolicy = "error",
    global_seed: int | None = None,
    *,
    compat: Compat = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> EditResult:
    r"""Write chunk `chunk_id` of `num_chunks` of JSON Lines files, with its lines shuffled.

    Lines are chosen and shuffled as `create_shuffled_dataset_chunk` does with documents. If the last line of a file
    has no newline and is not the last line of the chunk, a newline is added, with a DataWarning. Memory: 20 bytes per
    line of the chunk, 16 per line of the largest file, and up to 0.5 GiB.

    Parameters
    ----------
    file_path_list
        JSON Lines files.
    output_chunk_file_path
        The output.
    chunk_id
        Number of the chunk, 0 <= chunk_id < num_chunks.
    num_chunks
        Number of chunks.
    if_exists
        What to do if the output exists: "error", "skip" or "overwrite".
    global_seed
        Seed of all chunks. By default every call gives another order.
    compat
        "modalities-0.5" concatenates a last line without newline and the line that follows it (as Modalities).
    progress
        Called with (bytes written, total bytes).
    dry_run
        Return the result without writing the output.

    Returns
    -------
    EditResult
        Path, number of lines and size of the output.

    Raises
    ------
    FileNotFoundError
        If a file does not exist.
    TargetExists
        If the output exists and the policy is "error" (a ValueError).
    ValueError
        If there is no such chunk, the chunk has no lines, or the output is one of the files.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = pathlib.Path(folder.name, "a.jsonl")
    >>> _ = source.write_text("1\n2\n3\n")
    >>> target = pathlib.Path(folder.name, "chunk.jsonl")
    >>> fastpack.create_shuffled_jsonl_chunk([source], target, 1, num_chunks=2, global_seed=1).documents
    1
    >>> target.read_text()
    '3\n'
    >>> folder.cleanup()
    """
    check_compat(compat)
    paths, target = _check(file_path_list, output_chunk_file_path, chunk_id, num_chunks)
    edit = partial(chunk_of_lines, chunk_id=chunk_id, num_chunks=num_chunks, global_seed=global_seed, compat=compat)
    return edit_files(edit, paths, target, if_exists, progress, dry_run)


def create_shuffled_jsonl_dataset_chunk(
    file_path_list: Sequence[PathLike],
    output_chunk_file_path: PathLike,
    chunk_id: int,
    num_chunks: int,
    file_existence_policy: ExistencePolicy = "error",
    global_seed: int | None = None,
) -> EditResult:
    r"""Call `create_shuffled_jsonl_chunk`, with the name and arguments of Modalities' API.

    Parameters
    ----------
    file_path_list, output_chunk_file_path, chunk_id, num_chunks, global_seed
        As for `create_shuffled_jsonl_chunk`.
    file_existence_policy
        As `if_exists` of `create_shuffled_jsonl_chunk`.

    Returns
    -------
    EditResult
        The result of `create_shuffled_jsonl_chunk`.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = pathlib.Path(folder.name, "a.jsonl")
    >>> _ = source.write_text("1\n2\n3\n")
    >>> target = pathlib.Path(folder.name, "chunk.jsonl")
    >>> fastpack.modalities.create_shuffled_jsonl_dataset_chunk([source], target, 0, num_chunks=3).documents
    1
    >>> folder.cleanup()
    """
    return create_shuffled_jsonl_chunk(
        file_path_list, output_chunk_file_path, chunk_id, num_chunks, file_existence_policy, global_seed
    )


def read_file_list(list_path: PathLike, root: PathLike, suffix: str) -> list[AnyPath]:
    """Read a list of files: one path relative to `root` per line, whose suffix is replaced by `suffix`."""
    lines = as_path(list_path).read_text(encoding="utf-8").splitlines()
    return [as_path(root) / as_path(line.strip()).with_suffix(suffix) for line in lines]


def _check(files: Sequence[PathLike], target: PathLike, chunk_id: int, num_chunks: int) -> tuple[list[str], AnyPath]:
    check_chunk(chunk_id, num_chunks)
    if not files:
        raise ValueError("no file to take a chunk of")
    return [os.fspath(path) for path in files], as_path(target)


def chunk_of_documents(
    paths: Sequence[PathLike],
    chunk_id: int,
    num_chunks: int,
    global_seed: int | None,
    mix_tokenizers: bool = False,
    eos_token_id: int | None = None,
) -> Edit:
    """Shuffle the documents of a chunk of token files."""
    sources: list[DocumentSpans] = []
    masks = DocumentMasks()

    def add_chunk(file: TokenFile) -> None:
        chosen = chunk_range(file.n_documents or 0, chunk_id, num_chunks)
        sources.extend(file.document_spans(*chosen))
        masks.add(file, *chosen)

    size, fingerprint = common_tokens(paths, add_chunk, mix_tokenizers=mix_tokenizers, eos_token_id=eos_token_id)
    return Edit(*_shuffled(sources, chunk_id, num_chunks, global_seed), size, fingerprint, masks)


def common_tokens(
    paths: Sequence[PathLike],
    visit: Callable[[TokenFile], object] = lambda _file: None,
    *,
    mix_tokenizers: bool = False,
    eos_token_id: int | None = None,
) -> tuple[int, TokenizerFingerprint | None]:
    """Call `visit` with each token file, open; return their token size in bytes, and the fingerprint they share.

    Raises ValueError if the sizes differ, or the tokenizers, unless `mix_tokenizers`.
    """
    tokenizers = CommonFingerprint(mix_tokenizers)
    sizes: dict[int, str] = {}  # the first file of each size
    for path in paths:
        with open_source(path, eos_token_id) as file:
            sizes.setdefault(file.dtype.itemsize, os.fspath(path))
            tokenizers.add_file(file)
            visit(file)
    if len(sizes) > 1:
        named = ", ".join(f"{size} in {path}" for size, path in sorted(sizes.items()))
        raise ValueError(f"All datasets must have the same token size in bytes: it is {named}")
    return min(sizes), tokenizers.common


def chunk_of_lines(
    paths: Sequence[PathLike], chunk_id: int, num_chunks: int, global_seed: int | None, compat: Compat
) -> Edit:
    """Shuffle the lines of a chunk of JSON Lines files; warns as `create_shuffled_jsonl_chunk`."""
    sources = [line_spans(path, lambda n: chunk_range(n, chunk_id, num_chunks)) for path in paths]
    lines, order = _shuffled(sources, chunk_id, num_chunks, global_seed)
    if compat is None:
        lines = DocumentCollection(complete_lines(sources, paths, int(order[-1])))
    return Edit(lines, order, None)


def _shuffled(
    sources: Sequence[DocumentSpans], chunk_id: int, num_chunks: int, global_seed: int | None
) -> tuple[DocumentCollection, Order]:
    collection = DocumentCollection(sources)
    if collection.n_documents == 0:
        raise ValueError(
            f"Chunk {chunk_id} has no samples. Please decrease the number of chunks ({num_chunks}) to at most that of "
            "the documents in the largest file."
        )
    return collection, numpy_order(collection.n_documents, chunk_seed(global_seed, chunk_id))
