"""The tar walk compared with Python's tarfile, the implementations compared with each other, and each fault."""

from __future__ import annotations

import io
import tarfile

import fuzz_tar as fuzz
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.kernels.codecs import tar_cy
from fastpack.kernels.codecs.tar_errors import (
    MAX_GROUP_BYTES,
    MAX_NAME_BYTES,
    MAX_RECORDS_BYTES,
    TEXTS,
    Fault,
    State,
    TarSyntaxError,
)

header, member, records = fuzz.header, fuzz.member, fuzz.records
SEEDS = fuzz.seeds()
END = bytes(1024)
NAMES = st.text(st.sampled_from("ab._/\n é日"), min_size=1, max_size=12) | st.text("ab/.", min_size=90, max_size=280)
KINDS = [tarfile.REGTYPE] * 5 + [tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CONTTYPE]
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def walk(data: bytes, **options: int) -> tuple[object, ...]:
    result: tuple[object, ...] = fuzz.outcome(kernels.walk_tar, data, **options)
    return result


def fault(data: bytes) -> tuple[Fault, int, str]:
    result = walk(data)
    assert result[0] == "refused", result
    return Fault(result[1]), int(str(result[2])), str(result[3])


def rows(data: bytes) -> list[tuple[object, ...]]:
    result = walk(data)
    assert result[0] != "refused", result
    found = result[2]
    assert isinstance(found, list)
    return found


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """Draw archives written by tarfile, with any names and member types that the format supports."""
    file = io.BytesIO()
    name = draw(st.sampled_from(sorted(FORMATS)))
    with tarfile.open(fileobj=file, mode="w", format=FORMATS[name], encoding="utf-8", errors="surrogateescape") as tar:
        for _ in range(draw(st.integers(0, 8))):
            info = tarfile.TarInfo(draw(NAMES))
            info.type = draw(st.sampled_from(KINDS))
            info.linkname = draw(NAMES) if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            # All readers treat a V7 file as a directory if its name, or the first 100 bytes of it, ends with a slash.
            is_file = info.isreg() and not (info.type == tarfile.AREGTYPE and "/" in info.name)
            content = draw(st.binary(max_size=1200)) if is_file else b""
            info.size = len(content)
            try:
                tar.addfile(info, io.BytesIO(content))
            except ValueError:  # too long for ustar
                continue
    return file.getvalue()


@given(archives())
def test_archives_of_tarfile_are_read_as_by_tarfile(data: bytes) -> None:
    result = fuzz.differential(data)
    assert result[0] != "refused", result


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_small_archives_of_every_type(number: int) -> None:
    assert fuzz.differential(SEEDS[number])[0] != "refused"


def test_changed_bytes_of_small_archives() -> None:
    n_refused = 0
    for seed in SEEDS[:12]:
        n_bytes = len(seed.rstrip(b"\0"))
        for at in range(0, n_bytes, 3 if n_bytes < 1200 else 11):
            for byte in (0, 0xFF, seed[at] ^ 1):
                mutant = seed[:at] + bytes([byte]) + seed[at + 1 :]
                n_refused += fuzz.differential(mutant)[0] == "refused"
    assert n_refused > 1000


def test_archives_truncated_anywhere() -> None:
    """An archive may end after a member, without zero blocks. At any other position it is truncated."""
    n_blocks = (2, 4, 5, 6, 7, 8, 10, 11, 13, 15, 19, 22, 26, 28, 29, 31, 33, 37, 42)
    whole, ends = SEEDS[12], {0, *(512 * n for n in n_blocks)}
    for n_bytes in sorted({*range(0, len(whole) + 1, 61), *ends}):
        assert fuzz.differential(whole[:n_bytes])[0] == (n_bytes if n_bytes in ends else "refused")


EDITS = st.lists(
    st.tuples(st.sampled_from(["set", "drop", "twice"]), st.integers(0, 2**20), st.integers(0, 255)), max_size=5
)


@given(st.sampled_from(SEEDS) | archives(), EDITS, st.booleans())
@settings(max_examples=400)
@example(SEEDS[0], [("drop", 512, 0)], False)
def test_implementations_agree_on_mutants(data: bytes, edits: list[tuple[str, int, int]], are_repaired: bool) -> None:
    mutant = bytearray(data)
    for kind, at, byte in edits:
        at %= len(mutant) or 1
        block = at // 512 * 512
        if kind == "set":
            mutant[at : at + 1] = bytes([byte])
        elif kind == "drop":
            del mutant[block : block + 512]
        else:
            mutant[block:block] = mutant[block : block + 512]
    result = fuzz.differential(fuzz.repaired(bytes(mutant)) if are_repaired else bytes(mutant))
    assert result[0] == "refused" or result[0] <= len(mutant)


NAME_TABLE = [
    (b"v1.0/003.seg.png", (b"v1.0/003", b"seg.png")),
    (b"./a.jpg", (b"./a", b"jpg")),
    (b"dot.", (b"dot", b"")),
    (b"a.jpg\n", (b"a", b"jpg\n")),
    (b"/abs.jpg", (b"/abs", b"jpg")),
    (b"z//y.jpg", (b"z//y", b"jpg")),
    (b"tr/../y.jpg", (b"tr/../y", b"jpg")),
    (b"d/.hid.jpg", (b"d/", b"hid.jpg")),
    (b"a.b/.hid.jpg", None),
    (b"dd..jpg", (b"dd", b".jpg")),
    (b"e/..jpg", (b"e/", b".jpg")),
    (b"f/g.h/i", None),
    (b".top.jpg", None),
    (b"none", None),
    (b"__meta__/x.json", None),
    (b"__m__", None),
    (b"__m__\n", None),
    (b"./__meta__/x.json", (b"./__meta__/x", b"json")),
    (b"d/__m__/x.json", (b"d/__m__/x", b"json")),
    (b"__key__.json", (b"__key__", b"json")),
    (b"____/a.b", None),
    (b"___/a.b", (b"___/a", b"b")),
    (b"caf\xc3\xa9.jpg", (b"caf\xc3\xa9", b"jpg")),
    (b"\xff.jpg", (b"\xff", b"jpg")),
]


@pytest.mark.parametrize(("name", "names"), NAME_TABLE, ids=[repr(name) for name, _ in NAME_TABLE])
@pytest.mark.usefixtures("backend")
def test_names_are_split_into_key_and_field(name: bytes, names: tuple[bytes, bytes] | None) -> None:
    _, _, found, samples = walk(member(name, b"1"))
    assert samples == ([] if names is None else [(names[0], 0)])
    assert found == ([] if names is None else [(0, names[1], 512, 1, False)])
    assert fuzz.differential(member(name, b"1"))[2] == found


@pytest.mark.usefixtures("backend")
def test_a_sample_begins_when_the_key_changes() -> None:
    names = [b"a.x", b"A.x", b"A.y", b"d/", b"A.z", b"a.x", b"a.x"]
    _, n_members, found, samples = walk(b"".join(member(name) for name in names) + END)
    assert n_members == len(names)
    assert samples == [(b"a", 0), (b"A", 512), (b"a", 2560)]
    assert [(row[0], row[1]) for row in found] == [(0, b"x"), (1, b"x"), (1, b"y"), (1, b"z"), (2, b"x"), (2, b"x")]


@pytest.mark.usefixtures("backend")
def test_offsets_include_member_headers_but_not_global_headers() -> None:
    long_name = b"n" * 200
    data = (
        records([(b"comment", b"x")], b"g")
        + records([(b"path", b"p.a")])
        + member(b"short", b"12")
        + records([(b"comment", b"y")], b"g")
        + member(b"././@LongLink", long_name + b".b\0", b"L")
        + member(b"short", b"345")
    )
    position, _, found, samples = walk(data)
    assert samples == [(b"p", 1024), (long_name, 4096)]
    assert found == [(0, b"a", 2560, 2, False), (1, b"b", 5632, 3, False)]
    assert position == len(data)


@pytest.mark.usefixtures("backend")
def test_a_tar_may_end_with_global_headers() -> None:
    data = member(b"a.b") + records([(b"comment", b"x")], b"g")
    assert walk(data)[:2] == walk(data + END)[:2] == (len(data), 1)


SPARSE = {
    "old": (SEEDS[9], (b"bin", 512, 4096)),
    "0.1": (SEEDS[10], (b"bin", 1536, 99)),
    "1.0": (SEEDS[11], (b"bin", 2048, 77)),
}


@pytest.mark.parametrize("kind", sorted(SPARSE))
@pytest.mark.usefixtures("backend")
def test_sparse_files_have_their_real_size_and_a_flag(kind: str) -> None:
    data, (field, offset, size) = SPARSE[kind]
    assert rows(data) == [(0, field, offset, size, True)]


FAULTS = {
    "header cut": (member(b"a.b") + header(b"c.d")[:300], Fault.SHORT_HEADER, 512, "300 bytes"),
    "data cut": (member(b"a.b", b"x" * 600)[:1024], Fault.DATA_END, 512, "512 bytes"),
    "padding cut": (member(b"a.b", b"x" * 600)[:-1], Fault.DATA_END, 512, "1023 bytes"),
    "bit flipped": (member(b"a.b") + b"d" + header(b"c.d")[1:], Fault.CHECKSUM, 512, "a block with the sum"),
    "no tar": (b"PNG" * 400, Fault.NUMBER, 148, "'NGPNGPNG'"),
    "mode": (header(b"a.b", mode=b"0000899\0"), Fault.NUMBER, 100, "'0000899"),
    "negative size": (header(b"a.b", b"\xff" * 12), Fault.SIZE, 124, "as a size"),
    "64 bits": (header(b"a.b", b"\x80" + (2**63).to_bytes(11, "big")), Fault.SIZE, 124, "as a size"),
    "huge size": (header(b"a.b", b"\x80" + (2**63 - 1).to_bytes(11, "big")), Fault.DATA_END, 512, "0 bytes"),
    "long name": (header(b"n", MAX_NAME_BYTES + 1, b"L"), Fault.LONG_NAME, 124, "65537"),
    "PAX bomb": (header(b"n", MAX_RECORDS_BYTES + 1, b"x"), Fault.LONG_RECORDS, 124, "1048577"),
    "global bomb": (header(b"n", MAX_RECORDS_BYTES + 1, b"g"), Fault.LONG_RECORDS, 124, "1048577"),
    "PAX name": (records([(b"path", b"n" * 65537)]) + member(b"a"), Fault.LONG_NAME, 523, "65537"),
    "name runs on": (header(b"n", 2, b"L") + b"abc" + bytes(509), Fault.PADDING, 514, "'c'"),
    "record cut": (member(b"n", b"99 size=1\n", b"x") + member(b"a.b"), Fault.RECORD, 512, "'99 size=1"),
    "record without =": (member(b"n", b"7 size\n", b"x") + member(b"a.b"), Fault.RECORD, 512, "'7 size"),
    "size of words": (records([(b"size", b"-5")]) + member(b"a.b"), Fault.RECORD_NUMBER, 520, "'-5'"),
    "size for all": (records([(b"size", b"5")], b"g") + member(b"a.b"), Fault.GLOBAL_RECORD, 512, "'size'"),
    "sparse size": (records([(b"size", b"1")]) + SEEDS[9], Fault.SPARSE_SIZE, 1024, "PAX record 'size'"),
    "no map": (records([(b"GNU.sparse.realsize", b"1")]) + member(b"a.b"), Fault.REAL_SIZE, 1024, "real size"),
    "map": (SEEDS[11].replace(b"1\n0\n2\n", b"1\n0\n-\n"), Fault.SPARSE_MAP, 1540, "'-'"),
    "endless map": (SEEDS[11].replace(b"1\n0\n2\n", b"9\n0\n2\n"), Fault.SPARSE_MAP, 1542, "'\\x00'"),
    "orphan": (records([(b"path", b"a.b")]) + END, Fault.ORPHAN, 1024, "end of the archive"),
    "twice": (2 * records([(b"path", b"a.b")]) + member(b"a"), Fault.TWICE, 1180, "'x'"),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
@pytest.mark.usefixtures("backend")
def test_faults_are_reported_with_their_position(name: str) -> None:
    data, kind, offset, found = FAULTS[name]
    assert fault(data)[:2] == (kind, offset)
    assert found in fault(data)[2]
    fuzz.differential(data)


@pytest.mark.usefixtures("backend")
def test_the_headers_of_one_member_are_limited() -> None:
    more = header(b"a", 0, b"S", tail=bytes(41 + 96) + b"\1" + b"%011o\0" % 1)
    data = more + (bytes(504) + b"\1" + bytes(7)) * (MAX_GROUP_BYTES // 512)
    assert fault(data)[:2] == (Fault.LONG_GROUP, 0)


@pytest.mark.usefixtures("backend")
def test_too_many_members_are_rejected() -> None:
    store = fuzz.Store()
    store.state[State.MAX_MEMBERS] = 2
    result = fuzz.outcome(kernels.walk_tar, member(b"a.b") * 3, None, store)
    assert result[:3] == ("refused", Fault.MEMBERS, 1024)


@pytest.mark.parametrize("n_fields", [1, 3])
@pytest.mark.usefixtures("backend")
def test_full_buffers_are_emptied_and_filled_again(n_fields: int) -> None:
    names = [b"%d.%s" % (i, field) for i in range(7) for field in (b"jpg", b"txt", b"json", b"jpg")]
    data = b"".join(member(name) for name in names)
    few = fuzz.outcome(kernels.walk_tar, data, 512, fuzz.Store(n_rows=3, n_fields=n_fields))
    assert few == walk(data)
    assert [row[1] for row in few[2]] == [name.partition(b".")[2] for name in names]


@pytest.mark.usefixtures("backend")
def test_a_signed_checksum_is_accepted() -> None:
    block = header(b"caf\xe9.jpg")
    signed = block[:148] + b"%06o\0 " % (int(block[148:154], 8) - 256) + block[156:]
    assert rows(signed) == [(0, b"jpg", 512, 0, False)]


def test_every_fault_has_a_message_and_can_be_pickled() -> None:
    assert set(TEXTS) == set(Fault)
    error = TarSyntaxError(Fault.CHECKSUM, 5, "this", "that")
    rebuild, arguments = error.__reduce__()
    assert str(rebuild(*arguments)) == str(error) == "at byte 5: found this, expected that"


def test_cython_checks_its_arguments() -> None:
    window = np.frombuffer(member(b"a.b"), np.uint8)
    for change, message in {
        State.N_ROWS: "does not fit the arrays",
        State.KEY_START: "does not fit the arrays",
        State.LAST_PART: "does not fit the arrays",
        State.POSITION: "does not fit the file",
    }.items():
        store = fuzz.Store()
        store.state[change] = -1
        with pytest.raises(ValueError, match=message):
            tar_cy.walk_tar(window, 0, len(window), store.state, *store.filled)
    store = fuzz.Store()
    with pytest.raises(ValueError, match="does not fit the file"):
        tar_cy.walk_tar(window, 0, len(window) - 1, store.state, *store.filled)
    with pytest.raises(ValueError, match="rows must have 5 columns"):
        tar_cy.walk_tar(window, 0, len(window), store.state, store.filled[1], *store.filled[1:])
    with pytest.raises(ValueError, match="no capacity"):
        tar_cy.walk_tar(window, 0, len(window), store.state, store.filled[0][:0], *store.filled[1:])
