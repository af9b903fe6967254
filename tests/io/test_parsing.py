"""YAML and JSON files of users: every fault raises the same error type, with its byte offset."""

from __future__ import annotations

import pickle

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fastpack.io.parsing import ParseError, TextLoader, parse_json, parse_yaml


@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        ("é: [1, ]]".encode(), 9, "expected <block end>"),
        ("日本: &a 1\nb: *a\n".encode(), 16, "aliases are refused"),
        ("é: [1, ]]".encode("utf-16"), 18, "expected <block end>"),
        (b"a: \xff", 3, "invalid start byte"),
        ("é: \x00".encode(), 4, "special characters are not allowed"),
        (b"a: !!timestamp x", 0, "AttributeError"),
        (b"a: !!bool x", 0, "KeyError"),
        (b"a: !!int ''", 0, "IndexError"),
        (b"a: 2001-99-99", 0, "month must be in 1..12"),
        (b"[" * 5000, 0, "RecursionError"),
    ],
)
def test_yaml(data: bytes, offset: int, reason: str) -> None:
    with pytest.raises(ParseError, match=reason) as caught:
        parse_yaml(data)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        ('{"é": ]'.encode(), 7),
        ('{"é": ]'.encode("utf-16-le"), 12),
        (b'["\xff"]', 2),
        (b"[" * 100_000, 0),
        (b"9" * 5000, 0),
        (b"", 0),
    ],
)
def test_json(data: bytes, offset: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse_json(data)
    assert caught.value.offset == offset
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.offset) == (str(caught.value), offset)


def test_keys_remain_strings() -> None:
    assert parse_yaml(b"yes: [1, 2024-01-01]", TextLoader) == {"yes": ["1", "2024-01-01"]}


class WithoutAliases(yaml.Dumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda one: st.lists(one, max_size=3)))
def test_written_data_is_read_back(tree: object) -> None:
    assert parse_yaml(yaml.dump(tree, Dumper=WithoutAliases).encode()) == tree
