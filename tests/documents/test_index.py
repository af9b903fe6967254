"""create_raw_index: Modalities' bytes and errors, for every backend and number of threads."""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpack import create_raw_index, kernels, read_raw_index
from fastpack.documents import json_lines
from fastpack.documents.create_index import FaultyLine, create_raw_data_index
from fastpack.documents.json_lines import json_fault
from fastpack.io import AtomicFile, TargetExists, map_bytes

EXPECTED = json.loads((Path(__file__).parents[1] / "golden/modalities/idx_expected.json").read_text())


def index_of(lines: bytes, tmp_path: Path, **options: object) -> list[list[int]]:
    (tmp_path / "x.jsonl").write_bytes(lines)
    create_raw_index(tmp_path / "x.jsonl", if_exists="overwrite", **options)  # type: ignore[arg-type]
    return read_raw_index(tmp_path / "x.idx").tolist()


def rows_of(lines: bytes) -> list[list[int]]:
    rows, offset = [], 0
    parts = lines.split(b"\n")
    for line in parts if parts[-1] else parts[:-1]:
        rows.append([offset, len(line)])
        offset += len(line) + 1
    return rows


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_golden(backend: str, golden: Path, tmp_path: Path, name: str, threads: int) -> None:
    source, target = golden / "modalities/jsonl" / name, tmp_path / "folders/made/x.idx"
    expected = EXPECTED[name]["strict"]
    if expected == "ok":
        result = create_raw_index(source, target, num_threads=threads)
        assert target.read_bytes() == (golden / "modalities/idx" / name).with_suffix(".idx").read_bytes()
        assert (result.path, result.dropped, result.written) == (target, 0, True)
        assert result.entries == len(read_raw_index(target))
        assert result.bytes == source.stat().st_size
        return
    with pytest.raises(ValueError, match="faulty line") as caught:
        create_raw_index(source, target, num_threads=threads)
    assert f"ValueError: {caught.value}".startswith(expected)
    assert isinstance(caught.value.__cause__, ValueError)
    assert list(tmp_path.rglob("*.idx")) == []
    with pytest.warns(UserWarning, match="faulty line"):
        result = create_raw_index(source, target, drop_faulty_entries=True, num_threads=threads)
    assert target.read_bytes() == (golden / "modalities/idx_dropped" / name).with_suffix(".idx").read_bytes()
    assert result.dropped == 1


ACCEPTED = [
    b'{"text":"a"}\r',
    b"1",
    b"null",
    b'"x"',
    b"NaN",
    b"-Infinity",
    b" \t{} \t\r",
    b'{"a":1,"a":2}',
    b'"\\ud800"',
    '"\u2028\u0085"'.encode(),
    b'"\xed\xa0\x80"',
    b"[" * 300 + b"]" * 300,
    b"1" * 4300,
]
FAULTY = [
    b"",
    b"  ",
    b"{oops",
    b'"\xff"',
    b'"\t"',
    b"\x0b",
    b"\x00",
    b'{"a":1}\x00',
    b"{}\r{}",
    b"{} {}",
    b"1" * 4301,
    b"[" * 100_000,
]


def test_accepted_lines(backend: str, tmp_path: Path) -> None:
    lines = b"\xef\xbb\xbf{}\n" + b"\n".join(ACCEPTED)
    assert index_of(lines, tmp_path) == rows_of(lines)
    assert index_of(lines + b"\n", tmp_path) == rows_of(lines)


@pytest.mark.parametrize("line", FAULTY, ids=lambda line: repr(line[:12]))
def test_faulty_lines(backend: str, tmp_path: Path, line: bytes) -> None:
    raw = b"{}\n" + line + b"\n[]\n"
    with pytest.raises(FaultyLine) as caught:
        index_of(raw, tmp_path)
    error = caught.value
    assert (error.path, error.line, error.offset) == (str(tmp_path / "x.jsonl"), 2, 3)
    assert "line 2 at byte 3" in error.__notes__[0]
    if len(line) < 10_000:
        assert str(error) == f'faulty line "{line!r}", skipping...'
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.line) == (str(error), 2)
    with pytest.warns(UserWarning, match="faulty line"):
        assert index_of(raw, tmp_path, drop_faulty_entries=True) == [[0, 2], [4 + len(line), 2]]
    assert index_of(raw, tmp_path, validate=False) == rows_of(raw)


@pytest.mark.parametrize("raw", [b"", b"\n"])
def test_a_file_of_one_empty_line(backend: str, tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(ValueError, match="faulty line \"b''\", skipping"):
        index_of(raw, tmp_path)
    with pytest.warns(UserWarning, match="faulty line \"b''\", skipping"):
        assert index_of(raw, tmp_path, drop_faulty_entries=True) == []
    assert (tmp_path / "x.idx").read_bytes() == b"\x80\x04]\x94."
    assert index_of(raw, tmp_path, validate=False) == rows_of(raw)


PIECES = [b"{}", b"[1]", b'"\xc3\xa9"', b"\n", b"\n", b"\n", b"\r", b" ", b"oops", b'"' + b"a" * 90 + b'"', b"NaN"]


@given(pieces=st.lists(st.sampled_from(PIECES), max_size=60), window=st.integers(1, 64), chunk=st.integers(1, 5))
def test_the_index_does_not_depend_on_windows_and_chunks(
    backend: str, tmp_path: Path, pieces: list[bytes], window: int, chunk: int
) -> None:
    raw = b"".join(pieces)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in (("_WINDOW", window), ("_CHUNK", chunk), ("_DROP_BYTES", 100)):
            patch.setattr(json_lines, name, value)
        assert index_of(raw, tmp_path, validate=False) == rows_of(raw)
        good = [row for row in rows_of(raw) if json_fault(raw[row[0] : sum(row)]) is None]
        for threads in (1, 2):
            assert index_of(raw, tmp_path, drop_faulty_entries=True, num_threads=threads) == good


def test_threads_give_the_same_bytes_and_the_first_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_CHUNK", 50)
    lines = [json.dumps({"id": i, "text": "x" * (i % 300)}).encode() for i in range(20_000)]
    raw = b"\n".join(lines)
    results = []
    for threads in (1, 2, 7):
        index_of(raw, tmp_path, num_threads=threads)
        results.append((tmp_path / "x.idx").read_bytes())
    assert results[0] == results[1] == results[2]
    lines[7_000] = lines[7_001] = lines[19_999] = b"{oops"
    for threads in (1, 7):
        with pytest.raises(FaultyLine) as caught:
            index_of(b"\n".join(lines), tmp_path, num_threads=threads)
        assert caught.value.line == 7_001


def test_warnings_are_capped_and_counted(tmp_path: Path) -> None:
    raw = b"{}\n" + b"oops\n" * 350 + b"[]\n"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert index_of(raw, tmp_path, drop_faulty_entries=True) == [[0, 2], [3 + 350 * 5, 2]]
    texts = [str(warning.message) for warning in caught]
    assert texts[:100] == ["faulty line \"b'oops'\", skipping..."] * 100
    assert len(texts) == 101
    assert "350 faulty lines skipped" in texts[100]


def test_a_huge_faulty_line_is_not_quoted_in_full(tmp_path: Path) -> None:
    with pytest.raises(FaultyLine, match=r"\.\.\. \(1000000 bytes\)") as caught:
        index_of(b"x" * 1_000_000, tmp_path)
    assert len(str(caught.value)) < 100_000


def test_policies(tmp_path: Path) -> None:
    source, target = tmp_path / "x.jsonl", tmp_path / "x.idx"
    source.write_bytes(b"{}\n")
    target.write_bytes(b"old")
    with pytest.raises(ValueError, match=r"exists\. Pass if_exists"):
        create_raw_index(source)
    with pytest.raises(TargetExists):
        create_raw_data_index(source, target)
    assert create_raw_index(source, if_exists="skip").written is False
    assert target.read_bytes() == b"old"
    with pytest.raises(ValueError, match="if_exists: found"):
        create_raw_index(source, if_exists="append")  # type: ignore[arg-type]
    assert create_raw_data_index(source, target, "override").entries == 1
    assert read_raw_index(target).tolist() == [[0, 2]]


def test_source_missing_or_replaced(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Raw data file does not exist"):
        create_raw_index(tmp_path / "none.jsonl")
    source = tmp_path / "x.idx"
    source.write_bytes(b"{}\n")
    os.link(source, tmp_path / "link.idx")
    (tmp_path / "soft.idx").symlink_to(source)
    for target in (None, source, tmp_path / "link.idx", tmp_path / "soft.idx"):
        with pytest.raises(ValueError, match="replace the raw data"):
            create_raw_index(source, target, if_exists="overwrite")
    assert source.read_bytes() == b"{}\n"
    with pytest.raises(ValueError, match="num_threads"):
        create_raw_index(source, tmp_path / "y", num_threads=0)
    assert list(tmp_path.glob(".*")) == []


def test_progress_reaches_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_WINDOW", 10)
    calls: list[tuple[int, int]] = []
    index_of(b"[1, 2]\n" * 5, tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(10, 35), (20, 35), (30, 35), (35, 35)]


@pytest.mark.parametrize("old", [b"old", None])
def test_a_full_disk_keeps_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bytes | None) -> None:
    target = tmp_path / "x.idx"
    if old is not None:
        target.write_bytes(old)

    def fail(self: AtomicFile, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(AtomicFile, "write", fail)
    with pytest.raises(OSError, match="No space left"):
        index_of(b"{}\n" * 100, tmp_path)
    assert (target.read_bytes() if target.exists() else None) == old
    assert list(tmp_path.glob(".*")) == []


KILLED = """
import sys, fastpack
def stop(done, total):
    if done > total // 2:
        print("half", flush=True)
        sys.stdin.readline()
fastpack.create_raw_index(sys.argv[1], progress=stop, if_exists="overwrite")
"""


def test_a_kill_leaves_no_index(tmp_path: Path) -> None:
    source, target = tmp_path / "x.jsonl", tmp_path / "x.idx"
    source.write_bytes((b'{"text": "' + b"a" * 40 + b'"}\n') * 300_000)
    for old in (None, b"old"):
        if old is not None:
            target.write_bytes(old)
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"half\n"
            child.send_signal(signal.SIGKILL)
            child.wait(20)
        assert (target.read_bytes() if target.exists() else None) == old
    assert create_raw_index(source, if_exists="overwrite").entries == 300_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.idx", "x.jsonl"]


MEASURED = """
import resource, sys, fastpack, fastpack.documents.create_index
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fastpack.create_raw_index(sys.argv[1], if_exists="overwrite", validate=sys.argv[2] == "1")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize(
    "line",
    [b'{"text": "' + b"a" * 40 + b'"}\n', b'"' + b"a" * 100_000_000 + b'"\n'],
    ids=["many lines", "one long line"],  # pytest puts the id into the environment, which takes 128 KiB a variable
)
def test_memory_is_bounded(tmp_path: Path, validate: bool, line: bytes) -> None:
    """300 MB of short lines, and 3 lines of 100 MB: mapped pages are dropped."""
    source = tmp_path / "x.jsonl"
    with open(source, "wb") as file:
        block = line * max(1, 1_000_000 // len(line))
        for _ in range(300_000_000 // len(block)):
            file.write(block)
    command = [sys.executable, "-c", MEASURED, str(source), str(int(validate))]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown * 1024 < (250_000_000 if validate and len(line) > 10**6 else 60_000_000)


def test_a_fault_stops_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault ends the run within seconds, without remaining threads."""
    monkeypatch.setattr(json_lines, "_CHUNK", 10)
    raw = b"{oops\n" + b"[1]\n" * 50_000
    started = time.monotonic()
    with pytest.raises(FaultyLine):
        index_of(raw, tmp_path, num_threads=4)
    assert time.monotonic() - started < 20
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fastpack-index")]


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """Nor kept alive by a reference cycle."""
    open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(FaultyLine):
            index_of(b"{oops", tmp_path)
    assert len(os.listdir("/proc/self/fd")) <= open_files


def test_large_offsets(tmp_path: Path) -> None:
    """A sparse file of 5 GiB: offsets beyond 2^32 are right."""
    source = tmp_path / "x.jsonl"
    with open(source, "wb") as file:
        file.truncate(5 << 30)
        file.seek(5 << 30)
        file.write(b"\nab\n")
    index = np.array([[0, 5 << 30], [(5 << 30) + 1, 2]])
    data = map_bytes(source)[(5 << 30) - 10 :]
    found = np.empty((4, 2), np.int64)
    assert kernels.index_lines(data, (5 << 30) - 10, 0, found)[0] == 2
    assert found[:2].tolist() == index.tolist()
