"""Expand brace expressions as braceexpand 0.1.7 does; collapsing and expanding returns the same list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack.webdataset import braces
from fastpack.webdataset.braces import collapse, expand, expand_all

PIECES = st.sampled_from(["{", "}", ",", "..", "a", "0", "1", "09", "-2", "\\", "{1..3}", "{a,b}", ".tar", "\n"])
EXPRESSIONS = st.lists(PIECES, max_size=10).map("".join)


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        ("", [""]),
        ("x.tar", ["x.tar"]),
        ("item{1..3}", ["item1", "item2", "item3"]),
        ("{08..11}", ["08", "09", "10", "11"]),
        ("{8..011}", ["008", "009", "010", "011"]),
        ("{4..1..2}", ["4", "2"]),
        ("{1..4..-2}", ["1", "3"]),
        ("{1..2..0}", ["1", "2"]),
        ("{2..-1}", ["2", "1", "0", "-1"]),
        ("{-01..1}", ["-01", "000", "001"]),
        ("{3..3}", ["3"]),
        ("{a..e..2}", ["a", "c", "e"]),
        ("{Y..b}", ["Y", "Z", "a", "b"]),
        ("{c..A..20}", ["c", "I"]),
        ("x{,.idx}", ["x", "x.idx"]),
        ("{a,b}{1,2}", ["a1", "a2", "b1", "b2"]),
        ("p{2.{5..6},3.{2,3}}", ["p2.5", "p2.6", "p3.2", "p3.3"]),
        ("{}", ["{}"]),
        ("{a}", ["{a}"]),
        ("a{b{1,2}}", ["a{b1}", "a{b2}"]),
        (r"{1\{2,3}", ["1{2", "3"]),
        (r"a\{1,2\}", ["a{1,2}"]),
        (r"sh_\d+\.tar", ["sh_d+.tar"]),
        (r"a\\b", ["a\\b"]),
        (r"{a\\\\b,c}", ["a\\b", "c"]),  # each level halves the backslashes
        ("a}b{", ["a}b{"]),
        ("ends\\", ["ends\\"]),
    ],
)
def test_expand(expression: str, texts: list[str]) -> None:
    assert expand(expression) == texts


def test_backslashes_are_kept_with_escape_false() -> None:
    assert expand(r"\d{1,2}", escape=False) == [r"\d1", r"\d2"]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("{1{2,3}", "do not match"),
        ("}", "do not match"),
        ("{1..99999999}", "more than 10000000 names"),
        ("{1..9999}{1..9999}", "more than 10000000 names"),
        ("{1..9999999999999999999999}", "more than 10000000 names"),
        ("{" * 5000 + "}" * 5000, "nested too deeply"),
    ],
)
def test_invalid_expressions_are_rejected(expression: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        expand(expression)


def test_the_total_number_of_texts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert expand_all(["{a,b}", "c"]) == ["a", "b", "c"]
    monkeypatch.setattr(braces, "MAX_NAMES", 1000)
    assert len(expand_all(["{1..500}"] * 2)) == 1000
    with pytest.raises(ValueError, match="more than 1000 names"):
        expand_all(["{1..501}"] * 2)


@given(EXPRESSIONS)
def test_an_expanded_text_expands_to_itself(expression: str) -> None:
    try:
        texts = expand(expression)
    except ValueError:
        return
    assert all(expand(text) == [text] for text in texts if not set(text) & set("{}\\"))


@pytest.mark.parametrize(
    ("names", "expressions"),
    [
        ([], []),
        (["a.tar"], ["a.tar"]),
        (["p_00.tar", "p_01.tar", "p_03.tar"], ["p_{00..01}.tar", "p_03.tar"]),
        (["x8.tar", "x9.tar", "x10.tar", "x11.tar"], ["x{8..9}.tar", "x{10..11}.tar"]),
        (["1/a1.tar", "1/a2.tar", "2/a2.tar"], ["1/a{1..2}.tar", "2/a2.tar"]),
        (["a2.tar", "a1.tar", "a0.tar"], ["a2.tar", "a1.tar", "a0.tar"]),
        (["a01_1.tar", "a1_2.tar"], ["a01_1.tar", "a1_2.tar"]),  # Energon collapses it to a shard that does not exist
        (["c{1,2}.tar"], [r"c\{1,2\}.tar"]),
        (["b{_1.tar", "b{_2.tar"], [r"b\{_{1..2}.tar"]),
        (["a\\1", "a\\2"], [r"a\\{1..2}"]),
        (["{}.tar"], ["{}.tar"]),
        (["٣1", "٣2", "٤2"], ["٣{1..2}", "٤2"]),
    ],
)
def test_collapse(names: list[str], expressions: list[str]) -> None:
    assert collapse(names) == expressions
    assert expand_all(expressions) == names


NAMES = st.builds(
    lambda head, number, width, tail: f"{head}{number:0{width}d}{tail}",
    st.sampled_from(["a", "a01_", "b{", "x/", "", "q\\", "c}"]),
    st.integers(0, 120),
    st.integers(1, 3),
    st.sampled_from([".tar", "_1.tar", "_01.tar", ",}.tar", "\n"]),
)


@given(st.lists(NAMES | st.text(max_size=6), max_size=20) | st.lists(NAMES, max_size=200).map(sorted))
def test_collapsed_names_expand_to_the_same_list(names: list[str]) -> None:
    try:
        expressions = collapse(names)
    except ValueError:
        assert any("\n" in name for name in names)  # a backslash before a newline cannot be written
        return
    assert expand_all(expressions) == names
    assert len(expressions) <= len(names)
