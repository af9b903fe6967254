"""The text of a line: jq's result, with every implementation."""

from __future__ import annotations

import builtins
import json
from typing import Any

import hypothesis.strategies as st
import jq
import pytest
from hypothesis import example, given

from fastpack.documents import json_fields as fields
from fastpack.documents.json_fields import FaultyDocument, compile_pattern, parse_plain_path
from fastpack.errors import MissingExtra


def by_jq(pattern: str, line: str) -> str | None:
    """The first result of jq if it is a string, else None."""
    try:
        value = jq.compile(pattern).input_text(line).first()
    except (ValueError, StopIteration):
        return None
    return value if isinstance(value, str) else None


def by_us(pattern: str, line: str) -> str | None:
    try:
        return compile_pattern(pattern)(line.encode())
    except FaultyDocument:
        return None


@pytest.fixture
def without_jq(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "jq":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        (".text", ("text",)),
        (" .a.b ", ("a", "b")),
        ('."odd key".x', ("odd key", "x")),
        ('.["x"]["y"]', ("x", "y")),
        (".a[0][-1].b", ("a", 0, -1, "b")),
        (".[3]", (3,)),
        (".", ()),
    ],
)
def test_plain_paths(pattern: str, steps: tuple[str | int, ...]) -> None:
    assert parse_plain_path(pattern) == steps


@pytest.mark.parametrize(
    "pattern",
    ["", "text", "..", ".a|.b", ".a?", ".a[]", ".a[1:2]", '."a\\u0062"', ".foo-bar", "[0]", ".a.[0]", ".a, .b"],
)
def test_other_patterns_need_jq(pattern: str) -> None:
    assert parse_plain_path(pattern) is None


ODD_LINES = [
    '{"text": "plain"}',
    '{"text": ""}',
    '{"text": null}',
    "{}",
    '{"text": 5}',
    '{"text": ["x"]}',
    '{"text": {"a": 1}}',
    '{"text": true}',
    '{"text": "a", "text": "b"}',
    '{"text": "a", "text": null}',
    '{"te\\u0078t": "escaped key"}',
    '{"text": "\\u0000\\u001f\\/\\ud83d\\ude00"}',
    '{"text": "\\ud800"}',
    '{"text": "a\\udc00b"}',
    '{"text": "ok", "other": "\\ud800"}',
    '{"text": "\\\\ud800"}',
    '{"text": "\\ud800 \\udc00"}',
    '{"text": "x", "n": NaN}',
    '{"text": "x", "n": -Infinity}',
    '{"text": "x", "n": 1e999}',
    '{"text": "x", "n": 123456789012345678901234567890}',
    '{"text": NaN}',
    '\ufeff{"text": "after a mark"}',
    '{"text": "x"}\r',
    ' {"text": "x"} \t',
    '{"text": "\u2028\u0085\x7f\uffff"}',
    '{"text": "deep", "d": ' + "[" * 900 + "]" * 900 + "}",
    '"text"',
    "null",
    "5",
    '[{"text": "x"}]',
    '{"text": "raw \n newline"}',
    '{"text": "x",}',
    "",
    "not json",
]


@pytest.mark.parametrize("line", ODD_LINES)
def test_unusual_lines_match_jq(line: str) -> None:
    assert by_us(".text", line) == by_jq(".text", line)


@pytest.mark.parametrize("line", ODD_LINES)
def test_unusual_lines_match_jq_without_jq(line: str, without_jq: None) -> None:
    assert by_us(".text", line) == by_jq(".text", line)


@pytest.mark.parametrize("line", ['{"text": "a"} {"text": "b"}', '{"text": "x", "n": 01}', '{"text": "x", "n": .5}'])
def test_lines_that_only_jq_parses(line: str) -> None:
    assert by_us(".text", line) == by_jq(".text", line) is not None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": null}', "the result is null (or no such key), expected a string"),
        (b"{}", "the result is null (or no such key), expected a string"),
        (b'{"text": 1.5}', "the result is a number, expected a string"),
        (b'{"text": {}}', "the result is an object, expected a string"),
        (b"[1]", "no 'text' in an array"),
        (b'{"text": "\xff"}', "not UTF-8: byte 0xff at byte 10 of the line"),
        (b'{"text": "\\ud800"}', "lone surrogate escape"),
    ],
)
def test_reasons(line: bytes, reason: str) -> None:
    with pytest.raises(FaultyDocument) as caught:
        compile_pattern(".text")(line)
    assert str(caught.value) == reason


def test_reasons_without_jq(without_jq: None) -> None:
    text_of = compile_pattern(".text")
    with pytest.raises(FaultyDocument, match="lone surrogate escape"):
        text_of(b'{"text": "\\ud800"}')
    with pytest.raises(FaultyDocument, match="not JSON: Expecting value at character 0"):
        text_of(b"nonsense")
    with pytest.raises(FaultyDocument, match="nested too deeply"):
        text_of(b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(MissingExtra, match=r"fastpack-llm\[jq\]"):
        compile_pattern(".text | ascii_downcase")


def test_patterns_that_need_jq() -> None:
    assert compile_pattern('.title + "\\n" + .text')(b'{"title": "T", "text": "body"}') == "T\nbody"
    chosen = compile_pattern("select(.n > 1) | .text")
    assert chosen(b'{"n": 2, "text": "kept"}') == "kept"
    with pytest.raises(FaultyDocument, match="jq gives no result"):
        chosen(b'{"n": 1, "text": "left out"}')
    assert compile_pattern(".a[]")(b'{"a": ["first", "second"]}') == "first"


def test_a_pattern_that_jq_rejects_is_an_error_when_compiled() -> None:
    with pytest.raises(ValueError, match=r"jq rejects the pattern '\.foo-bar'"):
        compile_pattern(".foo-bar")


def test_lines_may_be_views_of_a_file() -> None:
    assert compile_pattern(".text")(memoryview(b'xx{"text": "y"}xx')[2:-2]) == "y"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "odd key"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    json_values,
    st.sampled_from([".", ".a", ".a.b", '."odd key"', ".a[0]", ".[0]", ".[-1].b", '.["b"].a']),
    st.booleans(),
)
@example({"a": {"b": "x"}}, ".a.b", True)
def test_plain_paths_agree_with_jq(value: Any, pattern: str, ascii_only: bool) -> None:
    line = json.dumps(value, ensure_ascii=ascii_only)
    try:
        line.encode()
    except UnicodeEncodeError:
        return
    steps = parse_plain_path(pattern)
    assert steps is not None
    expected = by_jq(pattern, line)
    assert by_us(pattern, line) == expected
    try:
        assert fields._by_json(steps)(line.encode()) == expected
    except FaultyDocument:
        assert expected is None
