"""A local store, and a separate cache for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from stores import SMALL_BLOCK, FaultyProxy, Store


@pytest.fixture(scope="session")
def moto() -> Iterator[Store]:
    pytest.importorskip("obstore", reason="needs the extra remote")
    pytest.importorskip("moto.server", reason="needs a store: pip install 'moto[s3,server]'")
    with closing(Store()) as store:
        yield store


@pytest.fixture
def store(moto: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Return the store behind the proxy `store.proxy`; names begin with `store.folder`, which is unique to the test."""
    settings = {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "REGION": "us-east-1"}
    monkeypatch.setenv("FASTPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("fastpack.io.stores.FIRST_PAUSE", 0.01)
    with closing(FaultyProxy(moto.url)) as proxy:
        for name, value in {**settings, "ENDPOINT_URL": proxy.url}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield _StoreFolder(moto, proxy, f"t{uuid.uuid4().hex[:12]}")  # type: ignore[misc]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide objects of megabytes into many blocks."""
    sizes = {"BLOCK": SMALL_BLOCK, "SMALL_BLOCK": SMALL_BLOCK >> 3, "MAX_READ": 2 * SMALL_BLOCK, "HEAD": 4096}
    for name, n_bytes in sizes.items():
        monkeypatch.setattr(f"fastpack.io.remote_files.{name}", n_bytes)


class _StoreFolder:
    def __init__(self, moto: Store, proxy: FaultyProxy, folder: str) -> None:
        self._moto, self.proxy, self.folder = moto, proxy, folder
        self.url = f"s3://bucket/{folder}"

    def put(self, name: str, content: bytes) -> str:
        return self._moto.put(f"{self.folder}/{name}", content)

    def get(self, name: str) -> bytes:
        return self._moto.get(f"{self.folder}/{name}")

    def put_folder(self, folder: Path, name: str = "") -> str:
        """Upload all files of a folder under the same names; return its URL."""
        prefix = f"{name}/" if name else ""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}{path.relative_to(folder)}", path.read_bytes())
        return f"{self.url}/{name}".rstrip("/")

    def get_folder(self, name: str = "") -> dict[str, bytes]:
        from fastpack.io import stores as remote

        prefix = f"{name}/" if name else ""
        names = remote.all_names(f"{self.url}/{name}".rstrip("/"))
        return {key: self.get(prefix + key) for key in names}
