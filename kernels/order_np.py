"""Orders: torch.randperm, random.shuffle, NumPy's legacy shuffle and a computed permutation. The specification.

The generator is MT19937, seeded and drawn as torch's CPU generator. Its state is uint32 [625]: 624 words and the
position of the next one.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt

State = npt.NDArray[np.uint32]
ROUNDS = 4  # of the Feistel network, and number of keys
LEAST_BITS = 8  # of its domain: in a smaller one, four rounds reach too few permutations
PASS_STREAM = 1 << 20  # between the streams of two passes of a source
GOLDEN_RATIO = 0x9E3779B97F4A7C15  # the step of SplitMix64


def seed_generator(state: State, seed: int) -> None:
    """Initialise `state`, uint32 [625], as `torch.Generator.manual_seed(seed)` does.

    seed in [0, 2^32): torch uses the low 32 bits.
    """
    start: Any = np.random.RandomState(seed).get_state(legacy=False)
    state[:624], state[624] = start["state"]["key"], start["state"]["pos"]


def shuffle(state: State, wide: bool, out: npt.NDArray[Any]) -> None:
    """Permute `out`, int32 or int64 [n], in place as torch.randperm permutes 0..n-1; `state` advances.

    wide: use the second of torch's two algorithms, as torch does for n >= 214,748,364 (UINT32_MAX // 20).
    """
    n = len(out)
    generator = np.random.MT19937()
    held: Any = {"bit_generator": "MT19937", "state": {"key": state[:624].copy(), "pos": int(state[624])}}
    generator.state = held
    targets: npt.NDArray[Any]
    if wide:
        draws = np.asarray(generator.random_raw(2 * n), np.uint64).reshape(n, 2)
        targets = (draws[:, 0] << np.uint64(32) | draws[:, 1]) % np.arange(1, n + 1, dtype=np.uint64)
    else:
        places = np.arange(max(n - 1, 0), dtype=np.uint64)
        targets = places + np.asarray(generator.random_raw(len(places)), np.uint64) % (np.uint64(n) - places)
    for place, target in enumerate(targets.tolist()):
        out[place], out[target] = out[target], out[place]
    held = generator.state
    state[:624], state[624] = held["state"]["key"], held["state"]["pos"]


def stdlib_shuffle(state: State, out: npt.NDArray[Any]) -> None:
    """Permute `out`, int32 or int64 [n], in place as `random.Random.shuffle` permutes a list; n < 2^32.

    state: as `random.Random.getstate()[1]`; it advances accordingly.
    """
    generator, values = random.Random(), out.tolist()
    generator.setstate((3, tuple(state.tolist()), None))
    generator.shuffle(values)
    out[:] = values
    state[:] = generator.getstate()[1]


def legacy_shuffle(state: State, out: npt.NDArray[Any]) -> None:
    """Permute `out`, int32 or int64 [n], in place as `numpy.random.RandomState.shuffle` does; n < 2^32.

    NumPy shuffles uint32 as the int32 view of the same memory. `state` advances accordingly.
    """
    generator = np.random.RandomState()
    generator.set_state(("MT19937", state[:624], int(state[624]), 0, 0.0))
    generator.shuffle(out)
    held: Any = generator.get_state()
    state[:624], state[624] = held[1], held[2]


def feistel(n: int, keys: npt.NDArray[np.uint64], places: npt.NDArray[np.int64], out: npt.NDArray[Any]) -> None:
    """Write out[k] = P(places[k]) for a permutation P of 0..n-1 that is computed, not stored.

    P is a Feistel network of 4 rounds over the smallest power of two 2^b >= n (b >= 8), whose halves of b // 2 and b -
    b // 2 bits are swapped every round. A result >= n is passed through again (cycle walking), so that P is a bijection
    for every n. keys: uint64 [4]. places: int64 [k]. out: int32 or int64 [k], possibly `places` itself. n <= 2^62.
    Raises ValueError for a place outside [0, n), for which the walk might not end.
    """
    bits = max(LEAST_BITS, (n - 1).bit_length())
    short = bits // 2
    for k, value in enumerate(places.tolist()):
        if not 0 <= value < n:
            raise ValueError("a place outside [0, n)")
        value = _rounds(value, keys.tolist(), short, bits - short)
        while value >= n:
            value = _rounds(value, keys.tolist(), short, bits - short)
        out[k] = value


def draw_samples(
    sources: npt.NDArray[np.int64],
    draws: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    state: int | np.uint64,
    mixed: bool,
    out: npt.NDArray[Any],
) -> None:
    """Write the sample that is draw draws[k] of source sources[k].

    Draw d of a source of s samples is sample d % s of its pass d // s, after the source's offset; mixed: of a `feistel`
    permutation of each pass, with the keys of stream source + 1 + pass * 2^20 after `state` (SplitMix64). sources,
    draws: int64 [k]. sizes, offsets: int64 [sources]. out: int32 or int64 [k]. Raises ValueError for a source out of
    range or without samples, and for a draw below 0.
    """
    for k, (source, draw) in enumerate(zip(sources.tolist(), draws.tolist(), strict=True)):
        if not 0 <= source < len(sizes) or draw < 0 or sizes[source] <= 0:
            raise ValueError("a source out of range or without samples, or a draw below 0")
        number, place = divmod(draw, int(sizes[source]))
        sample = np.array([place])
        if mixed:
            start = _splitmix(int(state) ^ (source + 1 + number * PASS_STREAM))
            keys = np.array([_splitmix(start + i * GOLDEN_RATIO) for i in range(ROUNDS)], np.uint64)
            feistel(int(sizes[source]), keys, sample, sample)
        out[k] = offsets[source] + sample[0]


def _rounds(value: int, keys: list[int], short: int, long: int) -> int:
    left_bits, right_bits = short, long
    left, right = value >> right_bits, value & ((1 << right_bits) - 1)
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & ((1 << left_bits) - 1))
        left_bits, right_bits = right_bits, left_bits
    return left << right_bits | right


def _mix(value: int) -> int:
    """Apply the finaliser of SplitMix64."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    value = (value ^ value >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return value ^ value >> 31


def _splitmix(state: int) -> int:
    return _mix((state + GOLDEN_RATIO) & 0xFFFFFFFFFFFFFFFF)
