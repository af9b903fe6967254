"""Checks a packing plan: its rows are possible and contain each token once, and its sources have not changed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastpack.analysis.findings import Finding, VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.errors import FastpackError, FormatError
from fastpack.io import AnyPath
from fastpack.plans.count_column import Integers
from fastpack.plans.plan_file import PlanFile
from fastpack.plans.source_lengths import document_lengths
from fastpack.tokens.token_file import TokenFile

_ROWS = 1 << 14  # that are checked at once
_SAME_SOURCES = "the sources that the plan was made from"


def check(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> None:
    """Add the findings of a plan to the report."""
    try:
        plan = PlanFile(path)
        report.count(rows=plan.n_rows, documents=plan.n_source_documents)
        used = _check_rows(plan, report, options)
    except FormatError as error:
        report.take(Finding.of(error))
        return
    problems = plan.changed_sources()
    for problem in problems:
        report.add("error", path, None, str(problem), _SAME_SOURCES)
    if not problems:
        _check_lengths(plan, used, report)


def _check_rows(plan: PlanFile, report: VerifyReport, options: VerifyOptions) -> Integers:
    """Check each row, and the counts of the plan; return the tokens of each document that are in rows."""
    used, last = np.zeros((2, plan.n_source_documents), np.int64)
    n_segments = 0
    for first in range(0, plan.n_rows, _ROWS):
        rows = np.arange(first, min(first + _ROWS, plan.n_rows))
        found = plan.segments(rows)
        lengths = found.end - found.start
        n_segments += len(lengths)
        np.add.at(used, found.document, lengths)
        np.maximum.at(last, found.document, found.end)
        _check_sizes(plan, rows, found.row, plan.padded(lengths), report)
        if options.progress is not None:
            options.progress(int(rows[-1]) + 1, plan.n_rows)
    counts = {
        "segments": (n_segments, plan.n_segments),
        "tokens": (int(used.sum()), plan.n_tokens),
        "documents": (int(np.count_nonzero(used)), plan.n_documents),
        "tokens of padding": (plan.n_rows * plan.seq_length - int(used.sum()), plan.n_padding),
        "tokens of sources": (int(used.sum()) + plan.n_truncated + plan.n_dropped, plan.n_source_tokens),
    }
    for name, (number, expected) in counts.items():
        if number != expected:
            report.add("error", plan.path, None, f"{number:,} {name} in the rows", f"{expected:,}, as the plan says")
    _add_first(report, plan, used != last, "tokens of document {} twice, or not from its start", "each token once")
    return used


def _check_sizes(plan: PlanFile, rows: Integers, row: Integers, columns: Integers, report: VerifyReport) -> None:
    sizes = np.bincount(row, columns, len(rows))
    if (too_long := sizes > plan.seq_length).any():
        number = int(rows[too_long.argmax()])
        report.add("error", plan.path, None, f"row {number} of too many tokens", f"at most {plan.seq_length}")
    if plan.max_documents is not None and (crowded := np.bincount(row) > plan.max_documents).any():
        number = int(rows[crowded.argmax()])
        report.add("error", plan.path, None, f"row {number} of too many documents", f"at most {plan.max_documents}")


def _check_lengths(plan: PlanFile, used: Integers, report: VerifyReport) -> None:
    """Check that all tokens of a document are in rows, those that the plan keeps, or, of a subset, none."""
    try:
        lengths = _lengths_of(plan.open_sources())
    except (FastpackError, OSError, ValueError) as error:
        report.add("error", plan.path, None, str(error), _SAME_SOURCES)
        return
    is_whole = int(lengths.sum()) == plan.n_source_tokens  # otherwise there are passes over some of the documents
    if plan.long == "truncate":
        lengths = np.minimum(lengths, plan.seq_length)
    elif plan.long == "drop":
        lengths[lengths > plan.seq_length] = 0
    wrong = (used != lengths) & (is_whole | (used != 0))
    _add_first(report, plan, wrong, "other tokens of document {} than the source has", "the document")


def _lengths_of(files: Sequence[TokenFile]) -> Integers:
    parts = [lengths for file in files for _, lengths in document_lengths(file)]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _add_first(report: VerifyReport, plan: PlanFile, wrong: npt.NDArray[np.bool_], found: str, expected: str) -> None:
    if wrong.any():
        more = f" ({np.count_nonzero(wrong):,} such documents)"
        report.add("error", plan.path, None, found.format(int(wrong.argmax())) + more, expected)
