"""A collection of documents written in an order, as a packed file or as lines; or only measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from fastpack.io import AnyPath, AtomicFile, ExistencePolicy, Progress
from fastpack.tokens.edit.document_spans import Collection, Data, Integers
from fastpack.tokens.edit.edit_result import EditResult, packed_size
from fastpack.tokens.edit.shuffle_orders import Order
from fastpack.tokens.pbin.packed_writer import PackedWriter


class Edit(NamedTuple):
    """What a file is to hold: documents (or lines), in an order; token_size: in bytes, None for lines."""

    documents: Collection
    order: Order
    token_size: int | None


def write_edit(
    edit: Edit, target: AnyPath, policy: ExistencePolicy, progress: Progress | None, dry_run: bool
) -> EditResult:
    """Write the documents as a packed file, or the lines, newlines included, unless `dry_run`."""
    documents, order, size = edit
    if size is None:
        return _write_lines(documents, order, target, policy, progress, dry_run)
    result = EditResult(target, len(order), documents.n_bytes // size, written=not dry_run)
    if dry_run:
        return replace(result, bytes=packed_size(documents.lengths[order]))
    with PackedWriter(target, size, file_existence_policy=policy) as writer:
        writer.reserve(documents.n_bytes // size)
        documents.write(order, _appender(writer), progress)
    return replace(result, bytes=target.stat().st_size)


def _appender(writer: PackedWriter) -> Callable[[Data, Integers], None]:
    return lambda block, lengths: writer.append_bytes(block, lengths // writer.token_size_in_bytes)


def _write_lines(
    lines: Collection,
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
