"""Text on its way to a terminal: nothing from data or file names may move the cursor, hide text, or ring a bell.

While `main` runs, stdout and stderr escape control characters, bidirectional controls and lone surrogates in all that
is written to them. What fastpack itself draws (bars, tables, colours) goes to the stream below, `unescaped`.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO, cast

# C0 but for the newline, DEL and C1, line and paragraph separators, bidirectional controls, surrogates, tags, and other
# signs that are invisible. Joiners (U+200C, U+200D) are letters of ordinary names in some scripts.
_UNSAFE = (
    "\\x00-\\x09\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff"
    "\\ufff9-\\ufffb\\ud800-\\udfff\\U000e0000-\\U000e007f"
)
_IN_TEXT = re.compile(f"[{_UNSAFE}]")
_IN_NAME = re.compile(f"[{_UNSAFE}\\n]")


def safe_text(text: str) -> str:
    """The text with all but letters, signs and line ends escaped."""
    return _IN_TEXT.sub(_escaped, text)


def safe_line(text: str) -> str:
    """As `safe_text`, line ends escaped as well: a name, or a message of one line."""
    return _IN_NAME.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


class _Escaping:
    """A text stream that escapes what is written to it."""

    def __init__(self, below: TextIO) -> None:
        self.below = below

    def write(self, text: str) -> int:
        self.below.write(safe_text(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)


def unescaped(stream: Any) -> TextIO:
    """The stream below `stream`, for text whose control characters are fastpack's own."""
    return cast(TextIO, stream.below if isinstance(stream, _Escaping) else stream)


@contextlib.contextmanager
def escaping_output() -> Iterator[None]:
    """Have stdout, stderr and warnings escape what is written to them."""
    before, format_warning = (sys.stdout, sys.stderr), warnings.formatwarning

    def format_safely(message: Warning | str, *arguments: Any, **options: Any) -> str:
        return format_warning(safe_line(str(message)), *arguments, **options)

    out, err = (cast(TextIO, _Escaping(unescaped(stream))) for stream in before)
    sys.stdout, sys.stderr, warnings.formatwarning = out, err, format_safely
    try:
        yield
    finally:
        if sys.stdout is out:
            sys.stdout = before[0]
        if sys.stderr is err:
            sys.stderr = before[1]
        warnings.formatwarning = format_warning
