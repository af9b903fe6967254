"""Escaping of text from data or file names, which must not move a terminal's cursor, hide text or ring a bell."""

from __future__ import annotations

import json

# Unprintable to Python, but part of ordinary names in some scripts: spaces and joiners.
_NAME_CHARACTERS = frozenset(
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000\u200c\u200d"
)


def escape_line(text: str) -> str:
    """Escape control and invisible characters, newlines included, as JSON does."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in _NAME_CHARACTERS else json.dumps(character)[1:-1]
        for character in text
    )


def escape_text(text: str) -> str:
    """Escape as `escape_line`; newlines stay."""
    return "\n".join(map(escape_line, text.split("\n")))


def escape_token(data: bytes) -> str:
    r"""Decode and escape the bytes of a token; a byte that is not UTF-8 becomes `\xe6`."""
    return escape_text(data.decode(errors="backslashreplace"))


def shorten(text: str, n_characters: int) -> str:
    """Return the first characters, followed by "..." if there are more."""
    return text if len(text) <= n_characters else f"{text[:n_characters]}..."
