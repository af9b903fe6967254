"""Checks a packed file `.pbin`: header, index and tokens, and each against the others."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.analysis.findings import Finding, Severity, VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.analysis.token_ids import LARGEST_PLAUSIBLE_ID
from fastpack.analysis.trailing_zeros import MIN_ZERO_TAIL, used_bytes
from fastpack.errors import FormatError
from fastpack.io import AnyPath, counting, open_bytes, partial_path
from fastpack.tokens.journal import journal_path, read_journal
from fastpack.tokens.pbin.layout import Layout, check_range, settle
from fastpack.tokens.pbin.legacy_merge import is_tiled, merge_borders, read_rows
from fastpack.tokens.pbin.packed_file import PackedFile
from fastpack.tokens.token_facts import SAMPLED_ENDS, USUAL_SHARE, inner_eos_text
from fastpack.tokens.token_scan import InnerEosCounter, TokenScan
from fastpack.tokens.token_segment import TokenSegment

_MIN_ALIKE = 2  # documents that must end in the same token before it is taken for the EOS token
_REPAIR = "`fastpack repair` writes"


def check(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    """Add the findings of a packed file to the report."""
    _check_leftovers(path, report)
    if not path.is_file():
        return
    try:
        with PackedFile(path, check=False) as file:
            rows, layout = _read_index(file, report)
            _check_generation(path, layout, report)
            whole = _check_index(path, rows, layout, report)
            report.count(documents=len(rows), tokens=file.n_tokens, bytes=len(file.content))
            _check_tokens(file, rows if whole else rows[:0], report, options)
    except FormatError as error:
        report.take(Finding.of(error))


def _check_leftovers(path: AnyPath, report: VerifyReport) -> None:
    if not os.path.exists(partial_path(path)):
        return
    tokens = [fields["tokens"] for fields, *_ in read_journal(journal_path(path)) if "tokens" in fields]
    checkpoint = f"{tokens[-1]} tokens at its last checkpoint" if tokens else "without a checkpoint"
    expected = "none: `fastpack pack --resume` finishes it"
    severity: Severity = "warning"
    if not path.exists():
        severity, expected = "error", f"{expected}, `fastpack repair` keeps what is there"
    report.add(severity, partial_path(path), None, f"an unfinished write of {path.name}, {checkpoint}", expected)


def _read_index(file: PackedFile, report: VerifyReport) -> tuple[npt.NDArray[np.int64], Layout]:
    """Return the rows, relative to the start of the data, and the layout with the right generation."""
    layout = file.layout
    rows, rest = read_rows(file.content, file.path, layout)
    if len(rest):
        place = len(file.content) - len(rest)
        report.add("warning", file.path, place, f"{len(rest)} bytes after the index", "the end of the file")
    return rows, settle(rows, layout)


def _check_generation(path: AnyPath, layout: Layout, report: VerifyReport) -> None:
    if layout.generation < 5:
        wrong = "reads its documents 12 bytes off" if layout.generation == 4 else "cannot read it"
        found = f"generation {layout.generation}: Modalities 0.5.0 {wrong}"
        report.add("warning", path, 0, found, "generation 5: `fastpack merge OLD.pbin NEW.pbin` writes it")


def _check_index(path: AnyPath, rows: npt.NDArray[np.int64], layout: Layout, report: VerifyReport) -> bool:
    """Return whether every entry is within the data on whole tokens; report this and other problems."""
    borders = merge_borders(rows, layout.data_length)
    if borders:
        found = f"the index of Modalities 0.5's merge, too low by 12 bytes more at {borders} places"
        expected = f"the offsets of documents: {_REPAIR} them"
        report.add("error", path, layout.index_offset, found, expected)
        return False
    try:
        check_range(rows, layout, path)
    except FormatError as error:
        report.add("error", path, error.offset, str(error.found), f"{error.expected}: {_REPAIR} an index by EOS tokens")
        return False
    if len(rows) == 0:
        if layout.data_length:
            found = f"an index of no documents for {layout.data_length} bytes of data"
            report.add("error", path, layout.index_offset, found, f"the documents: {_REPAIR} it by EOS tokens")
        return True
    _check_order(path, rows, layout, report)
    return True


def _check_order(path: AnyPath, rows: npt.NDArray[np.int64], layout: Layout, report: VerifyReport) -> None:
    """Report what is readable, but not as packers write it."""
    starts, lengths = rows[:, 0], rows[:, 1]
    place = layout.index_offset
    back = np.flatnonzero(starts[1:] < starts[:-1])
    if len(back):
        found = f"index entry {int(back[0]) + 1} is before the preceding one"
        report.add("warning", path, place, found, "documents in the order of the file (a shuffled index?)")
    n_empty = int(np.count_nonzero(lengths == 0))
    if n_empty:
        report.add("warning", path, place, f"{n_empty} documents without tokens", "documents")
    if is_tiled(rows, layout.data_length):
        return
    filled = rows[lengths > 0]
    filled = filled[np.argsort(filled[:, 0], kind="stable")]
    ends = np.maximum.accumulate(filled.sum(axis=1))
    twice = np.flatnonzero(filled[1:, 0] < ends[:-1])
    if len(twice):
        where = int(filled[int(twice[0]) + 1, 0])
        found = f"{len(twice)} documents that begin within others, the first at byte {where} of the data"
        report.add("warning", path, layout.data_offset + where, found, "documents that do not overlap")
    covered = int((ends - np.maximum(filled[:, 0], np.concatenate(([0], ends[:-1])))).clip(0).sum())
    if covered < layout.data_length:
        found = f"{(layout.data_length - covered) // layout.token_size} tokens in no document"
        report.add("warning", path, layout.data_offset, found, "documents that contain all tokens")


def _check_tokens(file: PackedFile, rows: npt.NDArray[np.int64], report: VerifyReport, options: VerifyOptions) -> None:
    size = file.token_size_in_bytes
    shard = file.segment
    rows = rows[rows[:, 1] > 0] // size
    rows = rows[np.argsort(rows.sum(axis=1), kind="stable")]
    ends = rows.sum(axis=1) - 1  # the number of each document's last token
    eos = _guess_eos(file, ends) if options.eos_token_id is None else options.eos_token_id
    scan, inner = TokenScan(options.vocab_size, eos), InnerEosCounter(rows[:, 0], ends, eos)
    last = np.empty(len(ends), np.int64)
    progress = counting(options.progress, len(ends), file.data_length // size)
    done = n_eos = 0
    for start, tokens in scan.scan(shard):
        inner.add(start, tokens, scan.n_eos - n_eos)
        n_eos = scan.n_eos
        first, done = done, int(np.searchsorted(ends, start + len(tokens)))
        last[first:done] = tokens[ends[first:done] - start]
        if progress is not None:
            progress((start + len(tokens)) * size, file.data_length)
    if scan.outside is not None:
        number, token = scan.outside
        expected = f"ids below the vocabulary's {options.vocab_size}; the largest id is {scan.largest}"
        report.add("error", file.path, file.data_offset + number * size, f"token {token}", expected)
    if _check_ends(file, ends, last, options.eos_token_id, report) and inner.n_tokens:
        found = inner_eos_text(inner.n_tokens, inner.n_documents)
        expected = f"the end-of-document token {eos} only at the end of each document"
        report.add("warning", file.path, file.data_offset, found, expected)
    _check_plausible(shard, report)


def _guess_eos(file: PackedFile, ends: npt.NDArray[np.int64]) -> int:
    """Guess EOS: the token in which nearly all of a sample of documents end; -1 if there is none."""
    if not len(ends):
        return -1
    last = np.asarray(file.data[ends[:: max(1, len(ends) // SAMPLED_ENDS)]], np.int64)
    usual = _commonest(last)
    return usual if np.count_nonzero(last == usual) >= max(_MIN_ALIKE, USUAL_SHARE * len(last)) else -1


def _check_ends(
    file: PackedFile, ends: npt.NDArray[np.int64], last: npt.NDArray[np.int64], eos: int | None, report: VerifyReport
) -> bool:
    """Return whether every document ends in `eos` or, if it is not given, in the usual token; report otherwise."""
    if not len(last):
        return True
    known = eos is not None
    usual = _commonest(last) if eos is None else eos
    other = np.flatnonzero(last != usual)
    if len(other) and (known or len(other) < (1 - USUAL_SHARE) * len(last)):
        at = int(other[0])
        found = f"{len(other)} of {len(last)} documents that do not end in token {usual}, the first in {last[at]}"
        expected = f"the end-of-document token {usual} at the end of each" + ("" if known else ", as in the others")
        place = file.data_offset + int(ends[at]) * file.token_size_in_bytes
        report.add("error" if known else "warning", file.path, place, found, expected)
        return False
    return True


def _commonest(tokens: npt.NDArray[np.int64]) -> int:
    values, counts = np.unique(tokens, return_counts=True)
    return int(values[counts.argmax()])


def _check_plausible(shard: TokenSegment, report: VerifyReport) -> None:
    """Report a long tail of zeros, as a copy or a crash leaves it, and implausible ids."""
    size = shard.dtype.itemsize
    data = open_bytes(shard.path, shard.version)
    n_zeros = shard.length - -(-used_bytes(data, shard.offset, shard.offset + shard.length * size) // size)
    if n_zeros > max(MIN_ZERO_TAIL, shard.length // 1000):
        place = shard.offset + (shard.length - n_zeros) * size
        report.add("warning", shard.path, place, f"{n_zeros} tokens 0 at the end", "tokens: was the file copied whole?")
    if size == 4:
        end = shard.offset + min(4096, shard.length * size)
        sample: npt.NDArray[Any] = data[shard.offset : end].view(shard.dtype)
        if 2 * int(np.count_nonzero(sample > LARGEST_PLAUSIBLE_ID)) > max(1, int(np.count_nonzero(sample))):
            found = f"most ids above {LARGEST_PLAUSIBLE_ID}"
            report.add("warning", shard.path, shard.offset, found, "ids of a vocabulary: is the token size right?")
