"""Decoding of stored fields by name: values, rejected kinds and errors."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from typing import Any

import cbor2
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastpack import FormatError, MissingExtra, UntrustedCode, WebDataset
from fastpack.webdataset.decoding import Decoder, _json
from fastpack.webdataset.tenbin import decode_tenbin
from fastpack.webdataset.unpacking import TooLarge

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def same_json(found: Any, wanted: Any) -> bool:
    return json.dumps(found) == json.dumps(wanted) and type(found) is type(wanted)


@given(json_values, st.sampled_from([None, 1]), st.booleans(), st.sampled_from(["", " ", "\n\t "]))
def test_json_matches_the_standard_library(value: Any, indent: Any, ascii_only: bool, blank: str) -> None:
    text = f"{blank}{json.dumps(value, indent=indent, ensure_ascii=ascii_only)}{blank}"
    data = text.encode("utf-8", "surrogatepass")
    assert same_json(_json(data), json.loads(data))


@pytest.mark.parametrize(
    "data",
    [
        b"-0",
        b"-0.0",
        b"0e5",
        b"1E400",
        b"-1E-400",
        b"123456789012345678",
        b"1234567890123456789",
        b"18446744073709551615",
        b"1.234567890123456789012345",
        b'"\xed\xa0\x80"',
        b'{"a":1,"a":2}',
        b'\xef\xbb\xbf{"a": 1}',
        b"[" * 500 + b"]" * 500,
        b"\xff\xfe1\x00",
        b"NaN",
        b'"\x7f"',
        b'"\\u0000"',
        b"",
        b"{",
        b"[1,]",
        b"nul",
        b'"\x01"',
        b"01",
        b"1 2",
        b"\x00",
    ],
)
def test_json_edge_cases(data: bytes) -> None:
    try:
        wanted = json.loads(data)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            _json(data)
        return
    assert same_json(_json(data), wanted)


def test_kinds_that_need_packages() -> None:
    decode = Decoder()
    value = {"a": [1, b"x", 2.5], "b": None}
    assert decode("mp", msgpack.packb(value)) == decode("x.msg", msgpack.packb(value)) == value
    assert decode("cbor", cbor2.dumps(value)) == value
    assert decode("cbor.gz", gzip.compress(cbor2.dumps(value))) == value


KINDS = (("msgpack", "mp", "msgpack"), ("cbor2", "cbor", "cbor"), ("PIL", "png", "media"), ("av", "mp4", "av"))


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, field, extra in KINDS:
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(MissingExtra, match=rf"fastpack-llm\[{extra}\]"):
            Decoder()(field, b"")


@pytest.mark.parametrize("field", ["pkl", "a.pickle", "pyd", "pth", "pkl.gz"])
def test_kinds_that_run_code_are_rejected(field: str) -> None:
    data = pickle.dumps([1])
    data = gzip.compress(data) if field.endswith("gz") else data
    with pytest.raises(UntrustedCode, match="trust_code=True"):
        Decoder()(field, data)
    if field != "pth":
        assert Decoder(trust_code=True)(field, data) == [1]


def test_arrays_of_objects_are_rejected() -> None:
    out = io.BytesIO()
    np.save(out, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="Object arrays"):
        Decoder(trust_code=True)("npy", out.getvalue())


def test_an_unknown_image_mode_is_rejected() -> None:
    with pytest.raises(ValueError, match="choose one of"):
        Decoder("rgb16")


def chunk(data: bytes) -> bytes:
    return b"~TenBin~" + struct.pack("<q", len(data)) + data + bytes(-len(data) % 64)


def header(kind: bytes, *shape: int) -> bytes:
    return kind.ljust(8, b"\0") + bytes(8) + struct.pack(f"<{len(shape) + 1}q", len(shape), *shape)


def test_tenbin_arrays() -> None:
    first, second = np.arange(6, dtype="<i8").reshape(2, 3), np.zeros((0, 4), "<f2")
    data = chunk(header(b"i8", 2, 3)) + chunk(first.tobytes()) + chunk(header(b"f2", 0, 4)) + chunk(b"")
    found = decode_tenbin(data)
    assert [array.dtype for array in found] == [first.dtype, second.dtype]
    assert np.array_equal(found[0], first)
    assert found[1].shape == (0, 4)
    assert found[0].flags.writeable


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"~TenBin~",
        b"~TenBin~" + struct.pack("<q", -1),
        b"~TenBin~" + struct.pack("<q", 99),
        chunk(header(b"i8", 1)),
        chunk(b"short") + chunk(b""),
        chunk(header(b"i8", 2)) + chunk(bytes(8)),
        chunk(header(b"i8", -1)) + chunk(b""),
        chunk(header(b"i3", 1)) + chunk(bytes(8)),
        chunk(header(b"i8")[:16] + struct.pack("<q", 5)) + chunk(bytes(8)),
    ],
)
def test_damaged_tenbin_is_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_tenbin(data)


@given(st.binary(max_size=200))
def test_any_bytes_as_tenbin_are_arrays_or_an_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert all(isinstance(array, np.ndarray) for array in decode_tenbin(data))


@pytest.mark.parametrize(
    ("field", "data"),
    [("json", b"{"), ("cls", b"x"), ("txt", b"\xff"), ("png", b"no"), ("json.gz", b"no"), ("npy", b""), ("ten", b"no")],
)
def test_undecodable_fields_are_named_in_the_error(tmp_path: Any, prepare: Any, field: str, data: bytes) -> None:
    folder = prepare(tmp_path, {"a.tar": [("k.id", b"1"), (f"k.{field}", data)]})
    with pytest.raises(FormatError, match=rf"field '{field}' of sample 'k' that cannot be decoded") as raised:
        WebDataset(folder)[0]
    assert (raised.value.path, raised.value.offset) == (str(folder / "a.tar"), 1536)
    assert raised.value.__cause__ is not None


def test_a_custom_decoder(tmp_path: Any, prepare: Any) -> None:
    folder = prepare(tmp_path, {"a.tar": [("k.a.json", b"{}")]})
    dataset = WebDataset(folder, decoder=lambda field, data: (field, data))
    assert dataset[0]["a.json"] == ("a.json", b"{}")
    assert dataset.get_file("k.a.json") == ("a.json", b"{}")
    with pytest.raises(ValueError, match="either options or a decoder"):
        WebDataset(folder, decoder=Decoder(), image_decode="pil")


@pytest.mark.parametrize("field", ["txt.gz", "json.gz", "bin.gz", "gz", "npy.gz", "png.gz"])
def test_gzip_members_are_unpacked_up_to_the_limit(field: str) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    lying = bomb[:-4] + bytes(4)  # claims an unpacked size of 0
    tracemalloc.start()
    try:
        for data in (bomb, lying):
            with pytest.raises(TooLarge, match=r"larger when unpacked: at most 1,000,000 bytes are decoded \(raise"):
                Decoder(max_decoded_bytes=1_000_000)(field, data)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert Decoder(max_decoded_bytes=50_000_000)("bin.gz", bomb) == bytes(50_000_000)


def npy_header(shape: tuple[int, ...], dtype: str = "<f8", version: int = 1) -> bytes:
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode() + b"\n"
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 20, 1 << 20, 1 << 20), (3, 1 << 62)])
@pytest.mark.parametrize("version", [1, 2])
def test_arrays_with_a_larger_claimed_size_are_rejected(shape: tuple[int, ...], version: int) -> None:
    data = npy_header(shape, version=version) + bytes(100)
    with pytest.raises(ValueError, match="of which 100 exist"):
        Decoder()("npy", data)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.npy", data)
    with pytest.raises(ValueError, match="of which 100 exist"):
        Decoder()("npz", archive.getvalue())


def test_archives_of_arrays_up_to_the_limit() -> None:
    archive = io.BytesIO()
    np.savez_compressed(archive, a=np.zeros((1000, 1000)), b=np.arange(3))
    with pytest.raises(TooLarge, match=r"arrays of 8,000,\d+ bytes: at most 1,000,000"):
        Decoder(max_decoded_bytes=1_000_000)("npz", archive.getvalue())
    found = Decoder()("npz", archive.getvalue())
    assert (found["a"].shape, found["b"].tolist()) == ((1000, 1000), [0, 1, 2])
    for broken in (b"", archive.getvalue()[:-40], b"PK\x03\x04" + bytes(50)):
        with pytest.raises(ValueError, match="not an archive of arrays"):
            Decoder()("npz", broken)


@pytest.mark.parametrize(("mode", "n_bytes"), [("torchrgb", 12), ("rgb8", 3), ("l", 4), ("l8", 1), ("pilrgba", 4)])
def test_images_up_to_the_limit(mode: str, n_bytes: int) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (3000, 2000)).save(picture, "PNG")
    data = picture.getvalue()
    size = 3000 * 2000 * n_bytes
    Decoder(mode, max_decoded_bytes=size)("png", data)
    with pytest.raises(TooLarge, match=rf"an image of 3000 x 2000 pixels, {size:,} bytes: at most {size - 1:,}"):
        Decoder(mode, max_decoded_bytes=size - 1)("png", data)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("cbor", "9b00000fffffffffff01"),  # a list of 2 ** 44 items
        ("cbor", "5b00000fffffffffff01"),  # 2 ** 44 bytes
        ("cbor", "bb00000fffffffffff01"),
        ("cbor", "c5821b00000000ffffffff01"),  # 2 ** (2 ** 32)
        ("cbor", "81" * 100_000),
        ("mp", "ddffffffff01"),
        ("mp", "dfffffffff01"),
        ("mp", "c6ffffffff01"),
        ("mp", "91" * 100_000),
        ("ten", b"~TenBin~".hex() + "ff" * 8),
        ("ten", b"~TenBin~".hex() + "0000000001000000"),
        ("json", b"[".hex() * 1_000_000),
        ("cls", b"9".hex() * 1_000_000),
    ],
)
def test_values_with_a_larger_claimed_size_are_rejected(field: str, text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((ValueError, RecursionError, cbor2.CBORDecodeError)):
            Decoder()(field, bytes.fromhex(text))
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()
