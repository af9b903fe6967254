"""The pickled index codecs compared with golden files, with pickle, and with each other."""

from __future__ import annotations

import pickle
import pickletools
import random
import struct

import fuzz_pickled_index as fuzz
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels.codecs import pickled_index_decoder_np, pickled_index_encoder_cy, pickled_index_encoder_np
from fastpack.kernels.codecs.pickled_index_errors import EXPECTED, Fault, IndexSyntaxError

BOUNDARIES = [0, 1, 2**63 - 1, -(2**63)]
for _bits in (7, 8, 15, 16, 31, 32, 39, 40, 47, 48, 55, 56, 63):
    BOUNDARIES += [sign * 2**_bits + d for sign in (1, -1) for d in (-1, 0, 1) if sign * 2**_bits + d in fuzz.INT64]

numbers = st.one_of(
    st.sampled_from(BOUNDARIES), st.integers(0, 255), st.integers(0, 70_000), st.integers(-(2**63), 2**63 - 1)
)
index_lists = st.lists(st.tuples(numbers, numbers), max_size=40)


def decode(data: bytes) -> tuple[list[tuple[int, int]], int]:
    rows, n_bytes, _ = kernels.decode_index(np.frombuffer(data, np.uint8))
    return [tuple(row) for row in rows.tolist()], n_bytes


def refuse(data: bytes) -> IndexSyntaxError:
    with pytest.raises(IndexSyntaxError) as caught:
        kernels.decode_index(np.frombuffer(data, np.uint8))
    return caught.value


def random_rows(n_rows: int, seed: int) -> list[tuple[int, int]]:
    """Return rows with integers of every width, near the limits of the width and between them."""
    rng = np.random.default_rng(seed)
    table = np.array(BOUNDARIES, dtype=np.int64)
    widths = rng.integers(0, 63, (n_rows, 2))
    plain = rng.integers(0, 2**63 - 1, (n_rows, 2)) >> widths
    return [tuple(r) for r in np.where(rng.random((n_rows, 2)) < 0.3, rng.choice(table, (n_rows, 2)), plain).tolist()]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("n_rows", [0, 1, 2, 3, 254, 255, 256, 257, 999, 1000, 1001, 2001, 3000, 6500])
def test_decodes_every_protocol(backend: str, protocol: int, n_rows: int) -> None:
    rows = random_rows(n_rows, seed=n_rows)
    data = pickle.dumps(rows, protocol)
    assert decode(data) == (rows, len(data))


@pytest.mark.parametrize("protocol", range(1, 6))
def test_decodes_the_output_of_the_python_pickler(backend: str, protocol: int) -> None:
    rows = random_rows(1001, seed=1)
    data = pickle._dumps(rows, protocol)  # type: ignore[attr-defined]
    assert data != pickle.dumps(rows, protocol), "it appends the last of 1001 rows by itself"
    assert decode(data) == (rows, len(data))


@pytest.mark.parametrize("protocol", range(6))
def test_decodes_rows_fetched_from_the_memo(backend: str, protocol: int) -> None:
    row, other = (2**40, 77), (5, 6)
    rows = ([row] * 5000 + [other]) * 3 + [row]
    data = pickle.dumps(rows, protocol)
    assert len(data) < 8 * len(rows), "most rows are fetched, so that they outnumber the usual bytes per row"
    assert decode(data) == (rows, len(data))


def test_decodes_rows_without_memo_opcodes(backend: str) -> None:
    data = b"\x80\x04]\x94(" + b"K\x01K\x02\x86" * 7000 + b"e."
    assert decode(data) == ([(1, 2)] * 7000, len(data))


@pytest.mark.parametrize("n_more", [1, 2, 3, 5, 20, 100, 20_000])
def test_rows_of_two_bytes_in_a_small_file(backend: str, n_more: int) -> None:
    """A memoised row takes fewer bytes than any other row, so the row buffer must grow."""
    data = b"\x80\x04]\x94(K\x05K\x07\x86\x94" + b"h\x01" * n_more + b"e."
    assert decode(data) == ([(5, 7)] * (n_more + 1), len(data))
    assert refuse(data[:-2]).offset == len(data) - 2


def test_bytes_after_the_pickle_are_ignored(backend: str) -> None:
    data = pickle.dumps([(1, 2)], 4)
    assert decode(data + b"cos\nsystem\n") == ([(1, 2)], len(data))


def test_read_only_and_unaligned_buffers(backend: str) -> None:
    data = pickle.dumps([(i, 7) for i in range(100)], 4)
    view = np.frombuffer(b"\0" + data, np.uint8)[1:]
    assert not view.flags.writeable
    assert kernels.decode_index(view)[0].tolist() == [[i, 7] for i in range(100)]


class Exploit:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("this pickle was run",)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("content", [Exploit(), [Exploit()], [(1, Exploit())], [(np.int64(1), 2)]])
def test_no_code_is_executed(backend: str, protocol: int, content: object) -> None:
    data = pickle.dumps(content, protocol)
    error = refuse(data)
    assert error.fault in (Fault.OPCODE, Fault.GRAMMAR)
    assert error.offset < len(data)


LIST = b"\x80\x04]\x94"


@pytest.mark.parametrize(
    ("data", "fault", "offset"),
    [
        (b"", Fault.END, 0),
        (b"\x80", Fault.TRUNCATED, 0),
        (b"\x80\x06].", Fault.PROTOCOL, 0),
        (b"]\x80\x04.", Fault.PROTOCOL_PLACE, 1),
        (LIST, Fault.END, 4),
        (LIST + b"c", Fault.OPCODE, 4),
        (LIST + b"\xff", Fault.OPCODE, 4),
        (LIST + b"].", Fault.GRAMMAR, 4),
        (LIST + b"K\x01.", Fault.GRAMMAR, 6),
        (LIST + b"K\x01a.", Fault.GRAMMAR, 6),
        (LIST + b"K\x01K\x01K\x01", Fault.GRAMMAR, 8),
        (LIST + b"(K\x01K\x01\x86", Fault.END, 10),
        (LIST + b"(K\x01K\x01\x86.", Fault.GRAMMAR, 10),
        (LIST + b"(K\x01K", Fault.TRUNCATED, 7),
        (LIST + b"K\x01K\x02\x86\x94h\x01", Fault.GRAMMAR, 10),
        (LIST + b"h\x00a.", Fault.MEMO_GET, 4),
        (LIST + b"h\x01a.", Fault.MEMO_GET, 4),
        (b"\x80\x02]r\xff\xff\xff\x0f.", Fault.MEMO_PUT, 3),
        (b"\x80\x02]q\x00q\x01q\x00.", None, 0),
        (LIST + b"(I01\nI2\nte.", Fault.DECIMAL, 5),
        (LIST + b"(I-0\n", Fault.DECIMAL, 5),
        (LIST + b"(L5\n", Fault.DECIMAL, 5),
        (LIST + b"(I" + b"1" * 30 + b"\n", Fault.DECIMAL, 5),
        (LIST + b"(I" + b"1" * 20, Fault.TRUNCATED, 5),
        (LIST + b"(I9223372036854775808\n", Fault.INT_RANGE, 5),
        (LIST + b"(L-9223372036854775809L\n", Fault.INT_RANGE, 5),
        (LIST + b"(\x8a\x09" + bytes(9), Fault.INT_SIZE, 5),
        (LIST + b"(\x8b\xff\xff\xff\xff", Fault.INT_SIZE, 5),
        (LIST + b"(\x8a\x08\x01", Fault.TRUNCATED, 5),
        (b"\x80\x04\x95\x04" + bytes(7) + b"].", Fault.FRAME_LENGTH, 2),
        (b"\x80\x04\x95\x03" + bytes(7) + b"]\x94.x", None, 0),
        (b"\x80\x04\x95\x04" + bytes(7) + b"]\x94.x", Fault.STOP_PLACE, 13),
        (b"\x80\x04\x95\x0a" + bytes(7) + b"\x95\x01" + bytes(7) + b"].", Fault.FRAME_PLACE, 11),
        (b"\x80\x04\x95\x03" + bytes(7) + b"]\x94K\x05K\x05\x86a.", Fault.STRADDLE, 13),
    ],
)
def test_errors_contain_the_cause_and_the_offset(backend: str, data: bytes, fault: Fault | None, offset: int) -> None:
    fuzz.differential(data)
    if fault is None:
        assert decode(data)[0] == []
        return
    error = refuse(data)
    assert (error.fault, error.offset, error.expected) == (fault, offset, EXPECTED[fault])
    assert f"at byte {offset}" in str(error)
    assert pickle.loads(pickle.dumps(error)).__dict__ == error.__dict__


def test_a_frame_ends_between_opcodes(backend: str) -> None:
    content = b"]\x94(" + b"\x8a\x05\0\0\0\0\x01K\x05\x86\x94" * 20 + b"e."
    between = {position - 2 for _, _, position in pickletools.genops(b"\x80\x04" + content)} | {len(content)}
    for length in range(len(content) + 1):
        data = b"\x80\x04\x95" + struct.pack("<Q", length) + content
        if max(length, 0) in between:
            assert decode(data) == ([(2**32, 5)] * 20, len(data))
        else:
            assert refuse(data).fault == Fault.STRADDLE
        fuzz.differential(data)


def test_a_frame_ends_between_opcodes_in_a_single_row() -> None:
    content = b"]\x94\x8a\x05\0\0\0\0\x01\x8a\x08\0\0\0\0\0\0\0\x01\x86\x94a."
    results = [fuzz.differential(b"\x80\x04\x95" + struct.pack("<Q", n) + content) for n in range(len(content) + 1)]
    straddling = [n for n, result in enumerate(results) if result[0] == Fault.STRADDLE]
    assert straddling == [*range(3, 9), *range(10, 19)]
    assert all(result[0] == [(2**32, 2**56)] for n, result in enumerate(results) if n not in straddling)


@settings(max_examples=150)
@given(index_lists, st.integers(0, 5))
def test_three_decoders_and_pickle_agree_on_valid_streams(rows: list[tuple[int, int]], protocol: int) -> None:
    data = pickle.dumps(rows, protocol)
    assert fuzz.differential(data) == (rows, len(data))


def _edit(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for place, n_dropped, inserted in edits:
        at = place % (len(data) + 1)
        data = data[:at] + inserted + data[at + n_dropped :]
    return data


SNIPPETS = st.one_of(
    st.sampled_from([bytes([code]) for code in pickled_index_decoder_np.ACTIONS]),
    st.sampled_from(
        [
            b"\x8a\x05",
            b"I00\n",
            b"I1\n",
            b"L7L\n",
            b"q\x01",
            b"h\x01",
            b"r\x02\0\0\0",
            b"K\x01K\x02\x86\x94",
            b"0",
            b"2",
        ]
    ),
    st.binary(min_size=1, max_size=3),
)


@settings(max_examples=400)
@given(
    index_lists,
    st.integers(0, 5),
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 3), st.one_of(st.just(b""), SNIPPETS)), max_size=3),
)
@example([(2**33, 5)], 4, [(3, 1, b"\x0a")])
def test_three_decoders_and_pickle_agree_on_damaged_streams(
    rows: list[tuple[int, int]], protocol: int, edits: list[tuple[int, int, bytes]]
) -> None:
    fuzz.differential(_edit(pickle.dumps(rows, protocol), edits))


OPCODES = st.one_of(
    st.sampled_from(
        [b"]", b"]\x94", b"(", b"(", b"t", b"\x86", b"\x86\x94", b"a", b"e", b"l", b".", b"\x94", b"K\x05K\x06\x86a"]
    ),
    st.builds(lambda n: b"K" + bytes([n]), st.integers(0, 255)),
    st.builds(lambda n: b"\x8a\x08" + struct.pack("<q", n), numbers),
    st.builds(lambda n: b"\x8b\x04\0\0\0" + struct.pack("<i", n), st.integers(-(2**31), 2**31 - 1)),
    st.builds(lambda op, n: op + bytes([n]), st.sampled_from([b"q", b"h"]), st.integers(0, 4)),
    st.builds(lambda op, n: op + struct.pack("<I", n), st.sampled_from([b"r", b"j"]), st.integers(0, 4)),
    st.builds(lambda op, n: op + b"%d\n" % n, st.sampled_from([b"p", b"g", b"I"]), st.integers(-1, 4)),
    st.builds(lambda n: b"L%dL\n" % n, st.one_of(numbers, st.integers(-(2**70), 2**70))),
)


@settings(max_examples=400)
@given(st.lists(OPCODES, max_size=14), st.lists(st.tuples(st.integers(0, 30), st.integers(-2, 12)), max_size=2))
def test_three_decoders_and_pickle_agree_on_random_opcodes(opcodes: list[bytes], frames: list[tuple[int, int]]) -> None:
    """Opcodes in any order; some are inside frames, and some frames have a wrong length."""
    pieces = [b"]\x94", *opcodes, b"."]
    for place, n_bytes in frames:
        rest = sum(map(len, pieces[place:]))
        pieces.insert(place, b"\x95" + struct.pack("<Q", max(0, rest + min(n_bytes, 0)) if n_bytes <= 0 else n_bytes))
    fuzz.differential(b"".join(pieces))


def test_damage_to_every_byte_of_a_small_index() -> None:
    """Set each byte to 0 and ff, add and subtract 1, delete it, double it; replace each 8 bytes by a limit value."""
    for protocol in range(6):
        data = pickle.dumps([(0, 5), (300, 2**33), (70_000, 12)], protocol)
        for at in range(len(data)):
            value = data[at]
            for byte in {0, 255, (value + 1) & 255, (value - 1) & 255}:
                fuzz.differential(data[:at] + bytes([byte]) + data[at + 1 :])
            fuzz.differential(data[:at] + data[at + 1 :])
            fuzz.differential(data[: at + 1] + data[at:])
            fuzz.differential(data[:at])
            for word in (2**31, 2**63, 2**64 - 1):
                fuzz.differential(data[:at] + struct.pack("<Q", word) + data[at + 8 :])


def check_mutants(n_mutants: int, seed: int) -> None:
    """Compare the decoders on seeded random edits of real streams, which are 20 times faster than hypothesis."""
    rng = random.Random(seed)
    streams = fuzz.seeds() + [pickle.dumps(random_rows(n, n), protocol) for n in (6, 14) for protocol in range(6)]
    codes = bytes(pickled_index_decoder_np.ACTIONS)
    accepted = 0
    for _ in range(n_mutants):
        data = bytearray(rng.choice(streams))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data) + 1)
            inserted = rng.choice([bytes([rng.choice(codes)]), rng.randbytes(1), data[at : at + 9], b""])
            data[at : at + rng.choice([0, 1, 1, len(inserted)])] = inserted
        accepted += not isinstance(fuzz.differential(bytes(data))[0], Fault)
    assert n_mutants // 50 < accepted < n_mutants // 2, "mutants neither all harmless nor all hopeless"


def test_damaged_streams() -> None:
    check_mutants(10_000, seed=1)


@pytest.mark.long
def test_many_damaged_streams() -> None:
    check_mutants(100_000, seed=2)


def test_fuzzer_seeds() -> None:
    assert all(not isinstance(fuzz.differential(seed)[0], Fault) for seed in fuzz.seeds())


def encode_in(rows: np.ndarray, n_frames: int) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Return the pieces that encode_rows writes to a buffer of `n_frames` frames, its final state, and the buffer."""
    out = np.zeros(n_frames * (pickled_index_encoder_np.FRAME_BYTES + 128), np.uint8)
    out[:13] = np.frombuffer(b"\x80\x04" + bytes(9) + b"]\x94", np.uint8)
    state, pieces, done = np.array([0, 2, 13], np.int64), b"", 0
    while done < len(rows):
        done += kernels.encode_rows(rows[done:], state, out)
        frame, end = int(state[1]), int(state[2])
        pieces += out[:frame].tobytes()
        out[: end - frame] = out[frame:end].copy()
        state[1:] = 0, end - frame
    return pieces, state, out


@pytest.mark.parametrize("n_frames", [2, 3, 7])
def test_encoder_stops_before_its_buffer_is_full(backend: str, n_frames: int) -> None:
    rows = np.array(random_rows(25_000, seed=n_frames), np.int64)
    pieces, state, out = encode_in(rows, n_frames)
    expected = pickle.dumps([tuple(row) for row in rows.tolist()], 4)
    assert expected.startswith(pieces)
    assert len(pieces) > 3 * pickled_index_encoder_np.FRAME_BYTES
    assert state[0] == len(rows)
    tail = out[9 : int(state[2])].tobytes()  # without the header of the open frame
    assert expected[len(pieces) + 9 :] == tail + b"."


def test_encoder_rejects_a_state_outside_the_buffer() -> None:
    out, rows = np.zeros(2 * (pickled_index_encoder_np.FRAME_BYTES + 128), np.uint8), np.zeros((1, 2), np.int64)
    for state in ([0, -1, 13], [0, 20, 13], [0, 2, len(out)]):
        with pytest.raises(ValueError, match="does not fit"):
            pickled_index_encoder_cy.encode_rows(rows, np.array(state, np.int64), out)
    with pytest.raises(ValueError, match="room for two frames"):
        pickled_index_encoder_cy.encode_rows(rows, np.array([0, 2, 13], np.int64), out[:1000])
