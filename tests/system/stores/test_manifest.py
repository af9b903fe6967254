"""Manifests in a store: one request opens a dataset, and shards are requested on first use."""

from __future__ import annotations

import pickle
import re
import threading
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpack
from fastpack.errors import FormatError
from fastpack.tokens.manifest.manifest_file import Manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shards = tmp_path / "shards"
    shards.mkdir()
    for number in range(12):
        np.save(shards / f"{number:02}.npy", np.arange(number * 100, number * 100 + 50, dtype=np.uint16))
    (shards / "a.bin").write_bytes(np.arange(51, dtype=np.uint16).tobytes())
    return shards


def test_one_request_opens_a_dataset_and_no_shard(store: Any, folder: Path) -> None:
    url = store.put_folder(folder, "shards")
    written = fastpack.write_manifest(url, eos_token_id=7)
    assert (written.path, written.shards, written.documents) == (f"{url}/manifest.fpm", 13, 2)
    assert Manifest(written.path).times_count
    store.proxy.requests.clear()
    dataset = fastpack.MemoryMappedDataset(written.path, 10)
    assert [(method, path.rpartition("/")[2]) for method, path, _ in store.proxy.requests] in (
        [("HEAD", "manifest.fpm")],  # cached: `write_manifest` reads it back
        [("HEAD", "manifest.fpm"), ("GET", "manifest.fpm")],
    )
    assert len(dataset) == 60
    again = pickle.loads(pickle.dumps(dataset))
    dataset.check_unchanged()
    assert not any(path.endswith((".npy", ".bin")) for _, path, _ in store.proxy.requests)
    expected = fastpack.MemoryMappedDataset(folder, 10).batch([59, 3, 30])
    for name, values in expected.items():
        np.testing.assert_array_equal(dataset.batch([59, 3, 30])[name], values)
        np.testing.assert_array_equal(again.batch([59, 3, 30])[name], values)
    asked = {path.rpartition("/")[2] for _, path, _ in store.proxy.requests if path.endswith(".npy")}
    assert asked == {"11.npy", "00.npy", "06.npy"}


def test_first_read_is_one_get_request(
    store: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = store.put_folder(folder, "shards")
    fastpack.write_manifest(url)
    monkeypatch.setenv("FASTPACK_CACHE_DIR", str(tmp_path / "another node"))
    store.proxy.requests.clear()
    fastpack.MemoryMappedDataset(f"{url}/manifest.fpm", 10)
    assert [method for method, _, _ in store.proxy.requests] == ["HEAD", "GET"]


def test_replaced_object_is_detected(store: Any, folder: Path) -> None:
    url = store.put_folder(folder, "shards")
    fastpack.write_manifest(url)
    dataset = fastpack.MemoryMappedDataset(f"{url}/manifest.fpm", 10)
    np.save(folder / "05.npy", np.arange(51, dtype=np.uint16))
    store.put("shards/05.npy", (folder / "05.npy").read_bytes())
    assert dataset[0]["labels"][0] == 1
    with pytest.raises(FormatError, match=r"05\.npy: at byte 228: .*manifest\.fpm says"):
        dataset[25]


def test_local_manifest_can_be_uploaded_with_its_shards(store: Any, folder: Path) -> None:
    fastpack.write_manifest(folder, checksums=False)
    url = store.put_folder(folder, "copy")
    assert not Manifest(f"{url}/manifest.fpm").times_count
    dataset = fastpack.MemoryMappedDataset(f"{url}/manifest.fpm", 10)
    np.testing.assert_array_equal(
        dataset.batch([7, 50])["labels"], fastpack.MemoryMappedDataset(folder, 10).batch([7, 50])["labels"]
    )
    assert fastpack.verify(f"{url}/manifest.fpm").is_sound


class _Files(SimpleHTTPRequestHandler):
    """Serve the files of a folder over HTTP with range requests and without listings."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data, code = path.read_bytes(), 200
        headers = {"Last-Modified": self.date_time_string(int(path.stat().st_mtime))}
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            start, end = int(asked[1]), min(int(asked[2]) + 1, len(data))
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            data, code = data[start:end], 206
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET  # noqa: N815 (http.server's name)


def test_plain_http_without_listings(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("FASTPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("fastpack.io.stores.FIRST_PAUSE", 0.01)
    fastpack.write_manifest(folder)
    with ExitStack() as stack:
        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(tmp_path))))
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        stack.callback(server.shutdown)
        url = f"http://127.0.0.1:{server.server_address[1]}/shards"
        with pytest.raises((OSError, RuntimeError)):
            fastpack.MemoryMappedDataset(url, 10)
        dataset = fastpack.MemoryMappedDataset(f"{url}/manifest.fpm", 10)
        expected = fastpack.MemoryMappedDataset(folder, 10)
        np.testing.assert_array_equal(dataset.batch([7, 50])["labels"], expected.batch([7, 50])["labels"])
        assert fastpack.verify(f"{url}/manifest.fpm").is_sound


def test_checksums_of_objects(store: Any, folder: Path) -> None:
    pytest.importorskip("xxhash")
    url = store.put_folder(folder, "shards")
    fastpack.write_manifest(url, checksums=True)
    fastpack.write_manifest(folder, checksums=True)
    there, here = Manifest(f"{url}/manifest.fpm"), Manifest(folder / "manifest.fpm")
    np.testing.assert_array_equal(there.checksums, here.checksums)
    assert fastpack.verify(f"{url}/manifest.fpm").is_sound


def test_store_that_fails_every_third_request(store: Any, folder: Path) -> None:
    url = store.put_folder(folder, "shards")
    store.proxy.choose = lambda number, method, _: "503" if method == "GET" and number % 3 == 0 else None
    fastpack.write_manifest(url)
    dataset = fastpack.MemoryMappedDataset(f"{url}/manifest.fpm", 10)
    expected = fastpack.MemoryMappedDataset(folder, 10)
    order = np.arange(0, 60, 7)
    np.testing.assert_array_equal(dataset.batch(order)["labels"], expected.batch(order)["labels"])


def test_packed_files_are_requested_on_first_use(store: Any, tmp_path: Path) -> None:
    for number in range(5):
        with fastpack.PackedWriter(tmp_path / f"{number}.pbin", 2) as writer:
            writer.append(np.arange(number * 100, number * 100 + 50))
    url = store.put_folder(tmp_path, "packed")
    written = fastpack.write_manifest(url)
    assert (written.shards, written.documents) == (5, 5)
    store.proxy.requests.clear()
    dataset = fastpack.PackedMemMapDatasetContinuous(written.path, "x", 10, False)
    dataset.check_unchanged()
    assert not any(path.endswith(".pbin") for _, path, _ in store.proxy.requests)
    np.testing.assert_array_equal(dataset.batch([24, 3])["x"][:, 0], [440, 30])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(dataset))[10]["x"], np.arange(200, 210))
    assert {path.rpartition("/")[2] for _, path, _ in store.proxy.requests if path.endswith(".pbin")} == {
        "4.pbin",
        "0.pbin",
        "2.pbin",
    }
