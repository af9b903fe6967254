"""Every small change to a small valid file: verify() never raises; repair() writes a sound file or raises an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fastpack
from fastpack import repair, verify
from fastpack.errors import FormatError, JobError

EOS = 9


def mutants(whole: bytes) -> Iterator[bytes]:
    """Set each byte to 0 and 255, add and subtract 1, delete it, double it, and truncate the file before it."""
    for i, value in enumerate(whole):
        for other in {0, 255, (value + 1) % 256, (value - 1) % 256} - {value}:
            yield whole[:i] + bytes([other]) + whole[i + 1 :]
        yield whole[:i] + whole[i + 1 :]
        yield whole[:i] + whole[i : i + 1] + whole[i:]
        yield whole[:i]


def write(folder: Path, kind: str) -> Path:
    """Write a valid file; return the path of the file to change."""
    if kind == "pbin":
        with fastpack.PackedWriter(folder / "a.pbin", 2) as writer:
            writer.append_many([1, 2, EOS, 3, EOS, 4, 5, 6, EOS], [3, 2, 4])
        return folder / "a.pbin"
    if kind == "npy":
        np.save(folder / "a.npy", np.arange(5, dtype=np.uint16))
        return folder / "a.npy"
    if kind == "metadata":
        (folder / "a.bin").write_bytes(np.arange(5, dtype=np.uint16).tobytes())
        (folder / "metadata.yaml").write_text("tokenized_info: {dtype: uint16, vocab_size: 9}\n")
        return folder / "metadata.yaml"
    (folder / "a.jsonl").write_bytes(b'{"a": 1}\n{"b": 2}\n')
    fastpack.create_raw_index(folder / "a.jsonl")
    if kind == "offsets":
        fastpack.index_webdataset_jsonl(folder / "a.jsonl")
    return folder / {"jsonl": "a.jsonl", "idx": "a.idx", "offsets": "a.jsonl.idx"}[kind]


@pytest.mark.parametrize("kind", ["pbin", "npy", "metadata", "jsonl", "idx", "offsets"])
def test_verify_never_raises(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind)
    whole = path.read_bytes()
    seen = 0
    for mutant in mutants(whole):
        path.write_bytes(mutant)
        report = verify(tmp_path, vocab_size=10, eos_token_id=EOS, deep=True)
        for finding in report.findings:
            assert finding.offset is None or 0 <= finding.offset <= max(len(mutant), 200), finding
        seen += not report.is_sound
    assert seen > len(whole) / 2


def test_repair_writes_a_sound_file_or_raises_a_plain_error(tmp_path: Path) -> None:
    path = write(tmp_path, "pbin")
    target = tmp_path / "repaired.pbin"
    n_repaired = 0
    for mutant in mutants(path.read_bytes()):
        path.write_bytes(mutant)
        try:
            result = repair(path, target, eos_token_id=EOS, if_exists="overwrite")
        except (FormatError, JobError):
            continue
        report = verify(target if result.written else path)
        assert report.is_sound, report.findings
        n_repaired += result.written
    assert n_repaired > 100


@pytest.mark.parametrize("changed", ["a.jsonl", "a.idx"])
def test_repair_of_an_index(tmp_path: Path, changed: str) -> None:
    write(tmp_path, "jsonl")
    path = tmp_path / changed
    for mutant in mutants(path.read_bytes()):
        path.write_bytes(mutant)
        repair(tmp_path / "a.jsonl", tmp_path / "b.idx", if_exists="overwrite")
        index = tmp_path / ("b.idx" if (tmp_path / "b.idx").exists() else "a.idx")
        lines = fastpack.read_raw_index(index)
        data = (tmp_path / "a.jsonl").read_bytes()
        assert all(b"\n" not in data[offset : offset + length] for offset, length in lines.tolist())
        (tmp_path / "b.idx").unlink(missing_ok=True)
