"""Epoch orders on every backend: torch's permutations by their checksums, and the computed permutation."""

from __future__ import annotations

import hashlib
import importlib
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpack import kernels
from fastpack.datasets.permutations import TorchGenerator, feistel_keys, feistel_state
from fastpack.kernels import order_np


def torch_checksums(golden: Path) -> dict[tuple[int, int], str]:
    """Return (n, seed) -> SHA-256 of torch.randperm(n) as little-endian int64."""
    stored = json.loads((golden / "kempnerforge" / "distributed_sampler.json").read_text())
    pairs = stored["randperm"]["sha256_le_i64"].items()
    return {tuple(int(item.split("=")[1]) for item in key.split(",")): sha for key, sha in pairs}


def checksum(values: np.ndarray) -> str:
    digest = hashlib.sha256()
    for start in range(0, len(values), 1 << 20):
        digest.update(values[start : start + (1 << 20)].astype("<i8"))
    return digest.hexdigest()


def seeded(seed: int) -> np.ndarray:
    state = np.empty(625, np.uint32)
    kernels.seed_generator(state, seed)
    return state


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_permutations_equal_those_of_torch(backend: str, golden: Path, dtype: str) -> None:
    largest = 200_000 if backend == "numpy" else 10**7
    checked = 0
    for (n, seed), sha in torch_checksums(golden).items():
        if n <= largest and (n < 10**7 or seed == 42):
            values = np.arange(n, dtype=dtype)
            kernels.shuffle(seeded(seed & 0xFFFFFFFF), False, values)
            assert checksum(values) == sha, (n, seed)
            checked += 1
    assert checked >= 12


@pytest.mark.long
def test_permutations_around_the_change_of_algorithm(golden: Path) -> None:
    large = {key: sha for key, sha in torch_checksums(golden).items() if key[0] > 10**8}
    assert {n for n, _ in large} == {214_748_363, 214_748_364, 214_748_365}
    for (n, seed), sha in large.items():
        values = TorchGenerator(seed).permutation(n)
        assert values.dtype == np.int32
        assert checksum(values) == sha, (n, seed)
        del values


@settings(max_examples=50)
@given(
    n=st.one_of(st.integers(0, 40), st.sampled_from([511, 512, 513, 623, 624, 625, 1025, 3000])),
    wide=st.booleans(),
    dtype=st.sampled_from(["int32", "int64"]),
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(0, 700), max_size=4),
)
def test_backends_draw_equal_numbers_and_leave_equal_states(
    backend: str, n: int, wide: bool, dtype: str, seed: int, lengths: list[int]
) -> None:
    expected_state, state = np.empty(625, np.uint32), seeded(seed)
    order_np.seed_generator(expected_state, seed)
    assert np.array_equal(state, expected_state)
    for length in [*lengths, n]:  # each call continues with the state of the generator
        expected, found = np.arange(length, dtype=dtype), np.arange(length, dtype=dtype)
        order_np.shuffle(expected_state, wide, expected)
        kernels.shuffle(state, wide, found)
        assert np.array_equal(found, expected)
        ours, theirs = TorchGenerator(0), TorchGenerator(0)  # positions 0 and 624 are the same stream
        ours._state, theirs._state = state.copy(), expected_state.copy()
        assert np.array_equal(ours.permutation(50), theirs.permutation(50))


def naive_shuffle(draws: list[int], n: int, wide: bool) -> list[int]:
    """Shuffle with torch's two loops, exactly as they are described."""
    values, draw = list(range(n)), iter(draws)
    if not wide:
        for i in range(n - 1):
            z = next(draw) % (n - i)
            values[i], values[i + z] = values[i + z], values[i]
    else:
        for i in range(n):
            z = ((next(draw) << 32) | next(draw)) % (i + 1)
            values[i] = i
            values[i] = values[z]
            values[z] = i
    return values


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 17, 1000])
def test_both_algorithms_match_their_description(backend: str, n: int, wide: bool) -> None:
    numbers = np.random.MT19937()
    numbers.state = {"bit_generator": "MT19937", "state": {"key": seeded(77)[:624], "pos": 624}}
    expected = naive_shuffle(numbers.random_raw(2 * n + 1).tolist(), n, wide)
    found = np.arange(n)
    kernels.shuffle(seeded(77), wide, found)
    assert found.tolist() == expected


def test_shuffled_values_are_the_values_at_the_permutation() -> None:
    values = np.random.default_rng(5).integers(0, 1000, 5000).astype(np.int32)
    expected = values[TorchGenerator(9).permutation(5000)]
    assert np.array_equal(TorchGenerator(9).shuffle(values), expected)


@pytest.mark.parametrize("dividend", [0, 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_remainders_computed_with_doubles_are_exact(dividend: int) -> None:
    """Worst cases of a floating-point quotient: multiples of the divisor, and the numbers just below them."""
    rng = np.random.default_rng(dividend)
    for divisor in [2, 3, 5, 65537, 2**28 - 1, *rng.integers(2, 214_748_364, 2000).tolist()]:
        for number in (dividend, dividend // divisor * divisor, max(0, dividend // divisor * divisor - 1)):
            quotient = int(np.float64(number) / np.float64(divisor))
            assert number - quotient * divisor == number % divisor


def permuted(n: int, keys: np.ndarray, places: np.ndarray | None = None, dtype: str = "int64") -> np.ndarray:
    places = np.arange(n) if places is None else places
    out = np.empty(len(places), dtype)
    kernels.feistel(n, keys, places, out)
    return out


def is_permutation(values: np.ndarray) -> bool:
    seen = np.zeros(len(values), bool)
    seen[values] = True
    return bool(seen.all())


@pytest.mark.parametrize("compiled", ["cy", "nb"])
def test_every_length_gives_a_permutation(compiled: str) -> None:
    if compiled == "nb":
        pytest.importorskip("numba")
    kernel = importlib.import_module(f"fastpack.kernels.order_{compiled}")
    around = [2**b + d for b in range(11, 21) for d in (-1, 0, 1)]
    for n in [*range(1, 2001), *around]:
        out = np.empty(n, np.int32)
        kernel.feistel(n, feistel_keys(n, 3), np.arange(n), out)
        assert is_permutation(out), n


@settings(max_examples=40)
@given(
    n=st.integers(1, 5000), seed=st.integers(-(2**70), 2**70), data=st.data(), dtype=st.sampled_from(["int32", "int64"])
)
def test_a_single_position_equals_that_in_the_sequence(
    backend: str, n: int, seed: int, data: st.DataObject, dtype: str
) -> None:
    keys = feistel_keys(seed, 1)
    whole = np.empty(n, np.int64)
    order_np.feistel(n, keys, np.arange(n), whole)
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=20)), np.int64)
    assert np.array_equal(permuted(n, keys, places, dtype), whole[places])
    shared = places.copy()
    kernels.feistel(n, keys, shared, shared)
    assert np.array_equal(shared, whole[places])


def test_a_trillion_positions(backend: str) -> None:
    n, count = 10**12, 2000 if backend == "numpy" else 200_000
    places = np.unique(np.random.default_rng(1).integers(0, n, count))
    values = permuted(n, feistel_keys(1, 2), places)
    assert values.min() >= 0
    assert values.max() < n
    assert len(np.unique(values)) == len(places)
    assert abs(values.mean() / n - 0.5) < 0.02


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def limit(cells: int) -> float:
    """Return the limit that chi-square with cells - 1 degrees of freedom exceeds once in 30,000 cases (4 sigma)."""
    return cells - 1 + 4 * (2 * (cells - 1)) ** 0.5


def pair_counts(n: int, n_keys: int, permute: Callable[[int], np.ndarray]) -> np.ndarray:
    """Count each pair of values at the positions (first, second), over many keys."""
    counts = np.zeros((n, n))
    for seed in range(n_keys):
        first, second = permute(seed)
        counts[first, second] += 1
    return counts[~np.eye(n, dtype=bool)]


@pytest.mark.parametrize(("n", "places"), [(3, (0, 1)), (7, (0, 1)), (8, (3, 7)), (16, (0, 8)), (17, (15, 16))])
def test_pairs_of_positions_are_uniform_over_keys(n: int, places: tuple[int, int]) -> None:
    where = np.array(places)
    counts = pair_counts(n, 100 * n * n, lambda seed: permuted(n, feistel_keys(seed, 0), where))
    assert chi_square(counts) < limit(counts.size)


@pytest.mark.parametrize("n", [10_000, 65_536, 65_537, 100_003])
def test_one_permutation_separates_adjacent_positions(n: int) -> None:
    values = permuted(n, feistel_keys(n, 7))
    cells = np.histogram2d(np.arange(n), values, bins=16)[0]
    assert chi_square(cells) < limit(cells.size)
    steps = np.histogram(np.diff(values) % n, bins=64, range=(0, n))[0]
    assert chi_square(steps) < limit(steps.size)


def test_the_order_of_version_1_is_unchanged(backend: str) -> None:
    assert [hex(int(key)) for key in feistel_keys(42, 3)] == KEYS_42_3
    assert permuted(10, feistel_keys(42, 3)).tolist() == TEN
    assert permuted(300, feistel_keys(-1, 0, 2))[:10].tolist() == THREE_HUNDRED
    assert permuted(10**12, feistel_keys(0, 0), np.arange(4) * 10**11).tolist() == TRILLION


def test_invalid_arguments_are_rejected(backend: str) -> None:
    for place in (-1, 10, 255, 256, 2**40):
        with pytest.raises(ValueError, match="outside"):
            permuted(10, feistel_keys(0, 0), np.array([3, place]))
    if backend == "cython":
        with pytest.raises(ValueError, match="625 are needed"):
            kernels.shuffle(np.zeros(624, np.uint32), False, np.arange(3))
        with pytest.raises(ValueError, match="4 are needed"):
            kernels.feistel(3, np.zeros(3, np.uint64), np.arange(3), np.arange(3))
        with pytest.raises(ValueError, match="2 are needed"):
            kernels.feistel(3, np.zeros(4, np.uint64), np.arange(3), np.arange(2))
    permuted(0, feistel_keys(0, 0))


KEYS_42_3 = ["0x6bb523ea0c71a239", "0x243d70faec8e0897", "0x9f98d90679882a76", "0xbb8150319f790349"]
TEN = [0, 4, 3, 1, 2, 8, 7, 5, 9, 6]
THREE_HUNDRED = [109, 222, 230, 166, 282, 77, 161, 4, 297, 254]
TRILLION = [695171271902, 382129778750, 512986528993, 42226268574]


@settings(max_examples=60)
@given(
    n=st.integers(0, 3000), seed=st.one_of(st.integers(), st.text(), st.floats(allow_nan=False)), used=st.integers(0, 9)
)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_stdlib_shuffle_equals_that_of_the_standard_library(
    backend: str, dtype: str, n: int, seed: int | str | float, used: int
) -> None:
    """The order and the final state of the generator are equal, from any start position in its words."""
    generator = random.Random(seed)
    for _ in range(used):
        generator.getrandbits(32)
    state = np.array(generator.getstate()[1], np.uint32)
    values, expected = np.arange(n, dtype=dtype), list(range(n))
    kernels.stdlib_shuffle(state, values)
    generator.shuffle(expected)
    assert values.tolist() == expected
    assert state.tolist() == list(generator.getstate()[1])


@pytest.mark.parametrize("n", [2**16 - 1, 2**16, 2**16 + 1, 300_000])
def test_stdlib_shuffle_over_many_blocks(backend: str, n: int) -> None:
    state = np.array(random.Random(n).getstate()[1], np.uint32)
    values, expected = np.arange(n, dtype=np.int32), list(range(n))
    kernels.stdlib_shuffle(state, values)
    random.Random(n).shuffle(expected)
    assert values.tolist() == expected


def test_stdlib_shuffle_in_cython_checks_its_state() -> None:
    with pytest.raises(ValueError, match="3 words, 625 are needed"):
        importlib.import_module("fastpack.kernels.order_cy").stdlib_shuffle(np.zeros(3, np.uint32), np.arange(4))


@settings(max_examples=50)
@given(
    draws=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2**50)), max_size=20),
    sizes=st.lists(st.integers(1, 2**40), min_size=3, max_size=3),
    seed=st.integers(0, 2**64 - 1),
    mixed=st.booleans(),
)
def test_draws_are_permuted_in_each_pass(
    backend: str, draws: list[tuple[int, int]], sizes: list[int], seed: int, mixed: bool
) -> None:
    table = np.array(draws, np.int64).reshape(-1, 2)
    columns = [np.ascontiguousarray(column) for column in table.T]
    offsets, out = np.cumsum([5, *sizes[:-1]]), np.empty(len(draws), np.int64)
    kernels.draw_samples(*columns, np.array(sizes), offsets, np.uint64(feistel_state(seed, 0)), mixed, out)
    for (source, draw), sample in zip(draws, out.tolist(), strict=True):
        number, place = divmod(draw, sizes[source])
        if mixed:
            keys = feistel_keys(seed, 0, source + 1 + (number << 20))
            place = permuted(sizes[source], keys, np.array([place]))[0]
        assert sample == offsets[source] + place


@pytest.mark.parametrize(("source", "draw", "size"), [(-1, 0, 1), (1, 0, 1), (0, -1, 1), (0, 0, 0)])
def test_draws_out_of_range_are_an_error(backend: str, source: int, draw: int, size: int) -> None:
    one = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="out of range or without samples, or a draw below 0"):
        kernels.draw_samples(one + source, one + draw, one + size, one, np.uint64(1), True, one.copy())
