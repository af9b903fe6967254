"""Damaged packed files: every fault raises FormatError with its position."""

from __future__ import annotations

import pickle
import struct
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import kept_kernels
from packed_files import packed_bytes

from fastpack import kernels
from fastpack.errors import FormatError
from fastpack.tokens.pbin.packed_file import PackedFile

DOCUMENTS = [[5, 6, 7, 0], [0], [200, 1, 0], [9, 0]]


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "x.pbin"
    path.write_bytes(content)
    return path


def refuse(path: Path, offset: int, match: str, use: Callable[[PackedFile], object] = len, **options: Any) -> None:
    with pytest.raises(FormatError, match=match) as caught:
        use(PackedFile(path, **options))
    assert caught.value.offset == offset
    assert caught.value.path == str(path)


# Faults


@pytest.mark.parametrize("behind", [b"", b"\x05\0\0\0\x07\0\0\0", b"\x80\x04]\x94", b"\x80\x04]\x94.more", bytes(5000)])
@pytest.mark.parametrize("header", ["<QI", ">QI"])
def test_unfinished_pack(backend: str, tmp_path: Path, behind: bytes, header: str) -> None:
    refuse(write(tmp_path, struct.pack(header, 0, 4) + behind), 0, "unfinished pack", use=repr)


def test_truncated_anywhere(backend: str, tmp_path: Path) -> None:
    content = packed_bytes(DOCUMENTS)
    for n_bytes in range(len(content)):
        with pytest.raises(FormatError):
            len(PackedFile(write(tmp_path, content[:n_bytes])))


def test_header_faults(tmp_path: Path) -> None:
    good = packed_bytes(DOCUMENTS)
    length = int.from_bytes(good[:8], "little")
    refuse(write(tmp_path, b""), 0, "header of 12 bytes", use=repr)
    refuse(write(tmp_path, good[:11]), 11, "header of 12 bytes", use=repr)
    for wrong in (length + 10_000, 2**31, 2**63, 2**64 - 1):
        refuse(write(tmp_path, struct.pack("<Q", wrong) + good[8:]), 0, f"data length {wrong} in a file of", use=repr)
    for wrong in (length - 1, length + 1, length - 2):
        refuse(write(tmp_path, struct.pack("<Q", wrong) + good[8:]), 0, "multiple of the token size 4", use=repr)
    for wrong in (0, 3, 8, 2**31):
        content = good[:8] + struct.pack("<I", wrong) + good[12:]
        refuse(write(tmp_path, content), 8, f"token size {wrong}", use=repr)
    refuse(write(tmp_path, good[: 12 + length]), 12 + length, "pickled index", use=repr)
    for wrong in (length - 4, length + 4):  # the index is then looked for in the wrong place
        with pytest.raises(FormatError) as caught:
            len(PackedFile(write(tmp_path, struct.pack("<Q", wrong) + good[8:])))
        assert caught.value.offset >= 12 + wrong


def packed_with(index: list[tuple[int, int]], token_size: int = 2) -> bytes:
    return struct.pack("<QI", 24, token_size) + bytes(range(24)) + pickle.dumps(index, 4)


@pytest.mark.parametrize("entry", [(20, 6), (26, 0), (0, 26), (1, 2), (0, 3), (2**62, 2**62 - 2), (24, 2)])
@pytest.mark.parametrize("n_before", [0, 1, 70_000])
def test_entries_beyond_the_data_or_between_tokens(tmp_path: Path, entry: tuple[int, int], n_before: int) -> None:
    path = write(tmp_path, packed_with([(0, 4)] * n_before + [entry, (4, 4)]))
    start, length = entry
    refuse(path, 36, rf"index entry {n_before} = \({start}, {length}\), expected offset and length in multiples of 2")
    unchecked = PackedFile(path, check=False)
    assert len(unchecked) == n_before + 2
    assert unchecked[-1].tolist() == [0x0504, 0x0706]
    with pytest.raises(FormatError, match=r"index entry \d+ = "):
        unchecked[n_before]


@pytest.mark.parametrize("entry", [(-2, 4), (2, -2), (2**63 - 1, 1)])
def test_entries_that_are_not_valid(backend: str, tmp_path: Path, entry: tuple[int, int]) -> None:
    path = write(tmp_path, packed_with([(0, 4), entry]))
    refuse(path, 36, "index entry 1", check=True)
    refuse(path, 36, "index entry 1", check=False)


def test_an_invalid_generation_argument(tmp_path: Path) -> None:
    path = write(tmp_path, packed_bytes(DOCUMENTS, 5))
    refuse(path, 12 + 40, "index entry 0", generation=4)
    for generation in (1, 2, 3):
        with pytest.raises(FormatError):
            len(PackedFile(path, generation=generation))


def observe(content: bytes, path: Path) -> tuple[Any, ...]:
    path.write_bytes(content)
    try:
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            packed = PackedFile(path)
            documents = [document.tolist() for document in packed]
    except FormatError as error:
        return error.offset, error.found, error.expected
    size = packed.token_size_in_bytes
    assert packed.data_offset + packed.data_length <= len(content)
    for document, (start, length) in zip(documents, packed.index.tolist(), strict=True):
        at = packed.data_offset + start
        assert content[at : at + length] == np.array(document, packed.data.dtype).tobytes()
        assert start + length <= packed.data_length
        assert length == size * len(document)
    return packed.generation, packed.index.tolist(), documents


def mutants(content: bytes) -> Iterable[bytes]:
    for at in range(len(content)):
        value = content[at]
        for byte in {0, 255, (value + 1) & 255, (value - 1) & 255} - {value}:
            yield content[:at] + bytes([byte]) + content[at + 1 :]
        yield content[:at] + content[at + 1 :]
        yield content[: at + 1] + content[at:]


@pytest.mark.parametrize("generation", [1, 2, 3, 4, 5])
def test_every_byte_damaged(tmp_path: Path, generation: int) -> None:
    """A damaged file raises FormatError or is read as by the Python implementation; the layout is not mistaken."""
    content = packed_bytes([[5, 6, 0], [0], [1, 0]], generation, 2 if generation >= 3 else 4)
    seen = {}
    with kept_kernels():
        for name in ("cython", "numpy"):
            kernels.use(name)
            seen[name] = [observe(mutant, tmp_path / "x.pbin") for mutant in mutants(content)]
    assert seen["cython"] == seen["numpy"]
    generations = {result[0] for result in seen["cython"] if isinstance(result[1], list)}
    assert generations <= ({4, 5} if generation >= 4 else {generation})
    assert generations, "some damage, as in a token, cannot be noticed"
    assert sum(not isinstance(result[1], list) for result in seen["cython"]) > len(content)


def test_a_damaged_length_of_gigabytes_allocates_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.pbin"
    with open(path, "wb") as file:
        file.write(struct.pack("<QI", 4, 4) + bytes(4))
        file.truncate(1 << 40)
    refuse(path, 16, "byte 00")
