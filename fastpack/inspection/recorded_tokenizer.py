"""The tokenizer that is recorded next to a token file: what `info` shows and `verify` checks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastpack.analysis.findings import VerifyReport
from fastpack.analysis.options import InspectOptions, VerifyOptions
from fastpack.errors import FormatError
from fastpack.io import AnyPath
from fastpack.tokens.common_fingerprint import CommonFingerprint, described_files
from fastpack.tokens.flat.shard_warnings import token_dtype
from fastpack.tokens.formats import formats_of
from fastpack.tokens.token_file import TokenFormat
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint, load_fingerprint, side_path


def recorded_tokenizer(
    path: AnyPath, row: TokenFormat, options: InspectOptions
) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the fingerprint that all files of a token file have, as a dict, and warnings."""
    found, warnings = CommonFingerprint(), []
    for file in files_of(path, row, options.dtype):
        try:
            found.add(file, load_fingerprint(file))
        except ValueError as error:
            named = str(error) if file in str(error) else f"{side_path(file)} is ignored: {error}"
            warnings.append(named)
    fingerprint = None if warnings else found.common
    if fingerprint is not None and options.eos_token_id not in (None, fingerprint.eos_token_id):
        warnings.append(f"the tokenizer ended documents in token {fingerprint.eos_token_id}")
    return None if fingerprint is None else asdict(fingerprint), warnings


def check_tokenizer(path: AnyPath, report: VerifyReport, options: VerifyOptions) -> TokenizerFingerprint | None:
    """Check the side files of a token file against it and the options; return the tokenizer that all files have."""
    row = next(iter(formats_of(path)), None)
    found = CommonFingerprint()
    for file in [] if row is None else files_of(path, row, None):
        try:
            fingerprint = load_fingerprint(file)
        except ValueError as error:
            report.add("warning", side_path(file), None, f"a side file that is not used: {error}", "one of this file")
            continue
        try:
            found.add(file, fingerprint)
        except ValueError as error:
            report.add("warning", path, None, str(error), "files of one tokenizer")
            return None
    fingerprint = found.common
    if fingerprint is not None and found.first is not None:
        _check_options(side_path(found.first[0]), fingerprint, report, options)
    return fingerprint


def _check_options(side: str, fingerprint: TokenizerFingerprint, report: VerifyReport, options: VerifyOptions) -> None:
    if options.vocab_size is not None and fingerprint.vocab_size > options.vocab_size:
        expected = f"at most {options.vocab_size} ids, the given vocabulary"
        report.add("warning", side, None, f"a tokenizer of {fingerprint.vocab_size} ids", expected)
    if options.eos_token_id not in (None, fingerprint.eos_token_id):
        found = f"a tokenizer whose EOS token is {fingerprint.eos_token_id}"
        report.add("warning", side, None, found, f"the given EOS token {options.eos_token_id}")


def files_of(path: AnyPath, row: TokenFormat, dtype: str | None) -> list[str]:
    """Return the files that side files describe; none if it cannot be opened."""
    try:
        with row.open(path, None if dtype is None else token_dtype(dtype), None) as tokens:
            return list(described_files(tokens))
    except (FormatError, ValueError, OSError):
        return []  # damage is reported by the checks of the format
