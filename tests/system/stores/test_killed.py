"""Kill processes at random while they fill the cache, evict from it, or upload."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import cache_killing
import numpy as np
import pytest
from cache_killing import BLOCK, content
from command_line import run_process

from fastpack.io import AtomicFile, map_bytes, open_reader
from fastpack.io import stores as remote
from fastpack.io.block_cache import cache

LIMIT = 24 * BLOCK


def run(*words: Any) -> None:
    done = run_process([sys.executable, cache_killing.__file__, *map(str, words)], timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("seconds", [3.0, pytest.param(60.0, marks=pytest.mark.long)])
def test_cache_survives_killed_processes(
    seconds: float, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTPACK_CACHE_BYTES", str(LIMIT))
    monkeypatch.setattr("fastpack.io.remote_files.BLOCK", BLOCK)
    sizes = {seed: (4 + 5 * seed) * BLOCK + 99 * seed for seed in range(4)}  # more than the cache limit in total
    urls = {seed: store.put(str(seed), content(seed, n_bytes)) for seed, n_bytes in sizes.items()}
    run("cache", 1, seconds, *(f"{urls[seed]}={seed}:{n_bytes}" for seed, n_bytes in sizes.items()))
    assert store.proxy.count("GET") > 3
    for seed, n_bytes in sizes.items():
        out = np.empty(n_bytes, np.uint8)
        assert open_reader(urls[seed]).read_into(out, 0) == n_bytes
        assert out.tobytes() == map_bytes(urls[seed]).tobytes() == content(seed, n_bytes)
    cache().sweep()
    left = [path for path in (tmp_path / "cache").glob("??/*") if path.name.startswith(".")]
    assert left == []
    assert sum(path.stat().st_size for path in (tmp_path / "cache").glob("??/*")) <= LIMIT


def test_sweep_removes_only_abandoned_files(store: Any, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "ab"
    folder.mkdir(parents=True, mode=0o700)
    (folder / ".abc.1.1").write_bytes(b"left by a process that was killed")
    (folder / ".abc.partial").write_bytes(b"so was this, in the midst of a fetch")
    writing = AtomicFile(f"{store.url}/x")
    writing.write(b"1")
    old = Path(writing.partial_path)
    os.utime(old, (1, 1))
    forgotten = old.with_name(".forgotten.partial")
    forgotten.write_bytes(b"")
    os.utime(forgotten, (1, 1))
    with cache().fetching("cd"), open(folder / ".abd.2.2", "wb") as file:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
        (tmp_path / "cache" / "cd").mkdir()
        (tmp_path / "cache" / "cd" / ".cde.partial").write_bytes(b"being fetched")
        cache().sweep()
        assert {path.name for path in (tmp_path / "cache").glob("??/.*")} == {".abd.2.2", ".cde.partial"}
    assert old.exists()
    assert not forgotten.exists()
    writing.abort()


@pytest.mark.parametrize("times", [8, pytest.param(100, marks=pytest.mark.long)])
def test_killed_uploads(times: int, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    n_bytes = (11 << 20) + 1  # three upload parts
    url, data = f"{store.url}/large.bin", content(5, n_bytes)
    monkeypatch.setattr("fastpack.io.stores.PART_BYTES", cache_killing.UPLOAD_PART)
    run("upload", 5, times, url, n_bytes)
    if remote.names(store.url):  # an upload finished before its process was killed: it is complete
        assert store.get("large.bin") == data
    cache_killing.upload(url, data)
    assert store.get("large.bin") == data
    assert not list((cache().folder / "writing").glob(".*"))
