"""One-line reprs and notebook tables, made from attributes that an object already has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import Field
from numbers import Real
from operator import attrgetter
from typing import Any, ClassVar, TypeAlias

LINE = 120  # maximum number of characters of a repr
_TEXT = 40  # maximum for each text in it except the first
_FIRST = 24  # minimum that is available to the first text
_ITEMS = 10  # listed per collection in a table
_CELL = 300  # maximum number of characters of a text in a table

Facts: TypeAlias = Mapping[str, str | Callable[[Any], Any]]


def facts(*names: str, **sources: str | Callable[[Any], Any]) -> Facts:
    """Return the facts of a repr: attributes by name, then label=attribute or label=function of the object."""
    return {**dict(zip(names, names, strict=True)), **sources}


class Described:
    """Base class with a one-line repr, `Name('path', samples=1000, closed=True)`, and a table in notebooks.

    Both only read attributes. They open no file, never raise, and leave out attributes that a partly constructed
    object lacks. Long paths are shortened at the front; facts beyond `LINE` characters are left out.

    Attributes
    ----------
    _subject
        The attribute that is shown first, without a label, such as the path of a dataset.
    _shown
        The facts, most important first, as `facts` returns them. None, empty texts, `closed=False` and flags with the
        default value of a dataclass are left out. Of collections, the length is shown.
    """

    __slots__ = ()

    _subject: ClassVar[str | None] = None
    _shown: ClassVar[Facts] = {}

    def __repr__(self) -> str:
        values = [(f"{label}=" if label else "", value) for label, value in _values(self)]
        texts = [label + _brief(value, _TEXT) for label, value in values]
        width = LINE - len(type(self).__name__) - len("()")
        if texts:
            label, value = values[0]
            others = sum(len(", ") + len(text) for text in texts[1:])
            texts[0] = label + _brief(value, max(_FIRST, width - len(label) - others))
        return f"{type(self).__name__}({_join_fitting(texts, width)})"

    def _repr_html_(self) -> str:
        return _table(self, dict(_values(self)))


class Result(Described):
    """Base class of result dataclasses: a one-line repr, and a table with the first items of lists in notebooks.

    Subclasses use `@dataclass(repr=False)`. The table shows `_shown` and all other fields that differ from their
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
        return _table(self, rows)


def _table(described: Described, rows: Mapping[str, Any]) -> str:
    lines = "".join(f"<tr><th>{_cell(label)}</th><td>{_cell(value)}</td></tr>" for label, value in rows.items())
    return f"<table><caption>{_cell(type(described).__name__)}</caption>{lines}</table>"


def _fields(described: Described) -> dict[str, Field[Any]]:
    fields: dict[str, Field[Any]] = getattr(described, "__dataclass_fields__", {})
    return fields


def _values(described: Described) -> Iterator[tuple[str, Any]]:
    """Yield the labels and values to show."""
    fields = _fields(described)
    subject = {} if described._subject is None else {"": described._subject}
    for label, source in (subject | dict(described._shown)).items():
        value = _value(described, source)
        is_default = isinstance(value, bool) and label in fields and value is fields[label].default
        is_empty = value is None or (isinstance(value, str) and not value)
        if not (is_empty or is_default or (label == "closed" and not value)):
            yield label, value


def _value(described: Described, source: str | Callable[[Any], Any]) -> Any:
    """Return the value of a fact; None if the object lacks it."""
    try:
        value = attrgetter(source)(described) if isinstance(source, str) else source(described)
        return os.fsdecode(value) if isinstance(value, bytes | os.PathLike) else value
    except Exception:  # a repr must not raise, whatever state the object is in
        return None


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | Mapping | Set | Sequence) and not len(value))


def _is_collection(value: Any) -> bool:
    return isinstance(value, Mapping | Set | Sequence) and not isinstance(value, str)


def _brief(value: Any, width: int) -> str:
    """Return the value in at most `width` characters; the length of a collection."""
    try:
        return _literal(value, width)
    except Exception:  # such as an int of more digits than Python converts
        return "..."


def _literal(value: Any, width: int) -> str:
    if isinstance(value, str):
        return _quoted(value, width)
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, Real):
        return f"{value:.6g}" if isinstance(value, float) else f"{value}"
    if _is_collection(value):
        return str(len(value))
    return value.__name__ if isinstance(value, type) else type(value).__name__


def _quoted(text: str, width: int) -> str:
    """Return the text as a literal, shortened at the front, because paths mostly differ at the end."""
    text = str.__str__(text)  # the value of a StrEnum
    end = text[-width:]
    shown = text
    while len(repr(shown)) > width:
        end = end[1:]
        shown = f"...{end}"
    return repr(shown)


def _join_fitting(texts: Sequence[str], width: int) -> str:
    """Return the first texts that fit, separated by commas; "..." replaces the others."""
    line = ", ".join(texts)
    n_texts = len(texts)
    while len(line) > width and n_texts > 1:
        n_texts -= 1
        line = ", ".join([*texts[:n_texts], "..."])
    return line


def _cell(value: Any) -> str:
    """Return the value as HTML."""
    if isinstance(value, Mapping):
        return _list([f"{_plain(key)}: {_plain(item)}" for key, item in list(value.items())[:_ITEMS]], len(value))
    if _is_collection(value):
        return _list([_plain(item) for item in list(value)[:_ITEMS]], len(value))
    import html

    return html.escape(_plain(value))


def _list(texts: Sequence[str], n_items: int) -> str:
    if not n_items:
        return "0"
    more = [f"and {n_items - len(texts):,} more"] if n_items > len(texts) else []
    import html

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
