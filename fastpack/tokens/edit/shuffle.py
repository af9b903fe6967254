"""Shuffles the documents of a token file or the lines of a JSON Lines file, in Modalities' order for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fastpack.argument_aliases import accept_aliases
from fastpack.io import ExistencePolicy, PathLike, Progress, as_path
from fastpack.tokens.common_fingerprint import common_fingerprint
from fastpack.tokens.document_masks import DocumentMasks
from fastpack.tokens.edit.document_collection import DocumentCollection
from fastpack.tokens.edit.edit_result import Compat, EditResult, check_compat
from fastpack.tokens.edit.edit_source import open_source
from fastpack.tokens.edit.edit_writer import Edit, edit_files
from fastpack.tokens.edit.jsonl_lines import complete_lines, line_spans
from fastpack.tokens.edit.shuffle_order import Seed, stdlib_order


@accept_aliases(file_existence_policy="if_exists")
def shuffle_tokenized_data(
    input_data_path: PathLike,
    output_data_path: PathLike,
    batch_size: int = 100,
    if_exists: ExistencePolicy = "error",
    seed: Seed = None,
    *,
    progress: Progress | None = None,
    dry_run: bool = False,
    format: str | None = None,
    eos_token_id: int | None = None,
) -> EditResult:
    """Write the documents of a token file in random order.

    The order is that of `random.Random(seed).shuffle`; the bytes are those of Modalities for the same seed. Memory: 28
    bytes per document, and up to 0.5 GiB.

    Parameters
    ----------
    input_data_path
        A token file of any format.
    output_data_path
        The output.
    batch_size
        At least 1. It has no effect (Modalities has this argument).
    if_exists
        What to do if the output exists: "error", "skip" or "overwrite".
    seed
        A seed of `random.Random`. By default every call gives another order.
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
    FileNotFoundError
        If the input does not exist.
    FormatError
        If the input is damaged.
    TargetExists
        If the output exists and the policy is "error" (a ValueError).
    ValueError
        If the output is the input, the document boundaries are unknown, or `batch_size` is below 1.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source, shuffled = f"{folder.name}/a.pbin", f"{folder.name}/b.pbin"
    >>> with fastpack.PackedWriter(source, 2) as writer:
    ...     writer.append_many([1, 0, 2, 0, 3, 0], [2, 2, 2])
    >>> result = fastpack.shuffle_tokenized_data(source, shuffled, seed=1)
    >>> result.documents, [document.tolist() for document in fastpack.PackedFile(shuffled)]
    (3, [[2, 0], [3, 0], [1, 0]])
    >>> folder.cleanup()
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    target = as_path(output_data_path)
    edit = partial(shuffled_documents, seed=seed, eos_token_id=eos_token_id)
    return edit_files(edit, [input_data_path], target, if_exists, progress, dry_run, format)


@accept_aliases(file_existence_policy="if_exists")
def shuffle_jsonl_data(
    input_data_path: PathLike,
    output_data_path: PathLike,
    if_exists: ExistencePolicy = "error",
    seed: Seed = None,
    *,
    compat: Compat = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> EditResult:
    r"""Write the lines of a JSON Lines file in random order.

    The order is that of `random.Random(seed).shuffle`; the bytes are those of Modalities for the same seed, except in
    one case: if the last line of the input has no newline and is not the last line of the output, a newline is added,
    with a DataWarning. Lines are not parsed. Memory: 20 bytes per line, and up to 0.5 GiB.

    Parameters
    ----------
    input_data_path
        A JSON Lines file.
    output_data_path
        The output.
    if_exists
        What to do if the output exists: "error", "skip" or "overwrite".
    seed
        A seed of `random.Random`. By default every call gives another order.
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
        If the input does not exist.
    TargetExists
        If the output exists and the policy is "error" (a ValueError).
    ValueError
        If the output is the input, or `compat` is unknown.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source, shuffled = pathlib.Path(folder.name, "a.jsonl"), pathlib.Path(folder.name, "b.jsonl")
    >>> _ = source.write_text("1\n2\n3\n")
    >>> fastpack.shuffle_jsonl_data(source, shuffled, seed=1).documents
    3
    >>> shuffled.read_text()
    '2\n3\n1\n'
    >>> folder.cleanup()
    """
    check_compat(compat)
    target = as_path(output_data_path)
    edit = partial(shuffled_lines, seed=seed, compat=compat)
    return edit_files(edit, [input_data_path], target, if_exists, progress, dry_run)


def shuffled_documents(paths: Sequence[PathLike], seed: Seed, eos_token_id: int | None = None) -> Edit:
    """Shuffle the documents of a single token file."""
    (path,) = paths
    with open_source(path, eos_token_id) as file:
        documents, size = DocumentCollection(file.document_spans()), file.dtype.itemsize
        fingerprint, masks = common_fingerprint([file]), DocumentMasks([file])
    return Edit(documents, stdlib_order(documents.n_documents, seed), size, fingerprint, masks)


def shuffled_lines(paths: Sequence[PathLike], seed: Seed, compat: Compat) -> Edit:
    """Shuffle the lines of a single JSON Lines file; warns as `shuffle_jsonl_data`."""
    (path,) = paths
    sources = [line_spans(path)]
    order = stdlib_order(len(sources[0].rows), seed)
    if compat is None and len(order):
        sources = complete_lines(sources, paths, int(order[-1]))
    return Edit(DocumentCollection(sources), order, None)
