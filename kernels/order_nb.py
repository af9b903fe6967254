"""The `order` kernels in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastpack.kernels.jit import jit, prefetcher

WORDS, MIDDLE, ROUNDS, LEAST_BITS = 624, 397, 4, 8
PASS_STREAM, GOLDEN_RATIO = np.uint64(1 << 20), np.uint64(0x9E3779B97F4A7C15)
BLOCK = 512  # swaps whose numbers are drawn at once
AHEAD = 32  # swaps between the prefetch of a target and its use; see order_cy for the effect
_prefetch = prefetcher(for_writing=True)


@jit
def _refill(words):
    for i in range(WORDS):
        y = (words[i] & np.uint32(0x80000000)) | (words[(i + 1) % WORDS] & np.uint32(0x7FFFFFFF))
        value = words[(i + MIDDLE) % WORDS] ^ (y >> np.uint32(1))
        words[i] = value ^ np.uint32(0x9908B0DF) if y & np.uint32(1) else value


@jit
def _draw(state, out):
    """Fill `out` with the generator's next numbers."""
    done = np.int64(0)
    start = np.int64(state[WORDS])  # read once, so that another thread's write cannot lead out of the words
    while done < len(out):
        if start >= WORDS:
            _refill(state)
            start = np.int64(0)
        taken = np.int64(len(out) - done)
        if taken > WORDS - start:
            taken = WORDS - start
        words, part = state[start : start + taken], out[done : done + taken]
        for i in range(taken):
            y = words[i]
            y ^= y >> np.uint32(11)
            y ^= (y << np.uint32(7)) & np.uint32(0x9D2C5680)
            y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
            part[i] = y ^ (y >> np.uint32(18))
        start += taken
        done += taken
    state[WORDS] = start


@jit
def _check_state(state):
    if len(state) != WORDS + 1:
        raise ValueError("the state must have 625 words")


@jit
def seed_generator(state, seed):
    """Initialise `state`, uint32 [625], as `torch.Generator.manual_seed(seed)` does.

    See `fastpack.kernels.order_np.seed_generator`.
    """
    _check_state(state)
    state[0] = seed
    for i in range(1, WORDS):
        previous = np.uint64(state[i - 1] ^ (state[i - 1] >> np.uint32(30)))
        state[i] = np.uint32((np.uint64(1812433253) * previous + np.uint64(i)) & np.uint64(0xFFFFFFFF))
    state[WORDS] = WORDS


@jit
def _aim(draws, first, size, targets):
    """targets[i] = place + draws[i] % (size - place) with place = first + i; doubles are exact here, and faster."""
    for i in range(len(draws)):
        dividend, divisor = np.float64(draws[i]), np.float64(size - first - i)
        quotient = np.float64(np.int32(dividend / divisor))
        targets[i] = first + i + np.int32(dividend - quotient * divisor)


@jit
def _aim_wide(draws, first, targets):
    for i in range(len(draws) // 2):
        pair = (np.uint64(draws[2 * i]) << np.uint64(32)) | np.uint64(draws[2 * i + 1])
        targets[i] = np.int64(pair % np.uint64(first + i + 1))


@jit
def shuffle(state, wide, out):
    """Permute `out`, int32 or int64 [n], in place as torch.randperm permutes 0..n-1; `state` advances.

    See `fastpack.kernels.order_np.shuffle`.
    """
    _check_state(state)
    size = len(out)
    if not wide and size >= 1 << 31:
        raise ValueError("from 2^31 elements on only the wide algorithm holds")
    swaps = size if wide else size - 1
    draws, targets = np.empty(2 * BLOCK, np.uint32), np.zeros(BLOCK + AHEAD, np.int64)
    for first in range(0, swaps, BLOCK):
        n = min(BLOCK, swaps - first)
        if wide:
            _draw(state, draws[: 2 * n])
            _aim_wide(draws[: 2 * n], first, targets)
        else:
            _draw(state, draws[:n])
            _aim(draws[:n], first, size, targets)
        for i in range(min(n, AHEAD)):
            _prefetch(out, targets[i])
        for i in range(n):
            _prefetch(out, targets[i + AHEAD])
            value = out[first + i]
            out[first + i] = out[targets[i]]
            out[targets[i]] = value


@jit
def _aim_down(draws, place, targets):
    """Write the targets of places `place`, `place` - 1, ...; return how many the draws provide. See order_cy."""
    accepted, left, bits = np.int64(0), np.int64(place), np.int64(32)
    for i in range(len(draws)):
        while (left + 1) >> (bits - 1) == 0:
            bits -= 1
        value = np.int64(draws[i] >> np.uint32(32 - bits))
        targets[accepted] = value
        good = np.int64(value <= left)
        accepted += good
        left -= good
    return accepted


@jit
def _aim_legacy(draws, place, targets):
    """Write targets as `_aim_down`; a draw is cut to the low bits of the place instead."""
    accepted, left, mask = np.int64(0), np.int64(place), np.int64(0xFFFFFFFF)
    for draw in draws:
        while left <= mask >> 1:
            mask >>= 1
        target = np.int64(draw) & mask
        targets[accepted] = target
        good = np.int64(target <= left)
        accepted += good
        left -= good
    return accepted


@jit
def _shuffle_down(state, legacy, out):
    """Swap the last element with a random one before it or itself, then the last but one, ..."""
    _check_state(state)
    if len(out) >= 1 << 32:
        raise ValueError("from 2^32 elements on two numbers are drawn for each")
    draws, targets = np.empty(BLOCK, np.uint32), np.zeros(BLOCK + AHEAD, np.int64)
    place = len(out) - 1
    while place > 0:
        n = min(BLOCK, place)
        _draw(state, draws[:n])
        n = _aim_legacy(draws[:n], place, targets) if legacy else _aim_down(draws[:n], place, targets)
        for i in range(min(n, AHEAD)):
            _prefetch(out, targets[i])
        for i in range(n):
            _prefetch(out, targets[i + AHEAD])
            value = out[place - i]
            out[place - i] = out[targets[i]]
            out[targets[i]] = value
        place -= n


@jit
def stdlib_shuffle(state, out):
    """Permute `out`, int32 or int64 [n], in place as `random.Random.shuffle` permutes a list; n < 2^32.

    See `fastpack.kernels.order_np.stdlib_shuffle`.
    """
    _shuffle_down(state, False, out)


@jit
def legacy_shuffle(state, out):
    """Permute `out`, int32 or int64 [n], in place as `numpy.random.RandomState.shuffle` does; n < 2^32.

    See `fastpack.kernels.order_np.legacy_shuffle`.
    """
    _shuffle_down(state, True, out)


@jit
def _mix(value):
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@jit
def _rounds(value, keys, short, long):
    one = np.uint64(1)
    low_mask, high_mask = (one << short) - one, (one << long) - one
    left, right = value >> long, value & high_mask
    for i in range(0, ROUNDS, 2):  # two rounds at a time, after which the halves are in their places again
        left, right = right, left ^ (_mix(right ^ keys[i]) & low_mask)
        left, right = right, left ^ (_mix(right ^ keys[i + 1]) & high_mask)
    return (left << long) | right


@jit
def feistel(n, keys, places, out):
    """Write out[k] = P(places[k]) for a permutation P of 0..n-1 that is computed, not stored.

    See `fastpack.kernels.order_np.feistel`.
    """
    if len(keys) != ROUNDS or len(places) != len(out):
        raise ValueError("4 keys and as many places as out has are needed")
    if n < 0:
        raise ValueError("a place outside [0, n)")
    keys = keys.copy()  # if the keys changed during a walk, it might never return to [0, n)
    bits, bound = LEAST_BITS, np.uint64(n)
    while bits < 63 and (n - 1) >> bits:
        bits += 1
    short, long = np.uint64(bits // 2), np.uint64(bits - bits // 2)
    values, who = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.int32)
    for start in range(0, len(out), BLOCK):  # by blocks, which avoids a mispredicted branch per index
        stop, pending = min(BLOCK, len(out) - start), np.int64(0)
        for k in range(stop):
            place = np.uint64(places[start + k])
            if place >= bound:
                raise ValueError("a place outside [0, n)")
            values[k] = _rounds(place, keys, short, long)
            who[pending] = k
            pending += np.int64(values[k] >= bound)
        while pending:
            walking, pending = pending, np.int64(0)
            for k in range(walking):
                values[who[k]] = _rounds(values[who[k]], keys, short, long)
                who[pending] = who[k]
                pending += np.int64(values[who[k]] >= bound)
        for k in range(stop):
            out[start + k] = values[k]


@jit
def _pass_keys(state, source, number, keys):
    """Write the keys of a pass of a source."""
    start = state ^ (np.uint64(source + 1) + np.uint64(number) * PASS_STREAM)
    start = _mix(start + GOLDEN_RATIO)
    for i in range(ROUNDS):
        keys[i] = _mix(start + np.uint64(i + 1) * GOLDEN_RATIO)


@jit
def draw_samples(sources, draws, sizes, offsets, state, mixed, out):
    """Write the sample that is draw draws[k] of source sources[k].

    See `fastpack.kernels.order_np.draw_samples`.
    """
    if not len(sources) == len(draws) == len(out) or len(sizes) != len(offsets):
        raise ValueError("sources, draws and out, and sizes and offsets, must have one length")
    keys = np.empty(ROUNDS, np.uint64)
    for k in range(len(out)):
        source, draw = sources[k], draws[k]
        if source < 0 or source >= len(sizes) or draw < 0 or sizes[source] <= 0:
            raise ValueError("a source out of range or without samples, or a draw below 0")
        size, bits = sizes[source], LEAST_BITS
        place = np.uint64(draw % size)
        if mixed:
            _pass_keys(state, source, draw // size, keys)
            while bits < 63 and (size - 1) >> bits:
                bits += 1
            short, long = np.uint64(bits // 2), np.uint64(bits - bits // 2)
            place = _rounds(place, keys, short, long)
            while place >= np.uint64(size):
                place = _rounds(place, keys, short, long)
        out[k] = offsets[source] + np.int64(place)


def compile_all(_token_dtypes: Sequence[str], _out_dtypes: Sequence[str]) -> None:
    """Compile for both index dtypes; the arguments do not matter here."""
    state, keys = np.empty(WORDS + 1, np.uint32), np.zeros(ROUNDS, np.uint64)
    seed_generator(state, 0)
    for dtype in (np.int32, np.int64):
        shuffle(state, False, np.zeros(2, dtype))
        stdlib_shuffle(state, np.zeros(2, dtype))
        legacy_shuffle(state, np.zeros(2, dtype))
        feistel(2, keys, np.arange(2), np.empty(2, dtype))
        one = np.ones(1, np.int64)
        draw_samples(one - 1, one, one, one, np.uint64(0), True, np.empty(1, dtype))
