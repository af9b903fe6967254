"""Errors as one line for a person, in the command line's vocabulary."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from fastpack.cli.output import STDOUT
from fastpack.cli.streams import discard_stdout


class UsageError(ValueError):
    """Missing, conflicting or invalid options: exit code 2."""


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a ValueError, such as one for an invalid value of an option, into a UsageError."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from None


_SETTINGS = ("special_tokens_in_text", "audit", "engine", "eod_token", "index_path", "jq_pattern", "num_cpus")
FLAGS = {  # names of Python arguments in messages -> flags
    **{name: f"--{name.replace('_', '-')}" for name in _SETTINGS},
    "call again with resume=True": "run the same command with --resume",
    "Pass if_exists='overwrite'": "Pass --force",
    "eos_token_id": "--eos-token-id",
    "dtype=": "--dtype",
    "format=": "--to",
    "name one by format=": "name one by --from",
    "Pass mix_tokenizers=True": "Pass --force",
    "Pass source_format= or a pattern": "Pass --from or a pattern",
    "shard_tokens": "--shard-tokens",
    "Pass force_overwrite=True": "Pass --force-overwrite",
}


def describe(error: BaseException) -> str:
    """Return one line that says what went wrong."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        hint = "; data are read at random and mapped, which a stream cannot be: name a file"
        return f"{error.filename}: {error.strerror}{hint if error.filename == '-' else ''}"
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (ValueError, OSError, RuntimeError, ImportError)):
        return text
    return f"internal error: {type(error).__name__}: {text} (run again with --debug and report it)"


def describe_stdout_failure(error: Exception) -> str:
    """Return one line if stdout did not take the results; an empty text for other errors."""
    if not isinstance(error, OSError) or error.filename not in (None, STDOUT):
        return ""
    try:
        sys.stdout.flush()  # what could not be written is still in its buffer, if it has one
    except OSError:
        discard_stdout()
    else:
        if error.filename is None:
            return ""
    return f"{STDOUT}: {error.strerror}: the result is not written"
