"""Conversations to packed files: Modalities' files byte for byte, and nothing half-written where it fails."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from fastpack.build.chat.prepare import prepare_instruction_tuning_data

CASES = ["split", "tojson", "train_only", "val_and_test", "empty_partition", "drawing", "referring", "one_byte"]
EOD = "<|endoftext|>"


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`, hidden ones too, with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def peer(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory like the one in which Modalities wrote the golden files, without what it wrote."""
    shutil.copytree(golden / "modalities" / "chat", tmp_path / "chat", ignore=shutil.ignore_patterns("out"))
    shutil.copytree(golden / "modalities" / "tokenizers", tmp_path / "tokenizers")
    monkeypatch.chdir(tmp_path / "chat")
    return golden / "modalities" / "chat" / "out"


@pytest.mark.parametrize("case", CASES)
def test_the_files_of_modalities(case: str, peer: Path) -> None:
    before = random.getstate()
    result = prepare_instruction_tuning_data(f"configs/{case}.yaml")
    assert tree(Path("out") / case) == tree(peer / case)
    assert len(tree(Path("out") / case)) > 3
    assert random.getstate() == before
    assert Path(result.config_path).read_bytes() == Path(f"configs/{case}.yaml").read_bytes()
    for partition in result.partitions:
        assert Path(partition.jsonl_path).read_bytes().count(b"\n") == partition.rows == partition.documents


def test_every_golden_case_is_tested(peer: Path) -> None:
    assert sorted(path.name for path in peer.iterdir()) == sorted(CASES)
