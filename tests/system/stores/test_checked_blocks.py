"""Objects with checksum files: data from the store is checked before use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forks import check_in_a_fork
from stores import SMALL_BLOCK as BLOCK

import fastpack
from fastpack.errors import FormatError
from fastpack.io import map_bytes, open_bytes, open_reader, peek
from fastpack.io.checksums import read_checksums, write_checksums
from fastpack.io.remote_files import fetch

pytest.importorskip("xxhash", reason="needs the extra checksum")
pytestmark = pytest.mark.usefixtures("small_blocks")


def put_with_sums(store: Any, tmp_path: Path, content: bytes, block_bytes: int) -> str:
    path = tmp_path / "object.bin"
    path.write_bytes(content)
    write_checksums(path, block_bytes=block_bytes)
    store.put("object.bin.fpsum", (tmp_path / "object.bin.fpsum").read_bytes())
    return store.put("object.bin", content)  # type: ignore[no-any-return]


def flip_bits(times: int) -> Callable[[int, str, str], Any]:
    """Flip a bit in the first `times` responses of the object."""
    faults: Iterator[str] = iter(["flip"] * times)
    return lambda _, method, path: next(faults, None) if method == "GET" and path.endswith("object.bin") else None


def read_out_of_order(url: str) -> bytes:
    reader, out = open_reader(url), np.empty(300_007, np.uint8)
    for start in (200_000, 0, 100_000):  # out of order
        end = min(start + 100_000, len(out)) if start < 200_000 else len(out)
        reader.read_into(out[start:end], start)
    return out.tobytes()


def read_in_order(url: str) -> bytes:
    reader, out = open_reader(url), np.empty(300_007, np.uint8)
    for start in range(0, len(out), 10_000):
        reader.read_into(out[start : start + 10_000], start)
    return out.tobytes()


def read_slices(url: str) -> bytes:
    data = open_bytes(url)
    return b"".join([peek(data, 0, 1000).tobytes(), data[1000:2000].tobytes(), data[2000:300_007].tobytes()])


READERS: dict[str, Callable[[str], bytes]] = {
    "by position": read_out_of_order,
    "in order": read_in_order,
    "by slices": read_slices,
    "fetched": lambda url: fetch(url).read_bytes(),
    "mapped": lambda url: map_bytes(url).tobytes(),
}
# below the block size of the cache; equal to it; not a multiple; larger than a request; larger than the object
SUMMED = [BLOCK >> 3, BLOCK, 50_000, 3 * BLOCK, 64 << 20]


@pytest.mark.parametrize("reader_name", READERS)
@pytest.mark.parametrize("block_bytes", SUMMED)
@pytest.mark.parametrize("limit", [1 << 30, 500_000])
def test_flipped_bit_is_read_again(
    reader_name: str,
    block_bytes: int,
    limit: int,
    store: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
) -> None:
    monkeypatch.setenv("FASTPACK_CACHE_BYTES", str(limit))
    content = np.random.default_rng(0).bytes(300_007)
    url = put_with_sums(store, tmp_path, content, block_bytes)
    store.proxy.choose = flip_bits(2 if reader_name == "by slices" else 1)  # the first response there is an unused head
    with caplog.at_level(logging.WARNING, "fastpack"):
        assert READERS[reader_name](url) == content
    assert [record.name for record in caplog.records if "differs from its checksum" in record.getMessage()]
    assert READERS[reader_name](url) == content


@pytest.mark.parametrize("reader_name", READERS)
@pytest.mark.parametrize("block_bytes", SUMMED)
def test_damaged_object_is_never_returned(reader_name: str, block_bytes: int, store: Any, tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(300_007)
    url = put_with_sums(store, tmp_path, content, block_bytes)
    damaged = bytearray(content)
    damaged[123_456] ^= 1
    store.put("object.bin", bytes(damaged))
    message = (
        rf"object\.bin: at byte {123_456 // block_bytes * block_bytes}: found a block with different content in 3 reads"
    )
    for _ in range(2):  # nothing is cached
        with pytest.raises(FormatError, match=message):
            READERS[reader_name](url)


def test_cached_blocks_are_not_checked_again(store: Any, tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(300_007)
    url = put_with_sums(store, tmp_path, content, 3 * BLOCK)
    assert read_out_of_order(url) == content
    store.proxy.requests.clear()
    assert read_out_of_order(url) == content
    assert store.proxy.count("GET") == 0


def test_shards_and_their_headers_are_checked(store: Any, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(3):
        np.save(folder / f"{number}.npy", np.arange(number * 100, number * 100 + 100, dtype=np.uint16))
    write_checksums(folder / "1.npy")
    url = store.put_folder(folder, "shards")
    assert [int(sample["input_ids"][0]) for sample in fastpack.MemoryMappedDataset(url, 100)] == [0, 100, 200]
    damaged = (folder / "1.npy").read_bytes().replace(b"<u2", b">u2")  # no other check detects this
    store.put("shards/1.npy", damaged)
    with pytest.raises(FormatError, match=r"1\.npy: at byte 0: found a block with different content"):
        fastpack.MemoryMappedDataset(url, 100)


def test_checksums_of_another_object_version(store: Any, tmp_path: Path) -> None:
    url = put_with_sums(store, tmp_path, bytes(100), 32)
    store.put("object.bin", bytes(101))
    with pytest.raises(FormatError, match=r"an object of 101 bytes, expected 100, as recorded in .*\.fpsum: remove"):
        read_slices(url)
    write_checksums(url)  # the remedy
    assert open_reader(url).read_into(np.empty(101, np.uint8), 0) == 101
    assert read_checksums(url).size == 101


def test_unreadable_checksums_are_ignored(store: Any) -> None:
    url = store.put("a", b"content")
    store.proxy.choose = lambda _, __, path: "403" if path.endswith(".fpsum") else None
    assert open_reader(url).read_into(np.empty(7, np.uint8), 0) == 7


def test_missing_package_is_reported(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = put_with_sums(store, tmp_path, bytes(100), 32)
    monkeypatch.setitem(__import__("sys").modules, "xxhash", None)
    assert open_reader(url).read_into(np.empty(100, np.uint8), 0) == 100
    assert f"{url} is not compared with its checksums" in caplog.text


def test_forked_process_checks_blocks(store: Any, tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(300_007)
    url = put_with_sums(store, tmp_path, content, 3 * BLOCK)
    reader = open_reader(url)
    reader._wide_lock.acquire()  # type: ignore[attr-defined]  # as if another thread were fetching while this one forks
    store.proxy.choose = flip_bits(1)

    def check() -> None:
        out = np.empty(len(content), np.uint8)
        reader.read_into(out, 0)
        assert out.tobytes() == content

    check_in_a_fork(check)
