"""Rows are read and written as by Modalities, and errors name unusable rows."""

from __future__ import annotations

import io
import json
import pickle
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastpack.packing.chat.chat_config import ChatConfig
from fastpack.packing.chat.conversations import FaultyRow, _lines, chat_rows

TEMPLATE = "{% for t in messages %}{{ t.role }}:{{ t.value }};{% endfor %}"
GOOD = '{"messages": [{"role": "human", "value": "hi"}]}\n'


def config(path: Path, weights: tuple[int, int, int] = (60, 30, 10), seed: int = 1, **changes: Any) -> ChatConfig:
    values = {
        "messages_key": "messages",
        "role_mapping": {"human": "User", "": "Nobody"},
        "template": TEMPLATE,
        "template_data": {},
    }
    return ChatConfig(
        "c.yaml", b"", path, Path("out.jsonl"), weights=weights, seed=seed, pbin_config_path=path, **(values | changes)
    )


def rows(source: bytes | str, tmp_path: Path, **changes: Any) -> list[tuple[str, bytes]]:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(source.encode() if isinstance(source, str) else source)
    return list(chat_rows(config(path, **changes), None))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), values, max_size=5), st.booleans())
@example({"chat": 1, "a": 2}, False)
def test_row_is_written_as_by_json_dump(tmp_path: Path, row: dict[str, Any], escaped: bool) -> None:
    row["messages"] = [{"role": "human", "value": 1, "more": row.get("x")}]
    ((_, written),) = rows(json.dumps(row, ensure_ascii=escaped), tmp_path)
    row = json.loads(json.dumps(row))
    row["messages"][0]["role"] = "User"
    row["chat"] = "User:1;"
    stream = io.StringIO()
    json.dump(row, stream, ensure_ascii=False)
    assert written == (stream.getvalue() + "\n").encode()


@given(st.lists(st.integers(1, 98), min_size=2, max_size=2), st.integers(), st.integers(0, 60))
@example([0, 0], 0, 20)
@example([0, 100], 0, 20)
def test_split_equals_that_of_modalities(tmp_path: Path, cuts: list[int], seed: int, n_rows: int) -> None:
    low, high = sorted(cuts)
    weights = (low, high - low, 100 - high)
    found = [partition for partition, _ in rows(GOOD * n_rows, tmp_path, weights=weights, seed=seed)]
    state = random.getstate()
    random.seed(seed)
    expected = [random.choices(("train", "val", "test"), weights=weights)[0] for _ in range(n_rows)]
    random.setstate(state)
    assert found == expected


@given(st.lists(st.sampled_from([b"a", b"\xc3\xa9\xe2\x80\xa8", b"\r", b"\n", b"\r\n", b"\x0b\x1c", b""]), max_size=30))
def test_lines_equal_those_of_a_text_file(tmp_path: Path, parts: list[bytes]) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(parts))
    with path.open(encoding="utf-8") as file:
        expected = [line.removesuffix("\n") for line in file]
    found = list(_lines(path, None))
    assert [line.decode() for _, line in found] == expected
    data = path.read_bytes()
    assert all(data[offset : offset + len(line)] == line for offset, line in found)
    assert all(data[offset - 1 : offset] in (b"\r", b"\n") for offset, _ in found[1:])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "an empty line, expected a JSON object"),
        ("  ", "an empty line, expected a JSON object"),
        ("{", "not JSON: Expecting property name"),
        ("{} {}", "not JSON: Extra data"),
        ("\ufeff{}", "not JSON: Unexpected UTF-8 BOM"),
        ("[" * 100_000, "not JSON: nested too deeply"),
        ("9" * 5000, "not JSON: Exceeds the limit"),
        (b'{"messages": "\xff"}', "not UTF-8: byte 0xff at byte 14 of the line"),
        ("[1, 2]", "found [1, 2], expected a JSON object"),
        ('"text"', 'found "text", expected a JSON object'),
        ("null", "found null, expected a JSON object"),
        ('{"conversations": [], "b": 1}', 'no \'messages\' among its keys ["conversations", "b"]'),
        ('{"messages": null}', "'messages' is null, expected a list of turns"),
        ('{"messages": "hi"}', "'messages' is \"hi\", expected a list of turns"),
        ('{"messages": {"role": "human"}}', '\'messages\' is {"role": "human"}, expected a list of turns'),
        ('{"messages": ["hi"]}', 'turn 0 is "hi", expected an object'),
        (
            '{"messages": [{"role": "human"}, {"role": "robot"}]}',
            "turn 1: role is \"robot\", not in the role_mapping ('human'",
        ),
        ('{"messages": [{"from": ["human"]}]}', 'turn 0: from is ["human"], not in the role_mapping'),
        ('{"messages": [{"role": null}]}', "turn 0: role is null, not in the role_mapping"),
        ('{"messages": [], "x": "\\ud800"}', "the lone surrogate \\ud800 cannot be written as UTF-8"),
    ],
)
def test_unusable_row_is_named(line: str | bytes, reason: str, tmp_path: Path) -> None:
    bad = line.encode() if isinstance(line, str) else line
    source = GOOD.encode() * 2 + bad + b"\n" + GOOD.encode()
    with pytest.raises(FaultyRow) as caught:
        rows(source, tmp_path)
    error = caught.value
    assert (error.line, error.offset) == (2, 2 * len(GOOD))
    assert str(error).startswith(f"{tmp_path / 'rows.jsonl'}: line 2 at byte {2 * len(GOOD)}: {reason}")
    assert isinstance(error, ValueError)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.reason, copy.path) == (str(error), error.reason, error.path)


def test_failing_template_names_the_row(tmp_path: Path) -> None:
    template = "{% if messages[0].value == 'bad' %}{{ raise_exception('bad turn') }}{% endif %}"
    bad = '{"messages": [{"role": "human", "value": "bad"}]}'
    with pytest.raises(FaultyRow, match=r"line 1 at byte 49: the template failed: bad turn$"):
        rows(GOOD + bad, tmp_path, template=template)


def test_empty_conversations_and_empty_files(tmp_path: Path) -> None:
    found = rows('{"messages": []}\r\n{"messages": ""}\r{"messages": {}}', tmp_path)
    assert [line for _, line in found] == [
        b'{"messages": [], "chat": ""}\n',
        b'{"messages": "", "chat": ""}\n',
        b'{"messages": {}, "chat": ""}\n',
    ]
    assert rows("", tmp_path) == []


def test_rows_are_read_in_windows(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    line = json.dumps({"messages": [{"role": "human", "value": "x" * 2000}]}).encode() + b"\n"
    path.write_bytes(line * 10_000)
    seen: list[tuple[int, int]] = []
    tracemalloc.start()
    n_rows = sum(1 for _ in chat_rows(config(path), lambda done, total: seen.append((done, total))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n_rows == 10_000
    assert peak < 2 << 20
    total = len(line) * 10_000
    assert len(seen) > 3
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
