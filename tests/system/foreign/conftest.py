"""Files of fastpack for the readers of other projects, which `.ci/run foreign` installs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from foreign_documents import NARROW, WIDE, OurFile

import fastpack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Accept the warnings of the other projects."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(params=["narrow", "wide", "pack"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], OurFile]:
    """Write a file of a format: by `convert` from a packed file, or by `pack --format`."""

    def convert(name: str, output: str) -> OurFile:
        documents, size = (NARROW, 2) if request.param == "narrow" else (WIDE, 4)
        with fastpack.PackedWriter(tmp_path / "source.pbin", size) as writer:
            writer.append_many(np.concatenate(documents), list(map(len, documents)))
        result = fastpack.convert(tmp_path / "source.pbin", tmp_path / "ours" / output, format=name)
        return OurFile(Path(result.output), documents, size)

    def pack(name: str, output: str) -> OurFile:
        texts = [f"{'word ' * (number % 9)}{number}" for number in range(300)]
        source = tmp_path / "corpus.jsonl"
        source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        target = tmp_path / "ours" / output
        result = fastpack.pack(source, target, tokenizer="bytes", format=name, num_workers=1)  # type: ignore[arg-type]
        return OurFile(Path(result.path), [[*text.encode(), 256] for text in texts], 2)

    (tmp_path / "ours").mkdir()
    return pack if request.param == "pack" else convert
