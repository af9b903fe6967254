"""`--tokenizer ORG/NAME`: found in the cache of the Hugging Face Hub, or downloaded into it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub, serve_hub

WORDS = ["--eos-token", "<|endoftext|>", "-q"]


@pytest.fixture
def hub(golden: Path) -> Iterator[FakeHub]:
    tokenizer = (golden / "modalities/tokenizers/tok_bpe2000/tokenizer.json").read_bytes()
    repositories = {
        "models/org/bpe": {"tokenizer.json": tokenizer, "model.safetensors": bytes(1000)},
        "models/org/none": {"README.md": b"# about\n"},
    }
    with serve_hub(FakeHub(repositories)) as server:
        yield server


def pack(source: Path, tokenizer: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Pack in a new process, because huggingface_hub reads its settings when it is imported."""
    words = [sys.executable, "-m", "fastpack", "pack", str(source), "--tokenizer", tokenizer, *WORDS, "--json"]
    return subprocess.run(words, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl").write_text('{"text": "hello world"}\n' * 3)
    return tmp_path / "a.jsonl"


def test_downloaded_once_and_then_read_from_the_cache(hub: FakeHub, source: Path, golden: Path, tmp_path: Path) -> None:
    environment = hub.environment(tmp_path / "home")
    local = pack(source, str(golden / "modalities/tokenizers/tok_bpe2000/tokenizer.json"), environment)
    assert local.returncode == 0
    expected = source.with_suffix(".pbin").read_bytes()
    assert hub.requests == []
    for _ in range(2):
        source.with_suffix(".pbin").unlink()
        done = pack(source, "org/bpe", environment)
        assert done.returncode == 0, done.stderr
        assert source.with_suffix(".pbin").read_bytes() == expected
        n_requests = len(hub.requests)
    assert not any("safetensors" in request for request in hub.requests)
    source.with_suffix(".pbin").unlink()
    assert pack(source, "org/bpe", environment | {"HF_HUB_OFFLINE": "1"}).returncode == 0
    assert len(hub.requests) == n_requests


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("org/missing", {}, "org/missing is not a path that exists"),
        ("org/none", {}, "the repository contains none of tokenizer.json"),
        ("org/bpe", {"HF_HUB_OFFLINE": "1"}, "not in the cache of the Hugging Face Hub, and HF_HUB_OFFLINE is set"),
    ],
)
def test_tokenizer_that_is_not_found(
    name: str, settings: dict[str, str], message: str, hub: FakeHub, source: Path, tmp_path: Path
) -> None:
    done = pack(source, name, hub.environment(tmp_path / "home") | settings)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not source.with_suffix(".pbin").exists()


def test_private_repository_needs_the_token(hub: FakeHub, source: Path, tmp_path: Path) -> None:
    hub.token = "secret"
    environment = hub.environment(tmp_path / "home")
    assert "is not a path that exists" in pack(source, "org/bpe", environment).stderr
    done = pack(source, "org/bpe", environment | {"HF_TOKEN": "secret"})
    assert done.returncode == 0, done.stderr


def test_paths_are_never_looked_up_on_the_hub(hub: FakeHub, source: Path, tmp_path: Path) -> None:
    for name in ("missing", "./org/bpe", "org/tokenizer.json", "org/spm.model", "/org/bpe"):
        assert pack(source, name, hub.environment(tmp_path / "home")).returncode == 1
    assert hub.requests == []
