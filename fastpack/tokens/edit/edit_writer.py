"""Writes a collection of documents or lines in a given order, or predicts the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fastpack.io import AnyPath, AtomicFile, ExistencePolicy, PathLike, Progress, counting
from fastpack.tokens.document_masks import DocumentMasks
from fastpack.tokens.edit.document_collection import DocumentCollection
from fastpack.tokens.edit.edit_result import (
    EditResult,
    EmptyDocuments,
    append_encoded,
    edit_dtype,
    is_kept,
    output_format,
    written_bytes,
)
from fastpack.tokens.edit.shuffle_order import Order
from fastpack.tokens.interop_formats import first_output
from fastpack.tokens.token_file import TokenFormat, rows_of_lengths
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint


class Edit(NamedTuple):
    """The contents of an output file: documents (or lines) in an order, and the token size (None for lines).

    fingerprint: of the tokenizer of all sources. masks: of the documents, if any source has a loss mask.
    """

    documents: DocumentCollection
    order: Order
    token_size: int | None
    fingerprint: TokenizerFingerprint | None = None
    masks: DocumentMasks | None = None


def edit_files(
    edit: Callable[[Sequence[PathLike]], Edit],
    paths: Sequence[PathLike],
    target: AnyPath,
    policy: ExistencePolicy,
    progress: Progress | None,
    dry_run: bool,
    format: str | None = None,
) -> EditResult:
    """Write the result of `edit(paths)`, unless the target is kept; with `dry_run`, only predict the result.

    format: of the target; None: by its suffix.
    """
    row = output_format(target, format)
    target = first_output(row.name, target)
    if is_kept(paths, target, policy):
        return EditResult(target, sources=len(paths), written=False, kept_existing=True)
    return replace(_write(edit(paths), row, target, policy, progress, dry_run), sources=len(paths))


def _write(
    edit: Edit,
    row: TokenFormat,
    target: AnyPath,
    policy: ExistencePolicy,
    progress: Progress | None,
    dry_run: bool,
) -> EditResult:
    """Write documents as a token file, or lines with their newlines."""
    documents, order, size, fingerprint, masks = edit
    if size is None:
        return _write_lines(documents, order, target, policy, progress, dry_run)
    n_tokens, stored = documents.n_bytes // size, edit_dtype(row, size)
    empty = EmptyDocuments(row)
    if not row.stores_empty:
        order = order[empty.mask(documents.lengths[order])]
    result = EditResult(target, len(order), n_tokens, n_empty_dropped=empty.n_dropped, written=not dry_run)
    assert row.create is not None
    assert row.predict_size is not None
    if dry_run:
        rows = rows_of_lengths([documents.lengths[order] // size])
        return replace(result, bytes=row.predict_size(n_tokens, stored.itemsize, rows))
    with row.create(target, stored, policy) as writer:
        writer.fingerprint = fingerprint
        writer.mask = None if masks is None else masks.bits(order, documents.lengths // size)
        writer.reserve(n_tokens)
        documents.write(
            order,
            lambda block, lengths: append_encoded(writer, block, lengths // size, size, stored),
            counting(progress, len(order), n_tokens),
        )
    return replace(result, bytes=written_bytes(row, target))


def _write_lines(
    lines: DocumentCollection,
    order: Order,
    target: AnyPath,
    policy: ExistencePolicy,
    progress: Progress | None,
    dry_run: bool,
) -> EditResult:
    if not dry_run:
        with AtomicFile(target, policy=policy) as output:
            output.reserve(lines.n_bytes)
            lines.write(order, lambda block, _lengths: output.write(block), progress)
    return EditResult(target, len(order), None, lines.n_bytes, written=not dry_run)
