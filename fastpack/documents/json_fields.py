"""Extracts the text of a JSON line with a jq pattern; plain paths are evaluated with orjson, with jq's result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias

import orjson

from fastpack.errors import MissingExtra

Step: TypeAlias = str | int
Line: TypeAlias = bytes | memoryview

_STEP = re.compile(
    r"""\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)      # .name
      | \."(?P<quoted>[^"\\]*)"                 # ."odd name"
      | \.?\[\s*"(?P<key>[^"\\]*)"\s*\]         # ["odd name"]
      | \.?\[\s*(?P<position>-?[0-9]{1,9})\s*\] # [0]
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
MAX_FAST_BYTES = 64 << 20  # longest line for jq and orjson, which abort the process when memory runs out
_NAMES = {dict: "an object", list: "an array", int: "a number", float: "a number", bool: "a boolean"}


class FaultyDocument(ValueError):
    """A document that cannot be packed; the message is a phrase that gives the reason."""


def parse_plain_path(pattern: str) -> tuple[Step, ...] | None:
    """Parse a pattern that is a plain path (`.a.b`, `."odd key"`, `.["x"]`, `.a[0]`, `.`) to its steps, else None."""
    text = pattern.strip()
    if text == ".":
        return ()
    if not text.startswith("."):
        return None
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        # `.a.[0]` needs jq 1.7, so only the first bracket may follow a dot.
        if match is None or (position and match[0].startswith(".[")) or (not position and match[0][0] != "."):
            return None
        number = match["position"]
        steps.append(int(number) if number is not None else next(g for g in match.group(1, 2, 3) if g is not None))
        position = match.end()
    return tuple(steps)


def compile_pattern(pattern: str) -> Callable[[Line], str]:
    """Compile a pattern to a function from the bytes of a line to its text: the first result, if it is a string.

    The function raises FaultyDocument if there is no such string. Patterns other than paths need the extra `jq`. Lines
    that orjson rejects (NaN, a BOM, deep nesting, lone surrogates, two values on a line) are evaluated by jq if it is
    installed, else by the standard library with jq's rules for surrogates and BOM. Lines of more than MAX_FAST_BYTES
    are always evaluated by the standard library; patterns other than paths reject them.

    Raises ValueError for a pattern that jq rejects, MissingExtra if jq is needed and not installed.
    """
    steps = parse_plain_path(pattern)
    if steps is None:
        return _by_jq(pattern)
    by_json = _by_json(steps)

    @cache
    def by_jq() -> Callable[[Line], str]:
        with suppress(MissingExtra):
            return _by_jq(pattern)
        return by_json

    return _by_orjson(steps, lambda line: by_jq()(line), by_json)


def _by_orjson(
    steps: tuple[Step, ...], slow: Callable[[Line], str], safe: Callable[[Line], str]
) -> Callable[[Line], str]:
    loads, refused = orjson.loads, orjson.JSONDecodeError
    key = steps[0] if len(steps) == 1 and isinstance(steps[0], str) else None

    def text_of(line: Line) -> str:
        if len(line) > MAX_FAST_BYTES:
            return safe(line)
        try:
            value = loads(line)
        except refused:
            return slow(line)
        value = value.get(key) if key is not None and type(value) is dict else walk(value, steps)
        if type(value) is str:
            return value
        raise _not_a_string(value)

    return text_of


def _by_json(steps: tuple[Step, ...]) -> Callable[[Line], str]:
    def text_of(line: Line) -> str:
        source = decode(line).removeprefix("\ufeff")
        check_surrogates(source)
        try:
            value = walk(json.loads(source), steps)
        except RecursionError:
            raise FaultyDocument("not JSON that can be read: nested too deeply") from None
        except json.JSONDecodeError as error:
            raise FaultyDocument(_fault_of(source, f"not JSON: {error.msg} at character {error.pos}")) from None
        if isinstance(value, str):
            return _LONE_LOW.sub("\ufffd", value)
        raise _not_a_string(value)

    return text_of


def _by_jq(pattern: str) -> Callable[[Line], str]:
    try:
        import jq
    except ImportError:
        raise MissingExtra("jq", "jq", f"the jq pattern {pattern!r}") from None
    try:
        program = jq.compile(pattern)
    except ValueError as error:
        raise ValueError(f"jq rejects the pattern {pattern!r}: {_one_line(error)}") from None

    def text_of(line: Line) -> str:
        if len(line) > MAX_FAST_BYTES:
            raise FaultyDocument(f"a line of {len(line):,} bytes, more than {MAX_FAST_BYTES:,}, the limit for jq")
        source = decode(line)
        try:
            value = program.input_text(source).first()
        except StopIteration:
            raise FaultyDocument(_fault_of(source, "jq gives no result")) from None
        except ValueError as error:
            message = _one_line(error)
            raise FaultyDocument("lone surrogate escape" if "surrogate" in message else f"jq: {message}") from None
        if isinstance(value, str):
            return value
        raise _not_a_string(value)

    return text_of


def decode(line: Line, what: str = "the line") -> str:
    """Decode a line; raise FaultyDocument if it is not UTF-8; what: the bytes, in the message."""
    try:
        return str(line, "utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x} at byte {error.start} of {what}"
        raise FaultyDocument(f"not UTF-8: {found}") from None


def walk(value: Any, steps: tuple[Step, ...]) -> Any:
    """Evaluate a path as jq does: None for a missing key or position, FaultyDocument for a value of a wrong type."""
    for step in steps:
        if value is None:
            return None
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list):
            value = value[step] if -len(value) <= step < len(value) else None
        else:
            found = "a string" if isinstance(value, str) else _NAMES[type(value)]
            raise FaultyDocument(f"no {step!r} in {found}")
    return value


_LONE_LOW = re.compile("[\udc00-\udfff]")


def check_surrogates(source: str) -> None:
    """Raise FaultyDocument for the escape of a high surrogate that no low surrogate follows (as jq)."""
    high = False
    end = 0
    for match in _ESCAPE.finditer(source):
        code = int(match[1], 16) if match[1] else 0
        if high and not (0xDC00 <= code <= 0xDFFF and match.start() == end):
            break
        high = not high and 0xD800 <= code <= 0xDBFF
        end = match.end()
    if high:
        raise FaultyDocument("lone surrogate escape")


def _not_a_string(value: Any) -> FaultyDocument:
    found = "null (or no such key)" if value is None else _NAMES.get(type(value), type(value).__name__)
    return FaultyDocument(f"the result is {found}, expected a string")


def _fault_of(source: str, fault: str) -> str:
    return fault if source.strip() else "blank line"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
