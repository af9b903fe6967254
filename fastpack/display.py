"""How public objects show themselves: a `repr` of one line, and a table for notebooks.

Nothing is read or computed for it. What an object does not have, since it is closed or half made, is left out.
"""

from __future__ import annotations

import html
import os
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

_LONGEST = 60  # characters of a text or a short list; a longer list is counted


class ShortRepr:
    """A mixin whose `repr` names the class and some of its attributes.

    Attributes
    ----------
    _shown
        Names of attributes to show; all fields of a dataclass that names none. "len" shows `len()` as `samples`.
    """

    __slots__ = ()
    _shown: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={_short(value)}" for name, value in shown_facts(self).items())
        return f"{type(self).__name__}({facts})"


class ResultRepr(ShortRepr):
    """A mixin for results: also shown as a table in a notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(_short(value))}</td></tr>"
            for name, value in shown_facts(self).items()
        )
        return f"<table><caption>{html.escape(type(self).__name__)}</caption>{''.join(rows)}</table>"


def shown_facts(shown: ShortRepr) -> dict[str, Any]:
    """Return the attributes that the `repr` of an object shows, by name."""
    facts = {}
    for name in shown._shown or getattr(shown, "__dataclass_fields__", ()):
        try:
            facts["samples" if name == "len" else name.lstrip("_")] = (
                len(shown) if name == "len" else getattr(shown, name)  # type: ignore[arg-type]
            )
        except Exception:
            continue
    return facts


def _short(value: Any) -> str:
    """One value on one line: paths as text, long collections by the number of their items."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST else f"...{value[3 - _LONGEST :]}")
    text = " ".join(repr(value).split())
    if len(text) <= _LONGEST and not isinstance(value, Mapping):
        return text
    if isinstance(value, Collection):
        return f"<{len(value)} item{'' if len(value) == 1 else 's'}>"
    return f"<{type(value).__name__}>"
