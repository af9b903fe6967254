"""The JSON kernel compared with json.loads: it must never accept a line that json.loads rejects."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels.codecs import json_cy

# Lines that the kernel must accept. If it were "unsure" about them, Python would parse every line of a corpus.
CERTAIN = [
    b'{"text":"a"}',
    b' { "a" : [ 1 , -0 , 0.5 , 1e9 , -1.25E-07 ] , "b" : { } , "c" : [ ] } ',
    b'{"a":{"b":[[],{}]},"c":null}\r',
    b"1",
    b"-12.5e+3",
    b"true",
    b"false",
    b"null",
    b'""',
    b'"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\\ud800"',
    '"é€😀\u2028\u0085\ufeff\U0010ffff"'.encode(),
    b'"\x7f"',
    b'"' + b"a" * 1000 + b'"',
    b"9" * 600,
    b"[" * 200 + b"]" * 200,
    b'{"a":1,"a":2}',
]
# Lines that json.loads accepts beyond the RFC or near its limits: the kernel must be "unsure".
UNSURE = [
    b"NaN",
    b"-Infinity",
    b"\xef\xbb\xbf{}",
    "[1]".encode("utf-16"),
    "[1]".encode("utf-32-be"),
    b'"\xed\xa0\x80"',
    b"1" * 700,
    b"[" * 400 + b"]" * 400,
]
REFUSED = [
    b"",
    b" ",
    b"{oops",
    b"{} {}",
    b"{}\x00",
    b"\x0b{}",
    b"{}\r{}",
    b"[1,]",
    b'{"a":1,}',
    b'{"a"}',
    b'{"a":}',
    b"{1:2}",
    b"{,}",
    b"[}",
    b"[",
    b"]",
    b"01",
    b"1.",
    b".5",
    b"+1",
    b"-",
    b"1e",
    b"1e+",
    b"0x1",
    b"tru",
    b"nul",
    b"falsee",
    b'"a',
    b'"\\',
    b'"\\"',
    b'"\\x"',
    b'"\\u12"',
    b'"\\u12g4"',
    b'"\\u 123"',
    b'"a\tb"',
    b'"a\x00"',
    b'"\x1f"',
    b"'a'",
    b'"\xff"',
    b'"\x80"',
    b'"\xc0\x80"',
    b'"\xc3"',
    b'"\xe0\x80\x80"',
    b'"\xe2\x82"',
    b'"\xf0\x80\x80\x80"',
    b'"\xf4\x90\x80\x80"',
    b'"\xf5\x80\x80\x80"',
    b'"\xf0\x9f\x98"',
    b"\xc3\xa9",
    b"1" * 5000,
    b"[" * 100_000,
]


def pack_lines(lines: list[bytes]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    lengths = np.array([len(line) for line in lines], np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths + 1)[:-1]))
    return np.frombuffer(b"\n".join(lines) + b"\n", np.uint8), np.stack((starts, lengths), axis=1)


def verdicts(lines: list[bytes]) -> list[int]:
    data, rows = pack_lines(lines)
    verdict = np.full(len(lines), 7, np.uint8)
    kernels.validate_json_rows(data, rows, verdict)
    return list(verdict.tolist())


def accepted(line: bytes) -> bool:
    try:
        json.loads(line)
    except Exception:
        return False
    return True


@pytest.fixture(params=[True, False], ids=["simd", "portable"])
def simd(request: pytest.FixtureRequest):
    json_cy.use_simd(request.param)
    yield
    json_cy.use_simd(True)


def test_valid_json_is_accepted(backend: str, simd: None) -> None:
    assert all(map(accepted, CERTAIN))
    assert verdicts(CERTAIN) == [1] * len(CERTAIN)
    assert [verdicts([line])[0] for line in CERTAIN] == [1] * len(CERTAIN)


def test_unusual_json_is_unsure(backend: str, simd: None) -> None:
    assert all(map(accepted, UNSURE))
    expected = 1 if backend == "numpy" else 0
    assert verdicts(UNSURE) == [expected] * len(UNSURE)


def test_invalid_json_is_not_accepted(backend: str, simd: None) -> None:
    assert not any(map(accepted, REFUSED))
    assert verdicts(REFUSED) == [0] * len(REFUSED)


def test_an_invalid_adjacent_line_changes_nothing(backend: str, simd: None) -> None:
    """The kernel first checks the UTF-8 of all lines together."""
    lines = [line for pair in zip(CERTAIN, REFUSED, strict=False) for line in pair]
    assert verdicts(lines) == [1, 0] * (len(lines) // 2)


def test_every_prefix_at_every_offset(simd: None) -> None:
    """Bytes after the end of the line do not change the result."""
    line = '{"k": ["é", "\\u00e9\\n", -1.5e3, true], "t": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\"😀"}'.encode()
    cuts = [line[:end] for end in range(len(line) + 1)]
    assert verdicts(cuts) == [0] * len(line) + [1]
    for shift in range(70):
        assert verdicts([b"x" * shift, line]) == [0, 1]
        assert verdicts([line, b"x" * shift]) == [1, 0]


def test_a_string_does_not_end_after_its_line(simd: None) -> None:
    assert verdicts([b'"abc', b'"']) == [0, 0]
    assert verdicts([b'{"a":"\\', b'"}']) == [0, 0]
    assert verdicts([b"tr", b"ue"]) == [0, 0]


def test_escapes_at_every_offset_of_a_block(simd: None) -> None:
    """After runs of backslashes of every parity, across the borders of blocks of 32 bytes, and after other escapes."""
    runs = [b"a" * offset + b"\\" * run for offset in range(36) for run in (1, 2, 3, 32, 33, 64)]
    tails = [bytes([byte]) for byte in b'"\\/bfnrtuvax0\x01'] + [b"u00e9", b"uD83", b'u00g9\\"', b'nn\\"']
    lines = [b'"%s%s%s"' % (run, tail, b"b" * 40) for run in runs for tail in tails]
    expected = [int(accepted(line)) for line in lines]
    assert 0 < sum(expected) < len(expected)
    assert verdicts(lines) == expected


def test_escapes_near_the_end_of_the_data(simd: None) -> None:
    for offset in range(36):
        assert [verdicts([b'"%s%s"' % (b"a" * offset, tail)]) for tail in (b"\\n", b"\\x", b'\\"')] == [[1], [0], [1]]
    assert verdicts([b'"a"', b"\\", b"\\", b"a" * 64]) == [1, 0, 0, 0]


def test_every_byte_after_a_backslash(simd: None) -> None:
    lines = [b'"%s\\%c%s"' % (b"a" * 20, byte, b"z" * 40) for byte in range(256) if byte != ord("\n")]
    assert [line[22] for line, verdict in zip(lines, verdicts(lines), strict=True) if verdict] == sorted(b'"\\/bfnrt')


def test_a_subset_of_rows_in_any_order(backend: str) -> None:
    data, rows = pack_lines([b"{}", b"{oops", b"[1]", b'"\xff"'])
    verdict = np.empty(2, np.uint8)
    kernels.validate_json_rows(data, np.ascontiguousarray(rows[[2, 0]]), verdict)
    assert verdict.tolist() == [1, 1]
    kernels.validate_json_rows(data, rows[:0], verdict[:0])


@pytest.mark.parametrize("row", [(-1, 2), (0, -1), (0, 4), (4, 0), (2**62, 2**62), (1, 2**63 - 1)])
def test_rows_outside_the_data_are_rejected(backend: str, row: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="outside the 3 bytes"):
        kernels.validate_json_rows(np.frombuffer(b"{}\n", np.uint8), np.array([row]), np.empty(1, np.uint8))


def test_empty_data(backend: str) -> None:
    verdict = np.ones(1, np.uint8)
    kernels.validate_json_rows(np.empty(0, np.uint8), np.zeros((1, 2), np.int64), verdict)
    assert verdict.tolist() == [0]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
BITS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b'"',
    b"\\",
    b"\\u",
    b"\\n",
    b" ",
    b"\t",
    b"\r",
    b"0",
    b"1",
    b"-",
    b".",
    b"e",
]
BITS += [b"true", b"null", b"NaN", b"a" * 31, b'"a"', b'"a":', b"\x00", b"\x1f", b"\x80", b"\xbf", b"\xc2", b"\xe0"]
BITS += [b"\xed", b"\xf0", b"\xf4", b"\xff", "é".encode(), "€".encode(), "😀".encode()]


def check(lines: list[bytes]) -> None:
    lines = [line.replace(b"\n", b" ") for line in lines]
    truth = list(map(accepted, lines))
    for enabled in (False, True):
        json_cy.use_simd(enabled)
        for verdict, true, line in zip(verdicts(lines), truth, lines, strict=True):
            assert not verdict or true, line


@given(values=st.lists(json_values, min_size=1, max_size=4), ascii_only=st.booleans())
def test_output_of_json_dumps_is_accepted(values: list[object], ascii_only: bool) -> None:
    lines = [json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "replace") for value in values]
    assert verdicts(lines) == [1] * len(lines)


@settings(max_examples=400)
@given(pieces=st.lists(st.sampled_from(BITS), max_size=14))
@example(pieces=[b'"', b"\xed", b"\xbf", b"\x80", b'"'])
def test_random_json_tokens(pieces: list[bytes]) -> None:
    inside = b"".join(pieces)
    check([inside, b'"' + inside + b'"', b"[" + inside + b"]", b'{"a":' + inside + b"}"])


@settings(max_examples=300)
@given(value=json_values, data=st.data())
def test_damaged_json(value: object, data: st.DataObject) -> None:
    line = bytearray(json.dumps([value, "é€😀 \\ \n"], ensure_ascii=False).encode("utf-8", "replace"))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(line)))
        end = at + data.draw(st.integers(0, 3))
        line[at:end] = data.draw(st.sampled_from([b"", *BITS]))
    check([bytes(line)])


def test_every_pair_of_bytes_in_utf8(simd: None) -> None:
    """All two-byte strings and prefixes of longer characters. json.loads is the reference, except for surrogates."""
    heads = [b"", b"\xe0", b"\xe1", b"\xed", b"\xf0\x90", b"\xf0\x8f", b"\xf4\x8f", b"\xf4\x90", b"\xf1\x80"]
    strings = [head + bytes((a, b)) for head in heads for a in range(0x7E, 256) for b in (*range(0x7E, 256, 5), 0xBF)]
    strings += [head + bytes((a,)) for head in heads for a in range(0x7E, 256)]
    lines = [b'"' + string + b'"' for string in strings]
    truth = []
    for string in strings:
        try:
            string.decode()
            truth.append(1)
        except UnicodeDecodeError:
            truth.append(0)
    data, rows = pack_lines(lines)
    for step in (1, len(lines)):  # each line alone, then all valid lines together
        good = rows if step == 1 else np.ascontiguousarray(rows[np.array(truth, bool)])
        verdict = np.empty(len(good), np.uint8)
        json_cy.validate_json_rows(data, good, verdict)
        assert verdict.tolist() == (truth if step == 1 else [1] * len(good))
