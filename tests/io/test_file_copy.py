"""Copies by the system, with every call that may be unsupported, and gathered writes."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpack.io import AtomicFile, file_copy, gathered_write
from fastpack.io.gathered_write import Spans

DATA = bytes(range(256)) * 20_000


class Calls:
    """A substitute for the module os in which some calls fail with an error number, or are missing."""

    def __init__(self, **errors: int | None) -> None:
        self._errors, self.made = errors, set[str]()

    def __getattr__(self, name: str) -> Any:
        if name in self._errors and self._errors[name] is None:
            raise AttributeError(name)
        real = getattr(os, name)

        def call(*arguments: Any) -> Any:
            self.made.add(name)
            if name in self._errors:
                raise OSError(self._errors[name], "planted")
            return real(*arguments)

        return call if callable(real) else real


@pytest.mark.parametrize("offset", [0, 12])
@pytest.mark.parametrize(
    "errors",
    [
        {},
        {"splice": errno.EINVAL},
        {"splice": None},
        {"copy_file_range": errno.EXDEV},
        {"splice": None, "copy_file_range": None},
    ],
)
def test_a_copy_has_the_bytes(
    tmp_path: Path, errors: dict[str, int | None], offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(DATA)
    calls = Calls(**errors)
    monkeypatch.setattr(file_copy, "os", calls)
    monkeypatch.setattr(calls, "major", lambda _: 8, raising=False)  # a disk
    with AtomicFile(tmp_path / "b") as file:
        file.write(b"header")
        assert file.copy_from(tmp_path / "a", offset, 3_000_000) == 3_000_000
        assert file.copy_from(tmp_path / "a", len(DATA) - 5, 100) == 5
    assert (tmp_path / "b").read_bytes() == b"header" + DATA[offset : offset + 3_000_000] + DATA[-5:]
    if not errors:
        assert "splice" in calls.made


def test_other_file_systems_copy_as_they_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(DATA)
    calls = Calls()
    monkeypatch.setattr(file_copy, "os", calls)
    monkeypatch.setattr(calls, "major", lambda _: 0, raising=False)
    with AtomicFile(tmp_path / "b") as file:
        file.copy_from(tmp_path / "a", 12, 1000)
    assert "copy_file_range" in calls.made
    assert "splice" not in calls.made


def test_an_error_is_raised_and_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(DATA)
    calls = Calls(splice=errno.ENOSPC)
    monkeypatch.setattr(file_copy, "os", calls)
    monkeypatch.setattr(calls, "major", lambda _: 8, raising=False)
    with pytest.raises(OSError, match="planted") as caught, AtomicFile(tmp_path / "b") as file:
        file.copy_from(tmp_path / "a", 12, 1000)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "b"))
    assert os.listdir(tmp_path) == ["a"]


def test_a_failing_target_leaves_nothing_in_the_pipe(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    with open(tmp_path / "a", "rb") as source, open(tmp_path / "b", "wb") as target:
        pipe = os.pipe()
        with open(tmp_path / "a", "rb") as read_only, pytest.raises(OSError, match="Bad file"):
            file_copy._splice(source.fileno(), 1, read_only.fileno(), 1, 1000, pipe)
        assert file_copy._splice(source.fileno(), 7, target.fileno(), 0, 1000, pipe) == 1000
        for end in pipe:
            os.close(end)
    assert (tmp_path / "b").read_bytes() == DATA[7:1007]


@settings(deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3000)), max_size=1500),
    shortest=st.sampled_from([1, 100, 5000, 1 << 30]),
    has_call=st.booleans(),
)
def test_interleaved_pieces(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[tuple[int, int]], shortest: int, has_call: bool
) -> None:
    path = tmp_path_factory.mktemp("x") / "a"
    data = np.frombuffer(DATA, np.uint8)
    each = np.array(lengths, np.int64).reshape(-1, 2)
    starts = np.stack([np.arange(len(each)) * 3, np.arange(len(each)) * 11], axis=1).astype(np.int64)
    real, n_short = gathered_write._pwritev, [9]

    def short(fd: int, vectors: int, n: int, offset: int) -> int:
        """Write less than asked, some times."""
        n_short[0] -= 1
        if n_short[0] < 0 or shortest == 1 << 30:
            return int(real(fd, vectors, n, offset))
        (address, n_bytes), *_ = np.frombuffer((ctypes.c_uint64 * (2 * n)).from_address(vectors), np.uint64).reshape(
            -1, 2
        )
        return os.pwrite(fd, ctypes.string_at(int(address), min(int(n_bytes), shortest)), offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathered_write, "_pwritev", short if has_call else None)
        with AtomicFile(path) as file:
            file.write(b"head")
            spans = [Spans(data, starts[:, k], each[:, k]) for k in range(2)]
            assert file.write_interleaved(spans) == int(each.sum())
            file.write(b"tail")
    pieces = [DATA[starts[i, k] : starts[i, k] + each[i, k]] for i in range(len(each)) for k in range(2)]
    assert path.read_bytes() == b"head" + b"".join(pieces) + b"tail"


def test_errors_of_gathered_writes(tmp_path: Path) -> None:
    data = np.zeros(10, np.uint8)
    for start, length in ((0, 11), (-1, 2), (9, 2), (0, -1)):
        with open(tmp_path / "a", "wb") as file, pytest.raises(ValueError, match="outside its array"):
            gathered_write.write_interleaved(file.fileno(), 0, [Spans(data, np.array([start]), np.array([length]))])
    (tmp_path / "a").write_bytes(b"x")
    with open(tmp_path / "a", "rb") as file, pytest.raises(OSError, match="Bad file descriptor"):
        gathered_write.write_interleaved(file.fileno(), 0, [Spans(data, np.array([0]), np.array([10]))])
