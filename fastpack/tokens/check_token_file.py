"""Checks a token file of any format through its reader: the index against the tokens, and the tokens' ids."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastpack.analysis.findings import VerifyReport
from fastpack.analysis.options import VerifyOptions
from fastpack.io import counting, size_of
from fastpack.tokens.token_file import TokenFile
from fastpack.tokens.token_scan import TokenScan
from fastpack.tokens.token_stream import stream_tokens


def check_token_file(tokens: TokenFile, report: VerifyReport, options: VerifyOptions) -> None:
    """Add the findings of an open token file to the report; the reader itself raises FormatError for damage."""
    n_documents = tokens.n_documents
    ends = None if n_documents is None else tokens.document_ends()
    n_bytes = sum(size_of(path) for path in dict.fromkeys(segment.path for segment in tokens.segments()))
    report.count(tokens=tokens.n_tokens, bytes=n_bytes)
    if ends is not None:
        report.count(documents=len(ends))
        n_outside = tokens.n_tokens - (int(ends[-1]) if len(ends) else 0)
        if n_outside:
            report.add("warning", tokens.path, None, f"{n_outside} tokens after the last document", "none")
    _check_ids(tokens, report, options)
    _check_last_tokens(tokens, ends, report, options)


def _check_ids(tokens: TokenFile, report: VerifyReport, options: VerifyOptions) -> None:
    scan = TokenScan(options.vocab_size, options.eos_token_id)
    total, done = tokens.n_tokens, 0
    progress = counting(options.progress, tokens.n_documents, total)
    for segment in tokens.segments():
        for start, block in scan.scan(segment):
            if progress is not None:
                progress(done + start + len(block), max(1, total))
        done += segment.length
        if scan.outside is not None:
            number, token = scan.outside
            place = segment.offset + number * segment.dtype.itemsize
            expected = "ids of 0 or more" if token < 0 else f"ids below the vocabulary's {options.vocab_size}"
            report.add("error", segment.path, place, f"token {token}", expected)


def _check_last_tokens(
    tokens: TokenFile, ends: npt.NDArray[np.int64] | None, report: VerifyReport, options: VerifyOptions
) -> None:
    """Report documents that do not end in the given EOS token."""
    eos = options.eos_token_id
    if eos is None or ends is None:
        return
    n_wrong, first = 0, -1
    before, number = 0, 0
    for block in stream_tokens(tokens).blocks():
        after = before + len(block)
        last = int(np.searchsorted(ends, after, "right"))
        places = ends[number:last] - 1
        inside = places >= before
        wrong = np.flatnonzero(inside)[block[places[inside] - before] != eos]
        if len(wrong) and first < 0:
            first = number + int(wrong[0])
        n_wrong += len(wrong)
        before, number = after, last
    if n_wrong:
        found = f"{n_wrong} of {len(ends)} documents that do not end in token {eos}, the first is document {first}"
        report.add("error", tokens.path, None, found, f"the end-of-document token {eos} at the end of each")
