"""Token files, folders of chunks and of shards in a store are opened, inspected, verified and converted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from text_sources import write_texts
from token_formats import read_tokens, write_tokens

import fastpack
from fastpack.tokens.formats import FORMATS
from fastpack.tokens.interop_formats import FOLDER_FORMATS

pytest.importorskip("xxhash", reason="digests need xxhash")

EOS = 0
DOCUMENTS = [[*range(1, number % 40 + 1), 300 + number, EOS] for number in range(500)]
WRITABLE = [row.name for row in FORMATS if row.create is not None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


@pytest.mark.parametrize("name", WRITABLE)
def test_every_format(store: Any, folder: Path, name: str, cli: Cli, tmp_path: Path) -> None:
    path = write_tokens(folder, name, DOCUMENTS, "uint16")
    url = f"{store.put_folder(folder, 'x')}/{path.name}"
    options: dict[str, Any] = {"eos_token_id": EOS}
    options |= {"format": name} if name == "nanogpt" else {}
    dtype = {"dtype": "uint16"} if name in ("bin", "nanogpt") else {}
    assert read_tokens(url, **options, **dtype) == DOCUMENTS
    source = {"source_format": "nanogpt"} if name == "nanogpt" else {}
    result = fastpack.convert(url, tmp_path / "out.pbin", **source, eos_token_id=EOS, **dtype)
    assert read_tokens(Path(result.output)) == DOCUMENTS
    local, remote = (cli.json("verify", where, "--eos-token-id", EOS) for where in (path, url))
    assert {**remote, "path": ""} == {**local, "path": ""}
    if name != "nanogpt":  # which is not detected
        local, remote = (fastpack.inspect(where, eos_token_id=EOS, **dtype) for where in (path, url))
        assert remote.tokens == local.tokens == sum(map(len, DOCUMENTS))
        assert remote.documents == local.documents == len(DOCUMENTS)


def test_a_plain_folder_is_verified(store: Any, folder: Path, cli: Cli) -> None:
    write_tokens(folder, "pbin", DOCUMENTS, "uint16")
    write_tokens(folder, "datatrove", DOCUMENTS, "uint16")
    (folder / "a.jsonl").write_text('{"text": "a"}\n' * 5)
    cli("index", folder / "a.jsonl", "-q")
    url = store.put_folder(folder, "plain")
    local, remote = (cli("verify", where).out for where in (folder, url))
    assert remote.replace(url, str(folder)) == local
    store.put("plain/a.pbin", (folder / "a.pbin").read_bytes()[:-5])
    cli("verify", url, code=3)
    cli("verify", f"{store.url}/missing", code=1)


@pytest.mark.parametrize("name", FOLDER_FORMATS)
def test_the_requests_do_not_grow_with_the_documents(store: Any, folder: Path, name: str) -> None:
    path = write_tokens(folder, name, DOCUMENTS, "uint16")
    url = f"{store.put_folder(folder, 'x')}/{path.name}"
    before = len(store.proxy.requests)
    assert read_tokens(url) == DOCUMENTS
    assert fastpack.verify(url).is_sound
    assert len(store.proxy.requests) - before < 60  # of 500 documents


def test_folders_of_shards(store: Any, folder: Path, cli: Cli, tmp_path: Path) -> None:
    for number in range(3):
        np.save(folder / f"{number}.npy", np.array([token for one in DOCUMENTS for token in one], np.uint16))
    url = store.put_folder(folder, "shards")
    assert read_tokens(url, eos_token_id=EOS) == DOCUMENTS * 3
    local, remote = (cli.json("verify", where, "--eos-token-id", EOS) for where in (folder, url))
    assert {**remote, "path": ""} == {**local, "path": ""}
    assert fastpack.inspect(url, eos_token_id=EOS).documents == 1500
    assert cli.json("convert", url, "-o", tmp_path / "a.ds", "--eos-token-id", EOS)["n_documents"] == 1500


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_tables_are_inspected(store: Any, folder: Path, cli: Cli, tmp_path: Path, name: str) -> None:
    texts = [f"text {number}" for number in range(200)]
    write_texts(folder, name.rpartition(".")[2], texts, name="a")
    url = f"{store.put_folder(folder, 'tables')}/{name}"
    for command in ("info", "preview"):
        local, remote = (cli(command, where).out for where in (folder / name, url))
        assert "text" in local
        assert remote.replace(url, str(folder / name)) == local
    for number, where in enumerate((folder / name, url)):
        cli("report", where, "-o", tmp_path / f"{number}.html", "-q")
    pages = [(tmp_path / f"{number}.html").read_text() for number in range(2)]
    assert "200" in pages[1]
    assert len(pages[0]) - len(str(folder)) * 20 < len(pages[1]) < len(pages[0]) + len(url) * 20
