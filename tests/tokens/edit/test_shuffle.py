"""Shuffles: the standard library's order, lines as in `readlines`, and invalid arguments."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fastpack
from fastpack.errors import DataWarning, FormatError
from fastpack.io import TargetExists
from fastpack.tokens.edit import jsonl_lines as lines

WritePacked = Callable[..., Path]
Bytes = Callable[..., bytes]
documents = st.lists(st.lists(st.integers(0, 255), max_size=9), min_size=1, max_size=30)
texts = st.lists(st.sampled_from([b"\n", b"a", b"{}", b"\r", b"\r\n", b"\x0b", b"\x85", b"x" * 70]), max_size=40)


@given(documents=documents, generation=st.integers(1, 5), size=st.sampled_from([1, 2, 4]), seed=st.integers())
def test_documents_in_the_order_of_the_standard_library(
    documents: list[list[int]],
    generation: int,
    size: int,
    seed: int,
    write_packed: WritePacked,
    expected_bytes: Bytes,
) -> None:
    if not any(documents) and generation < 5:
        documents = [[1], *documents]
    source = write_packed("a.pbin", documents, size, generation)
    target = source.with_name("out")
    result = fastpack.shuffle_tokenized_data(source, target, 3, "override", seed)
    expected = list(documents)
    random.Random(seed).shuffle(expected)
    assert target.read_bytes() == expected_bytes(expected, 4 if generation < 3 else size)
    assert (result.documents, result.tokens) == (len(documents), sum(map(len, documents)))


@given(parts=texts, seed=st.integers(0, 99))
@example(parts=[b"a", b"\n", b"b"], seed=1)
@example(parts=[b"\n"], seed=1)
def test_lines_in_the_order_of_the_standard_library(tmp_path: Path, parts: list[bytes], seed: int) -> None:
    """compat is `readlines`, `shuffle`, `writelines`; otherwise a last line that moves gets a newline."""
    source, target = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b"".join(parts))
    with source.open("rb") as file:
        expected = file.readlines()
    random.Random(seed).shuffle(expected)
    fastpack.shuffle_jsonl_data(source, target, "override", seed, compat="modalities-0.5")
    assert target.read_bytes() == b"".join(expected)
    open_ones = [line for line in expected[:-1] if not line.endswith(b"\n")]
    if open_ones:
        with pytest.warns(DataWarning, match=r"a\.jsonl: the last line has no newline; one was added"):
            result = fastpack.shuffle_jsonl_data(source, target, "override", seed)
    else:
        result = fastpack.shuffle_jsonl_data(source, target, "override", seed)
    assert target.read_bytes() == b"".join(
        line + b"\n" if line in open_ones and not line.endswith(b"\n") else line for line in expected
    )
    assert (result.documents, result.bytes) == (len(expected), target.stat().st_size)


def test_lines_over_many_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_WINDOW", 100)
    monkeypatch.setattr(lines, "_DROP_BYTES", 1000)
    wanted = [b"%d" % n * (n % 40) + b"\n" for n in range(5000)]
    (tmp_path / "a.jsonl").write_bytes(b"".join(wanted))
    fastpack.shuffle_jsonl_data(tmp_path / "a.jsonl", tmp_path / "out.jsonl", seed=4)
    random.Random(4).shuffle(wanted)
    assert (tmp_path / "out.jsonl").read_bytes() == b"".join(wanted)


@pytest.mark.parametrize("seed", [None, "a text", 2.5, b"bytes", -1, 2**70])
def test_seeds_mean_what_they_mean_to_the_standard_library(seed: object, write_packed: WritePacked) -> None:
    source = write_packed("a.pbin", [[n] for n in range(200)])
    for name in ("one", "two"):
        fastpack.shuffle_tokenized_data(source, source.with_name(name), seed=seed)  # type: ignore[arg-type]
    one, two = (fastpack.PackedFile(source.with_name(name)).data.tolist() for name in ("one", "two"))
    assert sorted(one) == sorted(two) == list(range(200))
    if seed is None:
        assert one != two
    else:
        expected = list(range(200))
        random.Random(seed).shuffle(expected)  # type: ignore[arg-type]
        assert one == two == expected


def test_empty_files(tmp_path: Path, write_packed: WritePacked) -> None:
    source = write_packed("none.pbin", [])
    assert fastpack.shuffle_tokenized_data(source, tmp_path / "out").documents == 0
    assert (tmp_path / "out").read_bytes() == source.read_bytes()
    assert source.stat().st_size == 17
    (tmp_path / "none.jsonl").write_bytes(b"")
    assert fastpack.shuffle_jsonl_data(tmp_path / "none.jsonl", tmp_path / "out.jsonl").bytes == 0
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_batch_size_has_no_effect(tmp_path: Path, write_packed: WritePacked) -> None:
    source = write_packed("a.pbin", [[n, n] for n in range(30)])
    for batch_size in (1, 7, 100):
        fastpack.shuffle_tokenized_data(source, tmp_path / f"{batch_size}", batch_size, seed=1)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "7").read_bytes() == (tmp_path / "100").read_bytes()
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        fastpack.shuffle_tokenized_data(source, tmp_path / "0", 0)


@pytest.mark.parametrize("shuffle", [fastpack.shuffle_tokenized_data, fastpack.shuffle_jsonl_data])
def test_what_is_refused(tmp_path: Path, write_packed: WritePacked, shuffle: Callable[..., object]) -> None:
    source, target = write_packed("a.pbin", [[1], [2]]), tmp_path / "out"
    before = source.read_bytes()
    with pytest.raises(ValueError, match="Input and output file paths must be different"):
        shuffle(source, source, if_exists="overwrite")
    with pytest.raises(FileNotFoundError, match="none"):
        shuffle(tmp_path / "none", target)
    target.write_bytes(b"old")
    with pytest.raises(TargetExists, match=r"exists\. Pass if_exists"):
        shuffle(source, target)
    with pytest.raises(ValueError, match="if_exists: found"):
        shuffle(source, target, if_exists="maybe")
    assert shuffle(source, target, if_exists="skip").kept_existing  # type: ignore[attr-defined]
    with pytest.raises(TargetExists):
        shuffle(source, target, dry_run=True)
    assert (source.read_bytes(), target.read_bytes()) == (before, b"old")


def test_a_damaged_file_leaves_the_old_output(tmp_path: Path, write_packed: WritePacked) -> None:
    source, target = write_packed("a.pbin", [[1], [2]]), tmp_path / "out"
    source.write_bytes(source.read_bytes()[:-2])
    target.write_bytes(b"old")
    with pytest.raises(FormatError, match=r"a\.pbin"):
        fastpack.shuffle_tokenized_data(source, target, if_exists="overwrite")
    assert target.read_bytes() == b"old"
    with pytest.raises(ValueError, match="unknown compat"):
        fastpack.shuffle_jsonl_data(source, target, compat="0.5")  # type: ignore[arg-type]


MEMORY = """
import re, sys
import fastpack
from fastpack.tokens.edit import document_collection as spans
from fastpack.tokens.edit import jsonl_lines as lines
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
folder = sys.argv[1]
fastpack.shuffle_tokenized_data(folder + "/small.pbin", folder + "/out", 100, "override", 1)
before = peak()
fastpack.shuffle_tokenized_data(folder + "/large.pbin", folder + "/out", 100, "override", 1)
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """256 MiB of documents: memory for a window of 64 MiB and 32 MiB of mapped pages."""
    rng = np.random.default_rng(1)
    for name, n_tokens in (("small", 1000), ("large", 128 << 20)):
        lengths = rng.integers(100, 4000, 1 + n_tokens // 2000)
        with fastpack.PackedWriter(tmp_path / f"{name}.pbin", 2) as writer:
            writer.append_many(np.zeros(int(lengths.sum()), np.uint16), lengths)
    command = [sys.executable, "-c", MEMORY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 140
