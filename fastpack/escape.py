"""Text of unknown origin on a terminal: nothing in it may move the cursor, hide what follows, or ring a bell."""

from __future__ import annotations

import json


def shown_text(text: str) -> str:
    """The text with everything but letters, spaces and line ends escaped."""
    return "".join(letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text)


def shown_line(text: str) -> str:
    """As `shown_text`, line ends escaped as well: a name."""
    return shown_text(text).replace("\n", "\\n")


def shown_bytes(data: bytes) -> str:
    """The bytes of a token as text: as `shown_text`, and `\\xe6` for a byte that is no whole character by itself."""
    return shown_text(data.decode(errors="backslashreplace"))


def shorten(text: str, n_characters: int) -> str:
    """The first characters, "..." behind them where there are more."""
    return text if len(text) <= n_characters else f"{text[:n_characters]}..."
