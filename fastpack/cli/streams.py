"""Standard streams while a command runs: they escape what is written to them, and are open.

`main` replaces stdout and stderr by streams that escape control characters, bidirectional controls and lone surrogates.
fastpack's own drawing (bars, tables, colours) goes to the wrapped stream, `unescaped`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO, cast

from fastpack.escape import escape_line, escape_text


class _EscapingStream:
    """A text stream that escapes what is written to it."""

    def __init__(self, wrapped: TextIO) -> None:
        self.wrapped = wrapped

    def write(self, text: str) -> int:
        self.wrapped.write(escape_text(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


def unescaped(stream: Any) -> TextIO:
    """Return the wrapped stream, for text whose control characters are fastpack's own."""
    return cast(TextIO, stream.wrapped if isinstance(stream, _EscapingStream) else stream)


@contextlib.contextmanager
def escaping_output() -> Iterator[None]:
    """Escape everything that is written to stdout and stderr, and the text of warnings."""
    before, format_warning = (sys.stdout, sys.stderr), warnings.formatwarning

    def format_safely(message: Warning | str, *arguments: Any, **options: Any) -> str:
        return format_warning(escape_line(str(message)), *arguments, **options)

    out, err = (cast(TextIO, _EscapingStream(unescaped(stream))) for stream in before)
    sys.stdout, sys.stderr, warnings.formatwarning = out, err, format_safely
    try:
        yield
    finally:
        if sys.stdout is out:
            sys.stdout = before[0]
        if sys.stderr is err:
            sys.stderr = before[1]
        warnings.formatwarning = format_warning


def open_closed_streams() -> None:
    """Open closed standard streams on /dev/null: `fastpack index a.jsonl >&- 2>&-`.

    Otherwise the next file that is opened would get their descriptor. Writing to a closed stdout then fails, as it
    must; messages to a closed stderr are lost.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def discard_stdout() -> None:
    """Redirect stdout to /dev/null: the interpreter flushes it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
