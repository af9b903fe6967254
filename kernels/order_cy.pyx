"""The `order` kernels in Cython."""

from libc.stdint cimport uint64_t

cdef extern from "prefetch.h" nogil:
    void FP_PREFETCH(const void *address, int write) noexcept

include "dtypes.pxi"

cdef enum:
    WORDS = 624
    MIDDLE = 397
    ROUNDS = 4
    LEAST_BITS = 8
    PASS_STREAM = 1 << 20
    BLOCK = 512  # swaps whose numbers are drawn at once
    # Swaps between the prefetch of a target and its use: 10^7 elements take 0.10 to 0.13 s, or 0.29 to 0.33 s if each
    # draw, division and swap is done by itself. Drawing takes 0.05 s of it, the rest is memory access.
    AHEAD = 32


cdef void refill(uint32_t *words) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint32_t y
    for i in range(WORDS - MIDDLE):
        y = (words[i] & 0x80000000u) | (words[i + 1] & 0x7fffffffu)
        words[i] = words[i + MIDDLE] ^ (y >> 1) ^ ((0 - (y & 1)) & 0x9908b0dfu)
    for i in range(WORDS - MIDDLE, WORDS - 1):
        y = (words[i] & 0x80000000u) | (words[i + 1] & 0x7fffffffu)
        words[i] = words[i + MIDDLE - WORDS] ^ (y >> 1) ^ ((0 - (y & 1)) & 0x9908b0dfu)
    y = (words[WORDS - 1] & 0x80000000u) | (words[0] & 0x7fffffffu)
    words[WORDS - 1] = words[MIDDLE - 1] ^ (y >> 1) ^ ((0 - (y & 1)) & 0x9908b0dfu)


cdef void draw(uint32_t *state, uint32_t *out, Py_ssize_t n) noexcept nogil:
    """Write the generator's next n numbers."""
    cdef Py_ssize_t i, taken, done = 0
    cdef Py_ssize_t used = state[WORDS]  # read once, so that another thread's write cannot lead out of the words
    cdef uint32_t y
    cdef const uint32_t *words
    while done < n:
        if used >= WORDS:
            refill(state)
            used = 0
        words = state + used
        taken = min(n - done, <Py_ssize_t> WORDS - used)
        for i in range(taken):
            y = words[i]
            y ^= y >> 11
            y ^= (y << 7) & 0x9d2c5680u
            y ^= (y << 15) & 0xefc60000u
            out[done + i] = y ^ (y >> 18)
        used += taken
        done += taken
    state[WORDS] = <uint32_t> used


def seed_generator(uint32_t[::1] state not None, uint32_t seed):
    """Initialise `state`, uint32 [625], as `torch.Generator.manual_seed(seed)` does.

    See `fastpack.kernels.order_np.seed_generator`.
    """
    cdef Py_ssize_t i
    if state.shape[0] != WORDS + 1:
        raise ValueError(f"state has {state.shape[0]} words, {WORDS + 1} are needed")
    state[0] = seed
    for i in range(1, WORDS):
        state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + <uint32_t> i
    state[WORDS] = WORDS


cdef void swap_all(wide_t *out, Py_ssize_t first, const int64_t *targets, Py_ssize_t n) noexcept nogil:
    """Swap out[first + i] with out[targets[i]], in order; `targets` has AHEAD more valid entries."""
    cdef Py_ssize_t i
    cdef wide_t value
    for i in range(n):
        FP_PREFETCH(out + targets[i + AHEAD], 1)
        value = out[first + i]
        out[first + i] = out[targets[i]]
        out[targets[i]] = value


cdef void aim(const uint32_t *draws, Py_ssize_t first, Py_ssize_t n, Py_ssize_t size, int64_t *targets) noexcept nogil:
    """targets[i] = place + draws[i] % (size - place) with place = first + i; size < 2^31, size - place >= 2.

    Doubles are used because their division is vectorised. The result is exact: the quotient of integers below 2^32
    differs from the next integer by a relative 2^-32 or more, and rounding changes it by a relative 2^-53.
    """
    cdef Py_ssize_t i
    cdef int32_t left = <int32_t> (size - first)
    cdef double dividend, divisor
    for i in range(n):
        dividend = <double> (<int32_t> (draws[i] ^ 0x80000000u)) + 2147483648.0
        divisor = <double> (left - <int32_t> i)
        targets[i] = first + i + <int32_t> (dividend - <double> (<int32_t> (dividend / divisor)) * divisor)


cdef void aim_wide(const uint32_t *draws, Py_ssize_t first, Py_ssize_t n, int64_t *targets) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        targets[i] = <int64_t> (
            (((<uint64_t> draws[2 * i]) << 32) | draws[2 * i + 1]) % <uint64_t> (first + i + 1)
        )


cdef void permute(uint32_t *state, bint wide, wide_t *out, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i, n, first = 0, swaps = size if wide else size - 1
    cdef uint32_t draws[2 * BLOCK]
    cdef int64_t targets[BLOCK + AHEAD]
    for i in range(BLOCK + AHEAD):
        targets[i] = 0
    while first < swaps:
        n = min(<Py_ssize_t> BLOCK, swaps - first)
        draw(state, draws, 2 * n if wide else n)
        if wide:
            aim_wide(draws, first, n, targets)
        else:
            aim(draws, first, n, size, targets)
        for i in range(min(n, <Py_ssize_t> AHEAD)):
            FP_PREFETCH(out + targets[i], 1)
        swap_all(out, first, targets, n)
        first += n


def shuffle(uint32_t[::1] state not None, bint wide, out not None):
    """Permute `out`, int32 or int64 [n], in place as torch.randperm permutes 0..n-1; `state` advances.

    See `fastpack.kernels.order_np.shuffle`.
    """
    cdef int32_t[::1] out_32
    cdef int64_t[::1] out_64
    if state.shape[0] != WORDS + 1:
        raise ValueError(f"state has {state.shape[0]} words, {WORDS + 1} are needed")
    if not wide and len(out) >= 1 << 31:
        raise ValueError(f"{len(out)} elements: from 2^31 on only the wide algorithm holds")
    if len(out) == 0:
        return
    if type_code_of(out) == INT32:
        out_32 = out
        with nogil:
            permute(&state[0], wide, &out_32[0], out_32.shape[0])
    else:
        out_64 = out
        with nogil:
            permute(&state[0], wide, &out_64[0], out_64.shape[0])


cdef Py_ssize_t aim_down(const uint32_t *draws, Py_ssize_t n, Py_ssize_t place, int64_t *targets) noexcept nogil:
    """Write the targets of places `place`, `place` - 1, ...; return how many the n draws provide.

    A draw is cut to the bits of place + 1, and rejected if it is above `place`. Without a branch, as half may be.
    """
    cdef Py_ssize_t i, accepted = 0
    cdef int64_t value, left = place
    cdef int bits = 32
    for i in range(n):
        while not ((left + 1) >> (bits - 1)):
            bits -= 1
        value = <int64_t> (draws[i] >> (32 - bits))
        targets[accepted] = value
        accepted += value <= left
        left -= value <= left
    return accepted


cdef Py_ssize_t aim_legacy(const uint32_t *draws, Py_ssize_t n, Py_ssize_t place, int64_t *targets) noexcept nogil:
    """Write targets as `aim_down`; a draw is cut to the low bits of the place instead."""
    cdef Py_ssize_t i, accepted = 0
    cdef int64_t value, left = place
    cdef uint32_t mask = 0xffffffffu
    for i in range(n):
        while left <= mask >> 1:
            mask >>= 1
        value = draws[i] & mask
        targets[accepted] = value
        accepted += value <= left
        left -= value <= left
    return accepted


cdef void permute_down(uint32_t *state, bint legacy, wide_t *out, Py_ssize_t size) noexcept nogil:
    """Swap the last element with a random one before it or itself, then the last but one, ...; size < 2^32."""
    cdef Py_ssize_t i, n, place = size - 1
    cdef uint32_t draws[BLOCK]
    cdef int64_t targets[BLOCK + AHEAD]
    cdef wide_t value
    for i in range(BLOCK + AHEAD):
        targets[i] = 0
    while place > 0:
        n = min(<Py_ssize_t> BLOCK, place)  # every swap needs at least one draw, so none is left over
        draw(state, draws, n)
        n = aim_legacy(draws, n, place, targets) if legacy else aim_down(draws, n, place, targets)
        for i in range(min(n, <Py_ssize_t> AHEAD)):
            FP_PREFETCH(out + targets[i], 1)
        for i in range(n):
            FP_PREFETCH(out + targets[i + AHEAD], 1)
            value = out[place - i]
            out[place - i] = out[targets[i]]
            out[targets[i]] = value
        place -= n


cdef void shuffle_down(uint32_t[::1] state, bint legacy, out) except *:
    """Permute `out`, int32 or int64 [n], from the last element on."""
    cdef int32_t[::1] out_32
    cdef int64_t[::1] out_64
    if state.shape[0] != WORDS + 1:
        raise ValueError(f"state has {state.shape[0]} words, {WORDS + 1} are needed")
    if len(out) >= 1 << 32:
        raise ValueError(f"{len(out)} elements: from 2^32 on two numbers are drawn for each")
    if len(out) == 0:
        return
    if type_code_of(out) == INT32:
        out_32 = out
        with nogil:
            permute_down(&state[0], legacy, &out_32[0], out_32.shape[0])
    else:
        out_64 = out
        with nogil:
            permute_down(&state[0], legacy, &out_64[0], out_64.shape[0])


def stdlib_shuffle(uint32_t[::1] state not None, out not None):
    """Permute `out`, int32 or int64 [n], in place as `random.Random.shuffle` permutes a list; n < 2^32.

    See `fastpack.kernels.order_np.stdlib_shuffle`.
    """
    shuffle_down(state, False, out)


def legacy_shuffle(uint32_t[::1] state not None, out not None):
    """Permute `out`, int32 or int64 [n], in place as `numpy.random.RandomState.shuffle` does; n < 2^32.

    See `fastpack.kernels.order_np.legacy_shuffle`.
    """
    shuffle_down(state, True, out)


cdef inline uint64_t mix(uint64_t value) noexcept nogil:
    value = (value ^ (value >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9u
    value = (value ^ (value >> 27)) * <uint64_t> 0x94D049BB133111EBu
    return value ^ (value >> 31)


cdef inline uint64_t rounds(uint64_t value, const uint64_t *keys, int short_bits, int long_bits) noexcept nogil:
    cdef int i
    cdef uint64_t low_mask = ((<uint64_t> 1) << short_bits) - 1, high_mask = ((<uint64_t> 1) << long_bits) - 1
    cdef uint64_t left = value >> long_bits, right = value & high_mask, following
    for i in range(ROUNDS // 2):  # two rounds at a time, after which the halves are in their places again
        following = left ^ (mix(right ^ keys[2 * i]) & low_mask)
        left = right
        right = following
        following = left ^ (mix(right ^ keys[2 * i + 1]) & high_mask)
        left = right
        right = following
    return (left << long_bits) | right


cdef bint walk(
    uint64_t n, const uint64_t *keys, int bits, const int64_t *places, wide_t *out, Py_ssize_t n_out
) noexcept nogil:
    """Walk a block of places at once: one pass for all, then repeated passes for those outside [0, n).

    Walking one by one mispredicts a branch for every second index if n is just above a power of two: 45 ns per index
    instead of 32 (17 if n is a power of two).
    """
    cdef Py_ssize_t k, pending, walking, start = 0, stop
    cdef int short_bits = bits // 2, long_bits = bits - bits // 2
    cdef uint64_t place
    cdef uint64_t own[ROUNDS]  # if the keys changed during a walk, it might never return to [0, n)
    cdef uint64_t values[BLOCK]
    cdef int32_t who[BLOCK]
    for k in range(ROUNDS):
        own[k] = keys[k]
    while start < n_out:
        stop = min(<Py_ssize_t> BLOCK, n_out - start)
        pending = 0
        for k in range(stop):
            place = <uint64_t> places[start + k]
            if place >= n:
                return False
            values[k] = rounds(place, own, short_bits, long_bits)
            who[pending] = <int32_t> k
            pending += values[k] >= n
        while pending:
            walking = pending
            pending = 0
            for k in range(walking):
                values[who[k]] = rounds(values[who[k]], own, short_bits, long_bits)
                who[pending] = who[k]
                pending += values[who[k]] >= n
        for k in range(stop):
            out[start + k] = <wide_t> values[k]
        start += stop
    return True


def feistel(int64_t n, const uint64_t[::1] keys not None, const int64_t[::1] places not None, out not None):
    """Write out[k] = P(places[k]) for a permutation P of 0..n-1 that is computed, not stored.

    See `fastpack.kernels.order_np.feistel`.
    """
    cdef int32_t[::1] out_32
    cdef int64_t[::1] out_64
    cdef int bits = LEAST_BITS
    cdef bint good
    if keys.shape[0] != ROUNDS:
        raise ValueError(f"{keys.shape[0]} keys, {ROUNDS} are needed")
    if places.shape[0] != len(out):
        raise ValueError(f"{places.shape[0]} places, {len(out)} are needed")
    if places.shape[0] == 0:
        return
    if n < 0:
        raise ValueError("a place outside [0, n)")
    while bits < 63 and (n - 1) >> bits:
        bits += 1
    if type_code_of(out) == INT32:
        out_32 = out
        with nogil:
            good = walk(<uint64_t> n, &keys[0], bits, &places[0], &out_32[0], places.shape[0])
    else:
        out_64 = out
        with nogil:
            good = walk(<uint64_t> n, &keys[0], bits, &places[0], &out_64[0], places.shape[0])
    if not good:
        raise ValueError("a place outside [0, n)")


cdef bint draw_into(
    const int64_t *sources,
    const int64_t *draws,
    const int64_t *sizes,
    const int64_t *offsets,
    Py_ssize_t n_sources,
    uint64_t state,
    bint mixed,
    wide_t *out,
    Py_ssize_t n,
) noexcept nogil:
    cdef Py_ssize_t i, k
    cdef int64_t source, draw, size
    cdef uint64_t place, start, keys[ROUNDS]
    cdef uint64_t step = <uint64_t> 0x9E3779B97F4A7C15u
    cdef int bits
    for k in range(n):
        source = sources[k]
        draw = draws[k]
        if source < 0 or source >= n_sources or draw < 0:
            return False
        size = sizes[source]
        if size <= 0:
            return False
        place = <uint64_t> (draw % size)
        if mixed:
            start = mix((state ^ <uint64_t> (source + 1 + (draw // size) * PASS_STREAM)) + step)
            for i in range(ROUNDS):
                keys[i] = mix(start + <uint64_t> (i + 1) * step)
            bits = LEAST_BITS
            while bits < 63 and (size - 1) >> bits:
                bits += 1
            place = rounds(place, keys, bits // 2, bits - bits // 2)
            while place >= <uint64_t> size:
                place = rounds(place, keys, bits // 2, bits - bits // 2)
        out[k] = <wide_t> (offsets[source] + <int64_t> place)
    return True


def draw_samples(
    const int64_t[::1] sources not None,
    const int64_t[::1] draws not None,
    const int64_t[::1] sizes not None,
    const int64_t[::1] offsets not None,
    uint64_t state,
    bint mixed,
    out not None,
):
    """Write the sample that is draw draws[k] of source sources[k].

    See `fastpack.kernels.order_np.draw_samples`.
    """
    cdef int32_t[::1] out_32
    cdef int64_t[::1] out_64
    cdef Py_ssize_t n = sources.shape[0], n_sources = sizes.shape[0]
    cdef bint good
    if draws.shape[0] != n or len(out) != n or offsets.shape[0] != n_sources:
        raise ValueError("sources, draws and out, and sizes and offsets, must have one length")
    if n == 0:
        return
    if n_sources == 0:
        raise ValueError("a source out of range or without samples, or a draw below 0")
    if type_code_of(out) == INT32:
        out_32 = out
        with nogil:
            good = draw_into(
                &sources[0], &draws[0], &sizes[0], &offsets[0], n_sources, state, mixed, &out_32[0], n
            )
    else:
        out_64 = out
        with nogil:
            good = draw_into(
                &sources[0], &draws[0], &sizes[0], &offsets[0], n_sources, state, mixed, &out_64[0], n
            )
    if not good:
        raise ValueError("a source out of range or without samples, or a draw below 0")
