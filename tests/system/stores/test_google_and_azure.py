"""Index, pack, verify and train on Google's interface (emulated with moto's S3) and Azure's (Microsoft's emulator).

Azurite is an npm package (`npm install azurite`). The Azure tests are skipped if it is not on the PATH.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from stores import FaultyProxy, Store

from fastpack import MemoryMappedDataset
from fastpack.cli import main
from fastpack.io import AtomicFile, TargetExists, exists, map_bytes
from fastpack.io import stores as remote
from fastpack.io.paths import RemotePath

ACCOUNT = "devstoreaccount1"  # the public default account and key of Azurite
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.fixture
def google(moto: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with closing(FaultyProxy(moto.url, google=True)) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        yield "gs://bucket/google"


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("obstore", reason="needs the extra remote")
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("Azurite is not installed: nothing was run on Azure's interface (npm install azurite)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        "--inMemoryPersistence",
        "--silent",
        "--skipApiVersionCheck",
        "--disableTelemetry",
        "--blobPort",
        str(port),
    ]
    with subprocess.Popen([program, *words], cwd=tmp_path, stdout=subprocess.DEVNULL) as server:
        try:
            make_container(f"http://127.0.0.1:{port}/{ACCOUNT}/data")
            for name, value in {"ACCOUNT_NAME": ACCOUNT, "ACCOUNT_KEY": KEY, "USE_EMULATOR": "true"}.items():
                monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
            monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://127.0.0.1:{port}")
            yield "az://data/azure"
        finally:
            server.terminate()


def make_container(url: str) -> None:
    """Create a container by a request, since obstore cannot; wait for the server to start."""
    now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": now, "x-ms-version": "2021-08-06"}
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    text = "PUT" + "\n" * 12 + f"{lines}/{ACCOUNT}/{ACCOUNT}/data\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Type": ""}
    request = urllib.request.Request(f"{url}?restype=container", b"", headers, method="PUT")
    for _ in range(600):
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                assert response.status == 201
                return
        except OSError as error:  # of which URLError is one
            if not isinstance(getattr(error, "reason", error), ConnectionError):
                raise
            time.sleep(0.1)
    raise TimeoutError("Azurite did not start in a minute")


@pytest.mark.parametrize("kind", ["google", "azure"])
def test_index_pack_and_train(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url: str = request.getfixturevalue(kind)
    monkeypatch.setenv("FASTPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "PART_BYTES", 5 << 20)
    local = tmp_path / "corpus.jsonl"
    local.write_text("".join(json.dumps({"text": f"document {n} " * (n % 9 + 1)}) + "\n" for n in range(300)))
    put(f"{url}/corpus.jsonl", local.read_bytes())
    for source in (str(local), f"{url}/{local.name}"):
        assert main(["index", source, "-q"]) == main(["pack", source, "--tokenizer", "bytes", "-q"]) == 0
    for name in ("corpus.idx", "corpus.pbin"):
        assert map_bytes(f"{url}/{name}").tobytes() == (tmp_path / name).read_bytes()
    assert main(["verify", f"{url}/corpus.pbin", "-q"]) == 0
    (tmp_path / "shards").mkdir()
    for number in range(3):
        tokens = np.random.default_rng(number).integers(0, 50_000, 5000, dtype=np.uint16)
        np.save(tmp_path / "shards" / f"{number}.npy", tokens)
        put(f"{url}/shards/{number}.npy", (tmp_path / "shards" / f"{number}.npy").read_bytes())
    assert main(["manifest", f"{url}/shards", "-q"]) == 0
    expected = MemoryMappedDataset(tmp_path / "shards", 101).batch([0, 49, 146])["labels"]
    for where in (f"{url}/shards", f"{url}/shards/manifest.fpm"):
        np.testing.assert_array_equal(MemoryMappedDataset(where, 101).batch([0, 49, 146])["labels"], expected)
    big = np.random.default_rng(1).bytes(12 << 20)
    put(f"{url}/big", big)
    assert map_bytes(f"{url}/big").tobytes() == big
    with pytest.raises(TargetExists):
        put(f"{url}/big", b"x")
    names = sorted(path.name for path in RemotePath(url).glob("*"))
    assert names == ["big", "corpus.idx", "corpus.jsonl", "corpus.pbin", "corpus.pbin.fptok", "shards"]
    assert not exists(f"{url}/absent")


def put(url: str, content: bytes) -> None:
    with AtomicFile(url, policy="error") as file:
        file.write(content)
