"""A collection of documents written in an order, as a packed file or as lines; or only measured."""

from __future__ import annotations

from dataclasses import replace

from fastpack.build.editing.orders import Order
from fastpack.build.editing.results import EditResult, packed_size
from fastpack.build.editing.spans import Collection, Data, Integers
from fastpack.files import AnyPath, AtomicFile, ExistencePolicy, Progress
from fastpack.formats.pbin import PackedWriter


def write_documents(
    documents: Collection,
    order: Order,
    target: AnyPath,
    token_size: int,
    policy: ExistencePolicy,
    progress: Progress | None,
    dry_run: bool,
) -> EditResult:
    """Write the documents in `order` as a packed file, unless `dry_run`."""
    result = EditResult(target, len(order), documents.n_bytes // token_size, written=not dry_run)
    if dry_run:
        return replace(result, bytes=packed_size(documents.lengths[order]))
    with PackedWriter(target, token_size, file_existence_policy=policy) as writer:
        writer.reserve(documents.n_bytes // token_size)

        def write(block: Data, lengths: Integers) -> None:
            writer.append_bytes(block, lengths // token_size)

        documents.write(order, write, progress)
    return replace(result, bytes=target.stat().st_size)


def write_lines(
    lines: Collection,
    order: Order,
    target: AnyPath,
    policy: ExistencePolicy,
    progress: Progress | None,
    dry_run: bool,
) -> EditResult:
    """Write the lines in `order`, newlines included, unless `dry_run`."""
    if not dry_run:
        with AtomicFile(target, policy=policy) as output:
            output.reserve(lines.n_bytes)
            lines.write(order, lambda block, _lengths: output.write(block), progress)
    return EditResult(target, len(order), None, lines.n_bytes, written=not dry_run)
