"""Objects in a store: whole reads, ranges, listings, replacement, and faults of the store."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from forks import check_in_a_fork
from hypothesis import given
from hypothesis import strategies as st

from fastpack.errors import JobError
from fastpack.io import (
    AtomicFile,
    RemotePath,
    TargetExists,
    as_path,
    is_remote,
    map_bytes,
    may_write,
    open_reader,
    plain_path,
)
from fastpack.io import store_clients as clients
from fastpack.io import stores as remote
from fastpack.io.block_cache import BLOCK, PAGE, cache
from fastpack.io.remote_files import fetch

NAMES = st.text("abc.-_", min_size=1, max_size=8).filter(lambda name: set(name) != {"."})


@given(st.lists(NAMES, min_size=1, max_size=4), NAMES)
def test_paths_behave_like_file_paths(components: list[str], name: str) -> None:
    ours, theirs = as_path(f"s3://bucket/{'/'.join(components)}"), PurePosixPath("/bucket", *components)
    assert isinstance(ours, RemotePath)
    assert (ours.name, ours.stem, ours.suffix) == (theirs.name, theirs.stem, theirs.suffix)
    assert str(ours.parent) == f"s3:/{theirs.parent}"
    assert str(ours / name) == f"s3:/{theirs / name}"
    assert str(ours.with_name(name)) == f"s3:/{theirs.with_name(name)}"
    if theirs.stem:
        assert str(ours.with_suffix(".x")) == f"s3:/{theirs.with_suffix('.x')}"
    assert pickle.loads(pickle.dumps(ours)) == ours


def test_url_detection() -> None:
    assert as_path("file:///a/b") == as_path("local:///a/b") == as_path("file://localhost/a/b") == Path("/a/b")
    assert as_path("a/b.jsonl") == Path("a/b.jsonl")
    assert str(as_path("S3://Bucket/a//b/")) == "s3://Bucket/a/b"
    with pytest.raises(ValueError, match="leads out of its store"):
        as_path("s3://bucket/../x")


SPELLINGS = {  # spellings of fsspec and Hadoop -> canonical URL
    "s3": ("s3://b", "k/x"),
    "s3a": ("s3://b", "k/x"),
    "s3n": ("s3://b", "k/x"),
    "gs": ("gs://b", "k/x"),
    "gcs": ("gs://b", "k/x"),
    "az": ("az://b", "k/x"),
    "azure": ("az://b", "k/x"),
    "abfs": ("abfs://b", "k/x"),
    "abfss": ("abfss://b", "k/x"),
    "adl": ("adl://b", "k/x"),
}


@pytest.mark.parametrize("scheme", SPELLINGS)
def test_scheme_aliases(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stores = pytest.importorskip("obstore.store", reason="needs the extra remote")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert clients.split_url(f"{scheme}://b/k/x") == SPELLINGS[scheme]
    kind = {"s": stores.S3Store, "g": stores.GCSStore, "a": stores.AzureStore}[scheme[0]]
    store, key = clients.open_object(f"{scheme.upper()}://b/k/x")
    assert (type(store), key) == (kind, "k/x")
    assert is_remote(f"{scheme}://b/k/x")


def test_azure_file_system_of_an_account() -> None:
    pytest.importorskip("obstore", reason="needs the extra remote")
    store, key = clients.open_object("abfss://files@account.dfs.core.windows.net/k/x")
    assert (store.config["container_name"], store.config["account_name"], key) == ("files", "account", "k/x")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://x/y", r"ftp://x/y: ftp:// is not supported; fastpack reads and writes s3://, gs://"),
        ("hf://datasets/x", r"expected hf://datasets/ORG/NAME/PATH"),
        ("file://x/y", r"write a local file with an absolute path, as in file:///folder/file"),
        ("simplecache::s3://b/x.jsonl", r"x\.jsonl: write s3://b/x\.jsonl: data from a store is always cached"),
        ("filecache::zip::gs://b/x", r"write gs://b/x: "),
        (
            "zip://a.jsonl::s3://b/x.zip",
            r"s3://b/x\.zip is not opened as zip: unpack it, and give the URL of the files",
        ),
        ("https://account.blob.core.windows.net/c/k", r"no store can be opened: "),
    ],
)
def test_unsupported_urls_give_a_one_line_error(
    url: str, message: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore", reason="needs the extra remote")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(JobError, match=message):
        as_path(url).stat()
    captured = cli("index", url, code=1)
    assert captured.err.count("\n") == 1
    assert re.search(message, captured.err)


@pytest.mark.parametrize("name", ["a::b.jsonl", "::x", "c:/a::b", "x::y/z"])
def test_file_names_that_resemble_urls(name: str) -> None:
    assert not is_remote(name)
    assert plain_path(name) == name


def test_object(store: Any) -> None:
    content = os.urandom(1000)
    path = as_path(store.put("a/b.bin", content))
    assert path.read_bytes() == content
    assert (path.stat().st_size, path.is_file(), path.is_dir(), path.exists()) == (1000, True, False, True)
    assert (path.parent.is_dir(), path.parent.is_file()) == (True, False)
    assert not (path.parent / "c").exists()
    assert remote.read_range(str(path), 10, 20) == content[10:20]
    assert remote.read_head(str(path), 10) == (content[:10], path.stat())
    assert remote.read_head(store.put("empty", b""), 10)[0] == b""
    with pytest.raises(FileNotFoundError, match=r"No such object: 's3://bucket/.*/none'"):
        remote.status(f"{store.url}/none")


def test_folders(store: Any) -> None:
    for name in ("x.tar", "y.tar", "z.txt", "d/x.tar", "d/e/x.tar"):
        store.put(name, b"1")
    folder = as_path(store.url)
    assert [path.name for path in folder.iterdir()] == ["d", "x.tar", "y.tar", "z.txt"]
    patterns = {
        "*.tar": {"x.tar", "y.tar"},
        "**/*.tar": {"x.tar", "y.tar", "d/x.tar", "d/e/x.tar"},
        "*/x.tar": {"d/x.tar"},
        "d/**/x.tar": {"d/x.tar", "d/e/x.tar"},
        "?.t?t": {"z.txt"},
        "[!x]*": {"d", "y.tar", "z.txt"},
    }
    for pattern, expected in patterns.items():
        found = {str(path.relative_to(folder)) for path in folder.glob(pattern)}
        assert found == expected, pattern
    with pytest.raises(FileNotFoundError):
        list(as_path(f"{store.url}/nothing").iterdir())


FAULTS: dict[str, Any] = {
    "503 every third": lambda number, *_: "503" if number % 3 == 0 else None,
    "cut every second": lambda number, method, _: "cut" if method == "GET" and number % 2 == 0 else None,
    "short every second": lambda number, method, _: "short" if method == "GET" and number % 2 == 0 else None,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_responses_are_retried(fault: str, store: Any) -> None:
    content = np.random.default_rng(0).bytes(3 * BLOCK + 77)
    url = store.put("big", content)
    store.proxy.choose = FAULTS[fault]
    reader = open_reader(url)
    rng = np.random.default_rng(1)
    for _ in range(20):
        start = int(rng.integers(len(content)))
        out = np.empty(int(rng.integers(1, 2 * BLOCK)), np.uint8)
        n_bytes = reader.read_into(out, start)
        assert out[:n_bytes].tobytes() == content[start : start + len(out)]
    assert fetch(url).read_bytes() == content
    assert {fault for _, _, fault in store.proxy.requests} - {None}, "nothing went wrong"


def test_slow_response_is_retried(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url = store.put("a", b"0123456789")
    monkeypatch.setattr(clients, "TIMEOUT", "1 second")
    slow = iter(["slow", None])
    store.proxy.choose = lambda _, method, *__: next(slow, None) if method == "GET" else None
    assert remote.read_range(url, 0, 10) == b"0123456789"


def test_store_that_always_fails_is_an_error(store: Any) -> None:
    url = store.put("a", b"0123456789")
    store.proxy.choose = lambda _, method, *__: "503" if method == "GET" else None
    with pytest.raises(OSError, match=r"after 6 attempts.*'s3://bucket/") as caught:
        remote.read_range(url, 0, 10)
    assert caught.value.filename == url
    assert store.proxy.count("GET") == remote.TRIES


def test_object_that_is_removed_or_changed_while_open(store: Any) -> None:
    content = os.urandom(3 * BLOCK)
    reader = open_reader(store.put("a", content))
    out = np.empty(10, np.uint8)
    assert reader.read_into(out, 0) == 10
    store.put("a", os.urandom(3 * BLOCK))
    with pytest.raises(JobError, match="changed while it was read"):
        reader.read_into(out, BLOCK)
    assert reader.read_into(out, 5) == 10  # of the original version, from the cache
    assert out.tobytes() == content[5:15]
    store.proxy.choose = lambda *_: "404"
    with pytest.raises(FileNotFoundError):
        reader.read_into(out, 2 * BLOCK)


def test_cached_blocks_are_not_requested_again(store: Any) -> None:
    content = os.urandom(BLOCK + 5)
    url = store.put("a", content)
    out = np.empty(len(content), np.uint8)
    assert open_reader(url).read_into(out, 0) == len(content)
    assert store.proxy.count("GET") == 1  # two blocks, one request
    assert open_reader(url).read_into(out, 0) == len(content)
    assert store.proxy.count("GET") == 1
    assert out.tobytes() == content


def test_changed_cache_block_is_fetched_again(store: Any, tmp_path: Path) -> None:
    content = os.urandom(3 * PAGE)
    url = store.put("a", content)
    out = np.empty(len(content), np.uint8)
    open_reader(url).read_into(out, 0)
    (block,) = (path for path in (tmp_path / "cache").glob("??/*"))
    for damage in (lambda data: data[:PAGE] + b"?" + data[PAGE + 1 :], lambda data: data[:-1], lambda _: b""):
        block.write_bytes(damage(block.read_bytes()))
        out[:] = 0
        assert open_reader(url).read_into(out, 0) == len(content)
        assert out.tobytes() == content


def test_cache_stays_within_its_limit(store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FASTPACK_CACHE_BYTES", str(3 * BLOCK))
    out = np.empty(10, np.uint8)
    urls = [store.put(f"o{k}", os.urandom(BLOCK)) for k in range(5)]
    for url in urls:
        open_reader(url).read_into(out, 0)
        for path in (tmp_path / "cache").glob("??/*"):  # make the entries older
            os.utime(path, (path.stat().st_mtime - 100, path.stat().st_mtime - 100))
        assert sum(path.stat().st_size for path in (tmp_path / "cache").glob("??/*")) <= 3 * (BLOCK + BLOCK // 64)
    before = store.proxy.count("GET")
    open_reader(urls[-1]).read_into(out, 0)
    assert store.proxy.count("GET") == before  # the last one is cached
    open_reader(urls[0]).read_into(out, 0)
    assert store.proxy.count("GET") == before + 1  # the first one was evicted
    with pytest.raises(JobError, match="increase FASTPACK_CACHE_BYTES"):
        fetch(store.put("large", bytes(3 * BLOCK + 1)))


def test_cache_writable_by_others_is_rejected(store: Any, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(JobError, match="can be written by others"):
        open_reader(store.put("a", b"1"))


def test_forked_process_can_read(store: Any) -> None:
    content = os.urandom(BLOCK + 100)
    url = store.put("a", content)
    assert remote.read_range(url, 0, 10) == content[:10]

    def check() -> None:
        assert remote.read_range(url, 0, len(content)) == content
        out = np.empty(100, np.uint8)
        assert open_reader(url).read_into(out, BLOCK) == 100
        assert out.tobytes() == content[BLOCK:]
        with pytest.raises(FileNotFoundError) as caught:
            remote.status(f"{url}-none")
        assert caught.value.filename == f"{url}-none"
        with AtomicFile(f"{url}-child") as file:
            file.write(b"of the child")

    check_in_a_fork(check)
    assert remote.read_range(url, 5, 20) == content[5:20]
    assert store.get("a-child") == b"of the child"


@pytest.mark.parametrize("n_bytes", [0, 5, remote.PART_BYTES + 3])
def test_written_object_appears_complete(n_bytes: int, store: Any) -> None:
    url, content = f"{store.url}/new.bin", os.urandom(n_bytes)
    with AtomicFile(url) as file:
        file.write(content)
        assert not as_path(url).exists()
    assert store.get("new.bin") == content
    assert map_bytes(url).tobytes() == content
    with AtomicFile(url) as file:
        file.write(b"second")
    assert store.get("new.bin") == b"second"
    assert map_bytes(url).tobytes() == b"second"


def test_failed_write_changes_nothing(store: Any, tmp_path: Path) -> None:
    url = store.put("a", b"old")
    with pytest.raises(RuntimeError, match="stop"), AtomicFile(url) as file:
        file.write(b"new")
        raise RuntimeError("stop")
    store.proxy.choose = lambda _, method, *__: "503" if method == "PUT" else None
    with pytest.raises(OSError, match="after 6 attempts"), AtomicFile(url) as file:
        file.write(b"new")
    store.proxy.choose = lambda *_: None
    assert store.get("a") == b"old"
    assert not list((tmp_path / "cache" / "writing").iterdir())


def test_existence_policies(store: Any) -> None:
    url = store.put("a", b"old")
    with pytest.raises(TargetExists):
        may_write(url, "error")
    assert not may_write(url, "skip")
    assert may_write(url, "override")
    assert may_write(f"{url}-none", "error")
    with (
        pytest.raises(TargetExists, match="by another process in the meantime"),
        AtomicFile(f"{url}2", policy="error") as new,
    ):
        new.write(b"mine")
        store.put("a2", b"theirs")
    assert store.get("a2") == b"theirs"


def test_object_is_fetched_once(store: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    content = os.urandom(1000)
    url = store.put("a", content)
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(fetch, [url] * 8))
    assert {path.read_bytes() for path in paths} == {content}
    assert store.proxy.count("GET") == 1
    assert cache().path(paths[0].name) == paths[0]
