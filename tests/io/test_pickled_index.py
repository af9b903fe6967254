"""Pickled indices in files: golden files, byte equality with pickle, and validation of the entries."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.errors import FormatError
from fastpack.io import pickled_index

GOLDEN_INDICES = ["idx/*.idx", "idx_dropped/*.idx", "legacy/v0.2.0/*.idx"]


def decode(data: bytes, **options: bool) -> list[tuple[int, int]]:
    rows = pickled_index.decode(np.frombuffer(data, np.uint8), "x.idx", 100, **options)
    return [tuple(row) for row in rows.tolist()]


def encode_in_chunks(rows: np.ndarray, cuts: list[int]) -> bytes:
    pieces: list[bytes] = []
    encoder = pickled_index.IndexEncoder(lambda piece: pieces.append(bytes(piece)))
    for chunk in np.split(rows, sorted(cut % (len(rows) + 1) for cut in cuts)):
        encoder.append(chunk)
    assert encoder.n_rows == len(rows)
    encoder.close()
    encoder.close()
    data = b"".join(pieces)
    assert encoder.n_bytes == len(data)
    return data


def test_golden_indices(backend: str, golden: Path) -> None:
    paths = [path for pattern in GOLDEN_INDICES for path in sorted((golden / "modalities").glob(pattern))]
    assert len(paths) == 17
    for path in paths:
        data = path.read_bytes()
        rows = pickled_index.decode(np.fromfile(path, np.uint8), path, allow_trailing=False)
        assert rows.dtype == np.int64
        assert [tuple(row) for row in rows.tolist()] == pickle.loads(data), path.name
        assert pickled_index.encode(rows) == data, path.name


def numbers_of_every_width(n_rows: int, seed: int) -> np.ndarray:
    """Return numbers near the powers of two at which the encoding changes, and others of random width."""
    rng = np.random.default_rng(seed)
    edges = np.array([2**bits for bits in (7, 8, 15, 16, 31, 32, 39, 40, 47, 48, 55, 56, 62)], np.int64)
    near = rng.choice(edges, (n_rows, 2)) + rng.integers(-1, 2, (n_rows, 2))
    near *= rng.choice([1, 1, 1, -1], (n_rows, 2))
    between = rng.integers(0, 2**63 - 1, (n_rows, 2)) >> rng.integers(0, 63, (n_rows, 2))
    rows = np.where(rng.random((n_rows, 2)) < 0.5, near, between)
    rows[rng.random((n_rows, 2)) < 0.01] = 2**63 - 1
    rows[rng.random((n_rows, 2)) < 0.01] = -(2**63)
    return rows


SIZES = [0, 1, 2, 3, 254, 255, 256, 257, 999, 1000, 1001, 1999, 2000, 2001, 2999, 3000, 3001, 20_000]
LARGE_SIZES = [65_535, 65_536, 65_537, 100_000]


def pickled(rows: np.ndarray) -> bytes:
    return pickle.dumps([tuple(row) for row in rows.tolist()], protocol=4)


@pytest.mark.parametrize("n_rows", SIZES)
def test_encodes_like_pickle(backend: str, n_rows: int) -> None:
    for rows in (
        numbers_of_every_width(n_rows, n_rows),
        np.stack([np.arange(n_rows) * 1700, np.full(n_rows, 1699)], 1),
    ):
        assert encode_in_chunks(rows, [0, 1, 999, n_rows // 2, n_rows // 2]) == pickled(rows)


@pytest.mark.parametrize("n_rows", LARGE_SIZES)
def test_encodes_many_rows_like_pickle(n_rows: int) -> None:
    rows = numbers_of_every_width(n_rows, n_rows)
    assert encode_in_chunks(rows, [70_000]) == pickled(rows)


def test_frames_end_at_every_position_in_a_row(backend: str) -> None:
    """Wider numbers at the start shift the row at the 65536th byte of the frame by one or two bytes."""
    rows = np.full((9000, 2), 2**40)
    for n_shift in range(24):
        rows[:n_shift, 1] = 300
        rows[n_shift : 2 * n_shift, 0] = 5
        rows[2 * n_shift :, 1] = 2**33 if n_shift % 2 else 17
        assert pickled_index.encode(rows) == pickled(rows)


@pytest.mark.parametrize("bits", [8, 16, 31, 39, 47, 55])
@pytest.mark.parametrize("mean", [60, 300, 60_000])
def test_offsets_that_outgrow_a_width(backend: str, bits: int, mean: int) -> None:
    """Ascending offsets, which rarely change their width, with lengths of random width."""
    lengths = np.random.default_rng(bits).lognormal(np.log(mean), 1.0, 9000).astype(np.int64)
    ends = np.cumsum(lengths)
    rows = np.stack([ends - lengths + max(0, 2**bits - ends[3000]), lengths], axis=1)
    data = pickled_index.encode(rows)
    assert data == pickled(rows)
    np.testing.assert_array_equal(kernels.decode_index(np.frombuffer(data, np.uint8))[0], rows)


@settings(max_examples=60)
@given(st.integers(0, 9000), st.integers(0, 2**32), st.lists(st.integers(0, 2**20), max_size=4))
def test_encodes_any_chunks_like_pickle(n_rows: int, seed: int, cuts: list[int]) -> None:
    rows = numbers_of_every_width(n_rows, seed)
    data = encode_in_chunks(rows, cuts)
    assert data == pickled(rows)
    decoded, n_bytes, _ = kernels.decode_index(np.frombuffer(data, np.uint8))
    np.testing.assert_array_equal(decoded, rows)
    assert n_bytes == len(data)


def test_empty_and_single() -> None:
    assert encode_in_chunks(np.empty((0, 2), np.int64), []).hex() == "80045d942e"
    single = "8004" + "950b00000000000000" + "5d94" + "4b00" + "4d2c01" + "8694" + "61" + "2e"
    assert encode_in_chunks(np.array([[0, 300]]), []).hex() == single


def test_encoder_accepts_other_dtypes_and_rejects_other_shapes(backend: str) -> None:
    rows = np.arange(40, dtype=np.int32).reshape(10, 4)[:, ::2]
    assert pickled_index.encode(rows) == pickled(rows)
    encoder = pickled_index.IndexEncoder([].append)
    for wrong in (np.zeros(4, np.int64), np.zeros((2, 3), np.int64)):
        with pytest.raises(ValueError, match="expected \\(k, 2\\)"):
            encoder.append(wrong)
    encoder.close()
    with pytest.raises(ValueError, match="closed"):
        encoder.append(np.zeros((1, 2), np.int64))


def test_error_offsets_count_from_the_start_of_the_file(backend: str) -> None:
    data = pickle.dumps([(1, 2), (3, "x")], 4)
    with pytest.raises(FormatError) as caught:
        decode(data)
    error = caught.value
    assert error.path == "x.idx"
    assert error.offset == 100 + data.index(b"\x8c")
    assert error.found == "opcode 8c (SHORT_BINUNICODE)"
    assert "create the index again" in str(error.expected)


@pytest.mark.parametrize(
    ("row", "good"),
    [
        ((-1, 5), False),
        ((5, -1), False),
        ((2**63 - 1, 1), False),
        ((2**62, 2**62), False),
        ((2**63 - 1, 0), True),
        ((2**62, 2**62 - 1), True),
        ((0, 2**63 - 1), True),
        ((0, 0), True),
    ],
)
def test_invalid_entries_are_rejected(backend: str, row: tuple[int, int], good: bool) -> None:
    rows = [(0, 5), (5, 7), row, (-9, -9) if not good else (1, 1)]
    if good:
        assert decode(pickle.dumps(rows, 4)) == rows
        return
    with pytest.raises(FormatError, match=r"index entry 2 = ") as caught:
        decode(pickle.dumps(rows, 4))
    assert caught.value.offset == 100
    assert str(row) in str(caught.value)


def test_bytes_after_the_index(backend: str) -> None:
    data = pickle.dumps([(1, 2)], 4)
    with pytest.warns(UserWarning, match=f"3 bytes after the index, at byte {100 + len(data)}"):
        assert decode(data + b"abc") == [(1, 2)]
    with pytest.raises(FormatError, match="3 bytes after the index") as caught:
        decode(data + b"abc", allow_trailing=False)
    assert caught.value.offset == 100 + len(data)


MEMORY_SCRIPT = """
import resource, sys
import numpy as np
from fastpack import kernels
from fastpack.io import pickled_index

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

n_rows = 3_000_000
kernels.use("cython")
path = sys.argv[1]
with open(path, "wb") as file:
    encoder = pickled_index.IndexEncoder(file.write)
    before = peak_mib()
    for start in range(0, n_rows, 10_000):
        offsets = np.arange(start, start + 10_000) * 2000
        encoder.append(np.stack([offsets, np.full(10_000, 1999)], axis=1))
    encoder.close()
encoding = peak_mib() - before
before = peak_mib()
rows = pickled_index.decode(np.memmap(path, np.uint8, "r"), path)
assert len(rows) == n_rows
print(encoding, (peak_mib() - before) / (rows.nbytes / 2**20))
"""


def test_memory(tmp_path: Path) -> None:
    """Encoding needs constant memory; decoding at most twice the size of the rows, including the mapped file."""
    result = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT, str(tmp_path / "x.idx")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "FASTPACK_KERNELS": "cython"},
    )
    encoding_mib, decoding_ratio = map(float, result.stdout.split())
    assert encoding_mib < 4
    assert decoding_ratio <= 2
