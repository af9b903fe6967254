"""Stores that stall, lose responses or flip bits: retries, recovery and error messages."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fastpack import MemoryMappedDataset
from fastpack.errors import DataWarning, FormatError
from fastpack.io import AtomicFile, TargetExists, open_reader
from fastpack.io import stores as remote
from fastpack.io.remote_files import fetch


@pytest.fixture
def short_stall_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPACK_STALL_SECONDS", "0.5")


@pytest.mark.usefixtures("short_stall_timeout")
def test_truncated_responses_are_retried(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    content = os.urandom(17_000)
    url = store.put("a", content)
    numbers: Iterator[int] = iter(range(100))
    store.proxy.choose = lambda _, method, *__: "stall" if method == "GET" and next(numbers) % 17 % 4 == 3 else None
    with caplog.at_level(logging.WARNING, "fastpack"):
        chunks = [remote.read_range(url, k * 1000, (k + 1) * 1000) for k in range(17)]
    assert b"".join(chunks) == content
    messages = [record.getMessage() for record in caplog.records if record.name == "fastpack"]
    assert len(messages) >= 4
    assert all(f"{url}: the store sent nothing for 0.5 s" in message for message in messages)
    assert "retrying (attempt 2 of 6)" in messages[0]


@pytest.mark.usefixtures("short_stall_timeout")
def test_store_that_stalls_in_every_response_is_an_error(store: Any) -> None:
    url = store.put("a", bytes(1000))
    store.proxy.choose = lambda _, method, *__: "stall" if method == "GET" else None
    for read in (lambda: remote.read_range(url, 0, 1000), lambda: open_reader(url).read_into(np.empty(9, np.uint8), 0)):
        with pytest.raises(OSError, match=r"sent nothing for 0\.5 s.*after 6 attempts.*'s3://bucket/"):
            read()


@pytest.mark.usefixtures("short_stall_timeout")
def test_store_that_never_responds_is_an_error(store: Any) -> None:
    url = store.put("a", bytes(1000))
    store.proxy.delay = 2.0
    with pytest.raises(OSError, match=r"sent nothing for 0\.5 s.*after 6 attempts"):
        remote.status(url)


@pytest.mark.usefixtures("short_stall_timeout")
def test_uploads_may_take_longer_than_the_stall_timeout(store: Any) -> None:
    store.proxy.choose = lambda _, method, *__: setattr(store.proxy, "delay", 1.0 if method == "PUT" else 0.0)
    with AtomicFile(f"{store.url}/a") as file:
        file.write(b"content")
    assert store.get("a") == b"content"


@pytest.mark.parametrize("text", ["soon", "", "0", "-1", "nan", "inf"])
def test_invalid_stall_seconds(text: str, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPACK_STALL_SECONDS", text)
    with pytest.raises(ValueError, match=f"FASTPACK_STALL_SECONDS is '{text}': give a number of seconds"):
        remote.status(f"{store.url}/a")


def lose_one_response(store: Any, method: str, path_text: str = "") -> None:
    """Execute the first matching request, and lose its response."""
    faults = iter(["lost"])
    store.proxy.choose = lambda _, found, path: next(faults, None) if found == method and path_text in path else None


@pytest.mark.parametrize("n_bytes", [0, 1000, 11_000_000])
def test_upload_with_a_lost_response_is_recognised(n_bytes: int, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PART_BYTES", 5 << 20)  # the minimum of the store
    content = os.urandom(n_bytes)
    lose_one_response(store, *(("POST", "uploadId") if n_bytes > remote.PART_BYTES else ("PUT",)))
    with AtomicFile(f"{store.url}/new", policy="error") as file:
        file.write(content)
    assert [fault for *_, fault in store.proxy.requests].count("lost") == 1
    assert store.get("new") == content


@pytest.mark.parametrize("theirs", [b"theirs", b"mine2"])
def test_object_of_another_process_is_not_mistaken_for_ours(theirs: bytes, store: Any) -> None:
    def fail_while_another_writes(_: int, method: str, __: str) -> Any:
        if method == "PUT" and not [found for found, *_ in store.proxy.requests if found == "PUT"]:
            store.put("new", theirs)
            return "503"
        return None

    store.proxy.choose = fail_while_another_writes
    with pytest.raises(TargetExists, match="by another process"), AtomicFile(f"{store.url}/new", policy="error") as new:
        new.write(b"mine1")
    assert store.get("new") == theirs


def test_delete_with_a_lost_response(store: Any) -> None:
    url = store.put("a", b"1")
    lose_one_response(store, "DELETE")
    remote.delete(url)
    with pytest.raises(FileNotFoundError):
        fetch(url)


def shard_with(damage: tuple[bytes, bytes], n_tokens: int = 1000) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.arange(n_tokens, dtype=np.uint16))
    assert stream.getvalue().count(damage[0]) == 1
    return stream.getvalue().replace(*damage)


HEADERS = {  # one bit of a header changed -> what the error names
    "byte order": ((b"'<u2'", b"'=u2'"), r"at byte 21: found b\"=u2', 'fortran_o\", expected b\"<u2', 'fortran_o\""),
    "shape": ((b"(1000,)", b"(100 ,)"), r"at byte 64: found .*it is damaged, or another program's"),
    "header length": ((b"v\0{", b"t\0{"), r"at byte 125: found b' ', expected the newline that ends a header of 116"),
    "newline": ((b" \n", b" \x0b"), r"at byte 127: found b'\\x0b', expected the newline"),
    "name": ((b"'shape'", b"'shapd'"), r"Header does not contain the correct keys"),
    "magic": ((b"NUMPY", b"NUMPX"), r"the magic string is not correct"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_damaged_header_of_a_remote_shard_is_named(name: str, store: Any) -> None:
    damage, message = HEADERS[name]
    store.put("a.npy", shard_with(damage))
    with pytest.raises(FormatError, match=rf"a\.npy: {message}" if message.startswith("at") else message):
        MemoryMappedDataset(store.url, 10)


def test_header_with_fewer_tokens_than_the_file_warns(store: Any) -> None:
    store.put("a.npy", shard_with((b"(500,)", b"(400,)"), 500))
    with pytest.warns(DataWarning, match=r"a\.npy: 928 of its 1128 bytes are used.*header damaged"):
        MemoryMappedDataset(store.url, 10)
