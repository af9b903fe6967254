"""The Python code of the README runs unchanged on small files."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import numpy as np
import orjson
import pytest
from PIL import Image
from tar_files import write_tar

from fastpack.cli import main

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)

CONFIG = """
settings:
  src_path: corpus.jsonl
  dst_path: corpus.pbin
  index_path: corpus.idx
  jq_pattern: .text
  num_cpus: 1
  eod_token: <|endoftext|>
  processing_batch_size: 10
  raw_samples_queue_size: 20
  processed_samples_queue_size: 20
tokenizer:
  component_key: tokenizer
  variant_key: builtin_bytes
  config: {}
"""


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory: a corpus, its configuration, two folders of shards, one of pictures."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    texts = ["".join(rng.choice(list("abc de\n"), 300)) for _ in range(40)]
    Path("corpus.jsonl").write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts))
    Path("config.yaml").write_text(CONFIG)
    for name in ("web", "code"):
        folder = Path("shards", name)
        folder.mkdir(parents=True)
        np.save(folder / "a.npy", rng.integers(0, 50, 129 * 200).astype(np.uint16))
    write_pictures(Path("images"), rng)
    return tmp_path


def write_pictures(folder: Path, rng: np.random.Generator) -> None:
    for shard in range(10):
        members = {}
        for number in range(shard * 5, shard * 5 + 5):
            picture = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (64, 64, 3)).astype(np.uint8)).save(picture, "JPEG")
            members[f"{number:06d}.jpg"] = picture.getvalue()
            members[f"{number:06d}.txt"] = f"picture {number}".encode()
        write_tar(folder / f"{shard}.tar", members)


def test_the_first_python_block_needs_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[0], str(README), "exec"), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "python.idx",
        "python.jsonl",
        "python.pbin",
        "python.pbin.fptok",
    ]


def test_commands_and_python_blocks_run_unchanged(corpus: Path) -> None:
    commands = re.findall(r"^fastpack (data .*)$", README.read_text(), re.MULTILINE)
    assert [main(shlex.split(command)) for command in commands] == [0, 0]
    for block in BLOCKS[1:]:
        exec(compile(block, str(README), "exec"), {})
