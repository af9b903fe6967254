"""The loss mask of a token file: what `info` and `report` show, and what `verify` checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.analysis.document_lengths import LengthCounter
from fastpack.analysis.findings import VerifyReport
from fastpack.analysis.options import InspectOptions
from fastpack.errors import FormatError
from fastpack.inspection.recorded_tokenizer import files_of
from fastpack.io import AnyPath
from fastpack.tokens.flat.shard_warnings import token_dtype
from fastpack.tokens.formats import formats_of
from fastpack.tokens.loss_mask import LossMask, has_masks, mask_of_file, open_loss_mask
from fastpack.tokens.mask_bits import BLOCK_TOKENS
from fastpack.tokens.token_file import BLOCK_ROWS, Rows, TokenFile, TokenFormat

Counts = npt.NDArray[np.int64]

LOSS_FACTS = ("loss_tokens", "loss_per_document", "turns_per_document")


def loss_facts(path: AnyPath, row: TokenFormat, options: InspectOptions) -> tuple[dict[str, Any], list[str]]:
    """Return how many tokens count in the loss, in all and per document, and warnings; None without a mask."""
    found: dict[str, Any] = dict.fromkeys(LOSS_FACTS)
    try:
        with row.open(path, None if options.dtype is None else token_dtype(options.dtype), None) as tokens:
            if not has_masks(tokens):
                return found, []
            try:
                mask = open_loss_mask(tokens)
            except FormatError as error:
                return found, [str(error)]
            if mask is not None:
                found["loss_tokens"] = mask.n_counted
                if tokens.n_documents is not None and not options.quick:
                    found |= zip(LOSS_FACTS[1:], _per_document(tokens, mask), strict=True)
    except (FormatError, ValueError, OSError):
        pass  # damage is reported by the checks of the format
    return found, []


def check_loss_mask(path: AnyPath, report: VerifyReport) -> None:
    """Check the loss masks of a token file against it: a damaged or stale mask is an error, as readers refuse it."""
    row = next(iter(formats_of(path)), None)
    for file in [] if row is None else files_of(path, row, None):
        try:
            mask_of_file(file)
        except FormatError as error:
            report.add("error", error.path, error.offset, str(error.found), str(error.expected))


def _per_document(tokens: TokenFile, mask: LossMask) -> tuple[dict[str, float] | None, dict[str, float] | None]:
    """Return summaries of the tokens that count, and of their runs, per document."""
    counted, turns = LengthCounter(), LengthCounter()
    for rows in _blocks(tokens):
        for counter, counts in zip((counted, turns), _count(mask, rows), strict=True):
            counter.add(counts)
    return counted.table().summary(), turns.table().summary()


def _blocks(tokens: TokenFile) -> Iterator[Rows]:
    """Yield documents whose tokens are about as many as are read at once."""
    assert tokens.n_documents is not None
    for first in range(0, tokens.n_documents, BLOCK_ROWS):
        rows = tokens.document_rows(first, first + BLOCK_ROWS)
        blocks = np.cumsum(rows[:, 1]) // BLOCK_TOKENS
        yield from np.split(rows, np.flatnonzero(np.diff(blocks)) + 1)


def _count(mask: LossMask, rows: Rows) -> tuple[Counts, Counts]:
    """Return the number of tokens that count, and of their runs, of each document int64 [n, 2]."""
    counted, turns = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    filled = np.flatnonzero(rows[:, 1])
    rows = rows[filled]
    if len(rows):
        ends = rows.sum(axis=1)
        if (rows[1:, 0] == ends[:-1]).all():
            counts = mask.read(int(rows[0, 0]), int(ends[-1]))
        else:
            counts = np.concatenate([mask.read(*span) for span in zip(rows[:, 0].tolist(), ends.tolist(), strict=True)])
        starts = np.cumsum(rows[:, 1]) - rows[:, 1]
        begins = counts.copy()
        begins[1:] &= ~counts[:-1]
        begins[starts] = counts[starts]
        counted[filled] = np.add.reduceat(counts, starts, dtype=np.int64)
        turns[filled] = np.add.reduceat(begins, starts, dtype=np.int64)
    return counted, turns
