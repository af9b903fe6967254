"""Writes a collection of documents or lines in a given order, or predicts the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastpack.io import AnyPath, AtomicFile, ExistencePolicy, Progress
from fastpack.tokens.edit.document_collection import Data, DocumentCollection, Integers
from fastpack.tokens.edit.edit_result import EditResult, packed_size
from fastpack.tokens.edit.shuffle_order import Order
from fastpack.tokens.formats import format_named
from fastpack.tokens.token_file import TokenWriter


class Edit(NamedTuple):
    """The contents of an output file: documents (or lines) in an order, and the token size (None for lines)."""

    documents: DocumentCollection
    order: Order
    token_size: int | None


def write_edit(
    edit: Edit,
    target: AnyPath,
    policy: ExistencePolicy,
    progress: Progress | None,
    dry_run: bool,
    *,
    format: str = "pbin",
) -> EditResult:
    """Write documents as a token file, or lines with their newlines; with `dry_run`, only predict the result."""
    documents, order, size = edit
    if size is None:
        return _write_lines(documents, order, target, policy, progress, dry_run)
    result = EditResult(target, len(order), documents.n_bytes // size, written=not dry_run)
    if dry_run:
        return replace(result, bytes=packed_size(documents.lengths[order]))
    create = format_named(format).create
    assert create is not None
    with create(target, np.dtype(f"u{size}"), policy) as writer:
        writer.reserve(documents.n_bytes // size)
        documents.write(order, _appender(writer, size), progress)
    return replace(result, bytes=target.stat().st_size)


def _appender(writer: TokenWriter, token_size: int) -> Callable[[Data, Integers], None]:
    return lambda block, lengths: writer.append_bytes(block, lengths // token_size)


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
