"""The tar walk: both implementations compared with each other and with Python's tarfile.

`differential` is the property of the fuzz target `tar` and of tests/kernels/codecs/test_tar.py. The target corrects the
checksums of headers first; otherwise nearly every mutant would be rejected for them.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastpack.kernels.codecs import tar_cy, tar_np
from fastpack.kernels.codecs.tar_errors import MAX_NAME_BYTES, Outcome, State, TarSyntaxError

WALKS = (tar_cy.walk_tar, tar_np.walk_tar)
META = re.compile(r"__[^/]*__($|/)")
KEY_AND_FIELD = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")


def header(name: bytes, size: int | bytes = 0, kind: bytes = b"0", **fields: bytes) -> bytes:
    """Return a header block. size: a number or the bytes of the field; fields: `prefix`, ..., `tail` from 345 on."""
    block = bytearray(512)
    block[: len(name)] = name
    places = {"mode": 100, "uid": 108, "mtime": 136, "linkname": 157, "magic": 257, "prefix": 345, "tail": 345}
    for field, value in ({"mode": b"0000644\0", "magic": b"ustar\x0000"} | fields).items():
        block[places[field] : places[field] + len(value)] = value
    block[124:136] = size if isinstance(size, bytes) else b"%011o\0" % size
    block[156:157] = kind
    return with_checksum(bytes(block))


def with_checksum(block: bytes) -> bytes:
    return block[:148] + b"%06o\0 " % (sum(block) - sum(block[148:156]) + 256) + block[156:]


def member(name: bytes, data: bytes = b"", kind: bytes = b"0", **fields: bytes) -> bytes:
    """Return a header and its padded data."""
    return header(name, len(data), kind, **fields) + padded(data)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def records(pairs: Sequence[tuple[bytes, bytes]], kind: bytes = b"x") -> bytes:
    """Return a PAX header with these records."""
    data = b""
    for keyword, value in pairs:
        n_bytes = len(keyword) + len(value) + 3
        n_digits = next(n for n in range(1, 9) if len(str(n_bytes + n)) == n)
        data += b"%d %s=%s\n" % (n_bytes + n_digits, keyword, value)
    return member(b"pax", data, kind)


def expected(data: bytes, end: int) -> tuple[Any, ...] | None:
    """Read the archive data[:end] with Python's tarfile and Energon's two patterns; return None if they fail.

    Return (n_members, rows of (sample, field, offset, size, is sparse), (key, start) of samples). A member appended at
    `end` shows whether tarfile read the whole archive; it stops at some faults without an error.
    """
    file = io.BytesIO(data[:end] + header(b"the end") + bytes(1024))
    try:
        with tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
            members = tar.getmembers()
    except Exception:
        return None
    if not members or (members[-1].name, members[-1].offset) != ("the end", end):
        return None
    rows: list[tuple[Any, ...]] = []
    samples: list[tuple[bytes, int]] = []
    for info in members[:-1]:
        match = KEY_AND_FIELD.match(info.name) if info.isreg() and not META.match(info.name) else None
        if match is None:
            continue
        key, field = (text.encode("utf-8", "surrogateescape") for text in match.groups())
        if not samples or samples[-1][0] != key:
            samples.append((key, info.offset))
        rows.append((len(samples) - 1, field, info.offset_data, info.size, info.sparse is not None))
    return len(members) - 1, rows, samples


class Store:
    """The buffers of a walk, for `n_rows` rows and `n_fields` field names at a time, and all results so far."""

    def __init__(self, n_rows: int = 64, n_fields: int = 8) -> None:
        self.state = np.zeros(len(State), np.int64)
        self.state[State.KEY_END], self.state[State.MAX_MEMBERS] = -1, 10_000
        self.filled = (
            np.empty((n_rows, 5), np.int64),
            np.empty((n_rows, 3), np.int64),
            np.empty(2 * MAX_NAME_BYTES, np.uint8),
            np.empty(MAX_NAME_BYTES, np.uint8),
            np.empty(n_fields, np.int64),
        )
        self.rows: list[tuple[Any, ...]] = []
        self.samples: list[tuple[bytes, int]] = []

    def empty(self) -> None:
        """Append the contents of the buffers to the results and empty them, except for the last sample's key."""
        state, (rows, samples, text, field_names, part_ends) = self.state, self.filled
        ends = part_ends[: state[State.N_PARTS]].tolist()
        names = [field_names[start:end].tobytes() for start, end in zip([0, *ends], ends, strict=False)]
        for sample, field, offset, size, is_sparse in rows[: state[State.N_ROWS]].tolist():
            self.rows.append((sample, names[field], offset, size, bool(is_sparse)))
        for start, key_start, key_end in samples[: state[State.N_NEW]].tolist():
            self.samples.append((text[key_start:key_end].tobytes(), start))
        if state[State.KEY_END] >= 0:
            key = text[state[State.KEY_START] : state[State.KEY_END]].copy()
            text[: len(key)] = key
            state[[State.KEY_START, State.KEY_END, State.TEXT_END]] = 0, len(key), len(key)
        state[[State.N_ROWS, State.N_NEW, State.N_PARTS, State.LAST_PART]] = 0


def outcome(walk: Any, data: bytes, n_window: int | None = None, store: Store | None = None) -> tuple[Any, ...]:
    """Return the result of a walk: (position, n_members, rows, samples), or the fault, its offset and the texts.

    n_window: bytes of the file per call; more only if the walk requests them.
    """
    store = Store() if store is None else store
    file, base = np.frombuffer(data, np.uint8), 0
    window = file[:n_window]
    try:
        while (done := walk(window, base, len(data), store.state, *store.filled)) != Outcome.END:
            if done == Outcome.FULL:
                store.empty()
                continue
            base, needed = store.state[[State.POSITION, State.WANTED]].tolist()
            assert needed > 0
            window = file[base : base + max(needed, n_window or len(data))]
            assert len(window) >= needed
    except TarSyntaxError as error:
        return "refused", error.fault, error.offset, error.found, error.expected
    store.empty()
    return int(store.state[State.POSITION]), int(store.state[State.N_MEMBERS]), store.rows, store.samples


def differential(data: bytes) -> tuple[Any, ...]:
    """Assert that both implementations agree for all window sizes, and with tarfile if they accept the data."""
    outcomes = [outcome(walk, data, n_window) for walk in WALKS for n_window in (None, 512)]
    outcomes.append(outcome(tar_cy.walk_tar, data, 1536, Store(n_rows=1, n_fields=1)))
    assert all(other == outcomes[0] for other in outcomes[1:]), (data.hex(), outcomes)
    if outcomes[0][0] != "refused":
        assert outcomes[0][1:] == expected(data, outcomes[0][0]), (data.hex(), outcomes[0])
    return outcomes[0]


def repaired(data: bytes) -> bytes:
    """Correct the checksums of all blocks that look like headers."""
    blocks = [data[at : at + 512] for at in range(0, len(data), 512)]
    return b"".join(with_checksum(b) if len(b) == 512 and b[257:262] == b"ustar" else b for b in blocks)


def seeds() -> list[bytes]:
    """Return small archives with every feature that the walk handles."""
    old_map = b"".join(b"%011o\0" % number for number in (0, 1, 1024, 2, 0, 0, 0, 0)) + b"\0" + b"%011o\0" % 4096
    sparse = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"s.bin")]
    members = {
        "plain": member(b"a.jpg", b"12") + member(b"a.txt", b"345") + member(b"b.jpg"),
        "links": member(b"a.x", kind=b"1") + member(b"a.y", kind=b"2", linkname=b"a.x") + member(b"d/", kind=b"5"),
        "prefix": member(b"c.json", b"{}", prefix=b"d/e") + member(b"v/", kind=b"\0", magic=b"\0" * 8),
        "contiguous": member(b"a.x", b"1", b"7") + member(b"a.y", b"2", b"\0", magic=b"\0" * 8),
        "gnu": member(b"././@LongLink", b"n" * 150 + b".jpg\0", b"L") + member(b"short.jpg", b"x"),
        "link": member(b"././@LongLink", b"n" * 150 + b"\0", b"K") + member(b"l", kind=b"2"),
        "pax": records([(b"path", b"p/q.txt"), (b"size", b"3")]) + header(b"x.y") + padded(b"abc"),
        "global": records([(b"comment", b"no")], b"g") + member(b"a.b"),
        "binary": header(b"big.bin", b"\x80" + (5).to_bytes(11, "big")) + padded(b"12345"),
        "old sparse": member(b"o.bin", b"abc", b"S", tail=bytes(41) + old_map),
        "map 0.1": records([(b"GNU.sparse.size", b"99"), (b"GNU.sparse.map", b"0,1,50,1")]) + member(b"m.bin", b"ab"),
        "map 1.0": records([*sparse, (b"GNU.sparse.realsize", b"77")]) + member(b"m", padded(b"1\n0\n2\n") + b"ab"),
    }
    return [data + bytes(1024) for data in members.values()] + [b"".join(members.values()), bytes(1024), b""]
