"""One-line `repr` texts, and tables for notebooks, made of facts that an object already holds."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import Field
from numbers import Real
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias

LINE = 120  # characters of a repr, at most
_TEXT = 40  # of a text in it, other than the first
_FIRST = 24  # of the first text, at least
_ITEMS = 10  # of a list, in a table
_CELL = 300  # characters of a text in a table

Facts: TypeAlias = Mapping[str, str | Callable[[Any], Any]]


def facts(*names: str, **sources: str | Callable[[Any], Any]) -> Facts:
    """Select what a repr shows: attributes by their names, then label=attribute, or label=function of the object."""
    return {**dict(zip(names, names, strict=True)), **sources}


class Described:
    """Base of classes with a one-line repr: `Name('path', samples=1000, closed=True)`.

    The repr reads attributes only: it opens no file, never raises, and leaves out what a half-constructed object does
    not have. Long paths are shortened at the front, and facts beyond `LINE` characters are left out.

    Attributes
    ----------
    _subject
        The attribute that is shown first, without a label: the path of a dataset.
    _shown
        The facts, most important first, made by `facts`. None, empty texts, `closed=False` and flags of a dataclass
        that have their default value are left out; lists are counted.
    """

    __slots__ = ()

    _subject: ClassVar[str | None] = None
    _shown: ClassVar[Facts] = {}

    def __repr__(self) -> str:
        values = [(f"{label}=" if label else "", value) for label, value in _values(self)]
        texts = [label + _brief(value, _TEXT) for label, value in values]
        room = LINE - len(type(self).__name__) - len("()")
        if texts:
            label, value = values[0]
            others = sum(len(", ") + len(text) for text in texts[1:])
            texts[0] = label + _brief(value, max(_FIRST, room - len(label) - others))
        return f"{type(self).__name__}({_fitting(texts, room)})"


class Result(Described):
    """Base of result dataclasses: a one-line repr, and a table with the lists' first items in notebooks.

    Declare them with `@dataclass(repr=False)`. The table shows `_shown` and all other fields that differ from their
    defaults, except those declared with `field(repr=False)`.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        rows = dict(_values(self))
        sources = set(self._shown.values())
        for name, field in _fields(self).items():
            value = _value(self, name)
            if field.repr and name not in sources and not (_is_empty(value) or value == field.default):
                rows[name] = value
        lines = "".join(f"<tr><th>{_cell(label)}</th><td>{_cell(value)}</td></tr>" for label, value in rows.items())
        return f"<table><caption>{_cell(type(self).__name__)}</caption>{lines}</table>"


def _fields(described: Described) -> dict[str, Field[Any]]:
    fields: dict[str, Field[Any]] = getattr(described, "__dataclass_fields__", {})
    return fields


def _values(described: Described) -> Iterator[tuple[str, Any]]:
    """Each label and its value, those left out that say nothing."""
    fields = _fields(described)
    subject = {} if described._subject is None else {"": described._subject}
    for label, source in (subject | dict(described._shown)).items():
        value = _value(described, source)
        is_default = isinstance(value, bool) and label in fields and value is fields[label].default
        is_empty = value is None or (isinstance(value, str) and not value)
        if not (is_empty or is_default or (label == "closed" and not value)):
            yield label, value


def _value(described: Described, source: str | Callable[[Any], Any]) -> Any:
    """Return the fact; None if the object does not have it."""
    try:
        value = attrgetter(source)(described) if isinstance(source, str) else source(described)
        return os.fsdecode(value) if isinstance(value, bytes | os.PathLike) else value
    except Exception:  # a repr must not raise, whatever state the object is in
        return None


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | Mapping | Set | Sequence) and not len(value))


def _is_collection(value: Any) -> bool:
    return isinstance(value, Mapping | Set | Sequence) and not isinstance(value, str)


def _brief(value: Any, room: int) -> str:
    """Return the value in at most `room` characters; a collection as its length."""
    try:
        return _literal(value, room)
    except Exception:  # such as an int of more digits than Python converts
        return "..."


def _literal(value: Any, room: int) -> str:
    if isinstance(value, str):
        return _quoted(value, room)
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, Real):
        return f"{value:.6g}" if isinstance(value, float) else f"{value}"
    if _is_collection(value):
        return str(len(value))
    return value.__name__ if isinstance(value, type) else type(value).__name__


def _quoted(text: str, room: int) -> str:
    """Return the text as a literal, shortened at the front, because the end of a path tells files apart."""
    text = str.__str__(text)  # of a StrEnum, its value
    end = text[-room:]
    shown = text
    while len(repr(shown)) > room:
        end = end[1:]
        shown = f"...{end}"
    return repr(shown)


def _fitting(texts: Sequence[str], room: int) -> str:
    """Return the first texts that fit, separated by commas; "..." stands for the others."""
    line = ", ".join(texts)
    n_texts = len(texts)
    while len(line) > room and n_texts > 1:
        n_texts -= 1
        line = ", ".join([*texts[:n_texts], "..."])
    return line


def _cell(value: Any) -> str:
    """Return the value as HTML."""
    if isinstance(value, Mapping):
        return _list([f"{_plain(key)}: {_plain(item)}" for key, item in list(value.items())[:_ITEMS]], len(value))
    if _is_collection(value):
        return _list([_plain(item) for item in list(value)[:_ITEMS]], len(value))
    return html.escape(_plain(value))


def _list(texts: Sequence[str], n_items: int) -> str:
    if not n_items:
        return "0"
    more = [f"and {n_items - len(texts):,} more"] if n_items > len(texts) else []
    return "<br>".join(html.escape(text) for text in [*texts, *more])


def _plain(value: Any) -> str:
    """Return the value on one line, with control characters escaped."""
    if isinstance(value, Real) and not isinstance(value, bool):
        return f"{value:,}"
    if _is_collection(value) and not isinstance(value, Mapping):
        return f"{len(value):,}"
    text = ", ".join(f"{key}: {item}" for key, item in value.items()) if isinstance(value, Mapping) else str(value)
    text = text if len(text) <= _CELL else f"{text[:_CELL]}..."
    return text if text.isprintable() else repr(text)
