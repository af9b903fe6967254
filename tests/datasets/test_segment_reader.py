"""Segments of the token files of every format are those that the files themselves return."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpack
from fastpack import kernels
from fastpack.datasets.segment_reader import SegmentReader
from fastpack.errors import FormatError
from fastpack.tokens.formats import FORMATS, format_named
from fastpack.tokens.interop_formats import output_path
from fastpack.tokens.token_file import TokenFile

NAMES = [row.name for row in FORMATS if row.create is not None]
LENGTHS = [5, 1, 90, 33, 2, 64, 300, 7] * 3


def write(folder: Path, name: str, dtype: str = "uint16", seed: int = 0) -> Path:
    """Write documents in a format; return the path that `open_tokens` accepts."""
    row = format_named(name)
    assert row.create is not None
    folder.mkdir(exist_ok=True)
    path = folder / f"a{''.join(row.suffixes[:1])}"
    with row.create(path, np.dtype(dtype), "overwrite") as writer:
        writer.append_many(np.random.default_rng(seed).integers(0, 30_000, sum(LENGTHS)), LENGTHS)
    return Path(output_path(name, path))


def opened(folder: Path, name: str, dtype: str = "uint16", seed: int = 0) -> TokenFile:
    options: Any = {"nanogpt": {"format": "nanogpt"}, "bin": {"dtype": dtype}}.get(name, {})
    return fastpack.open_tokens(write(folder, name, dtype, seed), **options)


def tokens_of(file: TokenFile) -> npt.NDArray[np.int64]:
    """Return all tokens of a file, through its own interface."""
    if not len(file.segments()):
        return np.empty(0, np.int64)
    return np.concatenate([segment.open() for segment in file.segments()]).astype(np.int64)


def read(
    reader: SegmentReader, file: list[int], start: list[int], length: list[int]
) -> tuple[list[list[int]], list[str]]:
    """Return the segments as lists, and the dtype of each group."""
    out = np.full((len(file), max(length, default=0)), -7)
    numbers, starts, lengths = (np.array(values, np.int64) for values in (file, start, length))
    dtypes = []
    for group in reader.groups(numbers, starts, lengths):
        columns = np.zeros_like(group.which)
        assert not kernels.copy_segments(
            group.addresses, group.which, columns, lengths[group.which], group.dtype_selector, out
        )
        dtypes.append(str(group.dtype_selector.dtype))
    return [row[:n].tolist() for row, n in zip(out, length, strict=True)], dtypes


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[TokenFile]:
    """Files of all formats and of several dtypes, a folder of several files, and one without a token."""
    folder = tmp_path_factory.mktemp("files")
    found = [opened(folder / name, name, seed=k) for k, name in enumerate(NAMES)]
    found += [opened(folder / f"{name}4", name, "uint32", 40) for name in ("pbin", "npy", "mds", "datatrove")]
    for k, dtype in enumerate([">u2", "<f4", "<i8", "<u8", "|i1"]):
        np.save(folder / f"{k}.npy", np.arange(90 + k).astype(dtype))
        found.append(fastpack.open_tokens(folder / f"{k}.npy"))
    many = folder / "many"
    many.mkdir()
    for k, some in enumerate(np.split(np.arange(2000, dtype=np.uint16), [3, 4, 4, 700])):
        np.save(many / f"{k}.npy", some)
    with fastpack.PackedWriter(folder / "none.pbin", token_size_in_bytes=2) as writer:
        writer.append_many([], [])
    return [*found, fastpack.open_tokens(many), fastpack.open_tokens(folder / "none.pbin")]


@given(data=st.data(), pickled=st.booleans())
def test_segments_are_those_of_the_files(backend: str, files: list[TokenFile], data: Any, pickled: bool) -> None:
    reader = SegmentReader(files)
    expected = [tokens_of(file) for file in files]
    assert reader.n_tokens.tolist() == [len(tokens) for tokens in expected]
    if pickled:
        reader = pickle.loads(pickle.dumps(reader))
    chosen = data.draw(st.lists(st.integers(0, len(files) - 1), max_size=12))
    spans = [sorted(data.draw(st.tuples(*[st.integers(0, len(expected[k]))] * 2))) for k in chosen]
    starts, lengths = [start for start, _ in spans], [end - start for start, end in spans]
    reader.will_need(*(np.array(values, np.int64) for values in (chosen, starts, lengths)))
    found, _ = read(reader, chosen, starts, lengths)
    assert found == [expected[k][start:end].tolist() for k, (start, end) in zip(chosen, spans, strict=True)]
    reader.close()
    assert read(reader, chosen, starts, lengths)[0] == found


def test_one_group_per_dtype_and_no_copies(tmp_path: Path) -> None:
    files = [opened(tmp_path / f"{k}", "megatron", ["uint16", "int32"][k % 2], k) for k in range(4)]
    reader = SegmentReader(files)
    numbers, starts, lengths = np.array([3, 0, 1, 2]), np.array([0, 5, 9, 9]), np.full(4, 20)
    groups = list(reader.groups(numbers, starts, lengths))
    assert [(str(group.dtype_selector.dtype), group.which.tolist()) for group in groups] == [
        ("uint16", [1, 3]),
        ("int32", [0, 2]),
    ]
    assert not any(isinstance(group.owner, np.ndarray) for group in groups)
    reader.check_unchanged()
    assert list(reader.groups(numbers[:0], starts[:0], lengths[:0])) == []


@pytest.mark.parametrize(
    ("file", "start", "length"),
    [
        (-1, 0, 1),
        (2, 0, 1),
        (2**62, 0, 1),
        (1, -1, 2),
        (1, 1506, 1),
        (1, 0, 1507),
        (1, 0, -1),
        (1, 2**63 - 1, 2**63 - 1),
        (1, 5, 2**63 - 1),
        (1, 5, -(2**63)),
        (1, -(2**63), 5),
    ],
)
def test_segments_outside_a_file_are_refused(tmp_path: Path, file: int, start: int, length: int) -> None:
    reader = SegmentReader([opened(tmp_path / "a", "npy"), opened(tmp_path / "b", "megatron")])
    for call in (reader.groups, reader.will_need):
        with pytest.raises(ValueError, match="a segment"):
            list(call(np.array([0, file]), np.array([0, start]), np.array([1, length])) or ())


def test_no_files() -> None:
    reader = SegmentReader([])
    assert read(reader, [], [], []) == ([], [])
    with pytest.raises(ValueError, match="0 files"):
        list(reader.groups(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)))


def test_changed_files_are_errors(tmp_path: Path) -> None:
    files = [opened(tmp_path / "a", "megatron"), opened(tmp_path / "b", "mds"), opened(tmp_path / "c", "npy")]
    reader = SegmentReader(files)
    state = pickle.dumps(reader)
    for folder in ("b", "c"):
        for path in (tmp_path / folder).rglob("*"):
            if path.suffix in (".mds", ".npy"):
                os.utime(path, ns=(0, 0))
    with pytest.raises(FormatError, match="modified since"):
        reader.check_unchanged()
    for one in (reader, pickle.loads(state)):
        assert len(read(one, [0], [3], [9])[0][0]) == 9
        for number in (1, 2):
            with pytest.raises(FormatError, match="modified since"):
                read(one, [number], [3], [9])


def test_a_thousand_files_open_fast(tmp_path: Path) -> None:
    tokens = np.arange(100, dtype=np.uint16)
    for k in range(1000):
        np.save(tmp_path / f"{k}.npy", tokens)
    files = [fastpack.open_tokens(tmp_path / f"{k}.npy") for k in range(1000)]
    n_before, start = len(os.listdir("/proc/self/fd")), time.thread_time()
    reader = SegmentReader(files)
    numbers = np.arange(1000)
    assert read(reader, numbers.tolist(), [7] * 1000, [2] * 1000)[0] == [[7, 8]] * 1000
    assert time.thread_time() - start < 1
    assert len(os.listdir("/proc/self/fd")) <= n_before + 64
