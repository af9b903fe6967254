/* Check that Python's json.loads accepts a line: one pass, no recursion, no allocation.
 *
 * Accepted lines are RFC 8259 JSON in strict UTF-8, with nesting and numbers below the limits of json.loads. All other
 * lines are "unsure", including those that json.loads accepts beyond the RFC (NaN, a byte order mark, UTF-16,
 * surrogates).
 */
#ifndef FASTPACK_JSON_CHECK_H
#define FASTPACK_JSON_CHECK_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define FASTPACK_X86 1
#include <immintrin.h>
#else
#define FASTPACK_X86 0
#endif

#define FP_MAX_DEPTH 200  /* json.loads recurses: the interpreter's limit is 1000 frames, some of them in use */
#define FP_MAX_NUMBER 600 /* characters; int() refuses longer numbers from 640 digits on, at the strictest setting */

typedef const uint8_t *fp_bytes;

static int fp_has_avx2(void) {
#if FASTPACK_X86
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi");
#else
    return 0;
#endif
}

/* ---- UTF-8: well-formed by table 3-7 of the Unicode standard (no overlong forms, no surrogates, up to U+10FFFF) */

static int fp_utf8_portable(fp_bytes p, fp_bytes end) {
    while (p < end) {
        uint64_t word;
        if (end - p >= 8 && (memcpy(&word, p, 8), (word & 0x8080808080808080u) == 0)) {
            p += 8;
            continue;
        }
        uint8_t lead = *p++;
        if (lead < 0x80) continue;
        int more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
        if (lead < 0xc2 || lead > 0xf4 || end - p < more) return 0;
        uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        if (*p < low || *p > high) return 0;
        for (int i = 1; i < more; i++)
            if ((p[i] & 0xc0) != 0x80) return 0;
        p += more;
    }
    return 1;
}

#if FASTPACK_X86

#define FP_AVX2 __attribute__((target("avx2,bmi")))

/* Each fault of two adjacent bytes is a bit. Three tables (for both nibbles of the first byte and the high nibble of
 * the second byte) contain the possible faults. A bit that is set in all three is a fault (Keiser and Lemire). */
#define FP_SHORT 0x01      /* a lead byte without a continuation */
#define FP_LONG 0x02       /* ASCII, then a continuation */
#define FP_OVERLONG3 0x04  /* e0 80..9f */
#define FP_LARGE 0x08      /* f4 90..bf, f5..ff 90..bf */
#define FP_SURROGATE 0x10  /* ed a0..bf */
#define FP_OVERLONG2 0x20  /* c0..c1 */
#define FP_OVERLONG4 0x40  /* f0 80..8f, and f5..ff 80..8f */
#define FP_TWO 0x80        /* two continuations: a fault, except in a longer sequence */
#define FP_ANY_LOW (FP_SHORT | FP_LONG | FP_TWO)

FP_AVX2 static inline __m256i fp_table(const uint8_t *sixteen) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)sixteen));
}

static const uint8_t FP_FIRST_HIGH[16] = {
    FP_LONG, FP_LONG, FP_LONG, FP_LONG, FP_LONG, FP_LONG, FP_LONG, FP_LONG,
    FP_TWO, FP_TWO, FP_TWO, FP_TWO,
    FP_SHORT | FP_OVERLONG2, FP_SHORT, FP_SHORT | FP_OVERLONG3 | FP_SURROGATE, FP_SHORT | FP_LARGE | FP_OVERLONG4};
static const uint8_t FP_FIRST_LOW[16] = {
    FP_ANY_LOW | FP_OVERLONG2 | FP_OVERLONG3 | FP_OVERLONG4, FP_ANY_LOW | FP_OVERLONG2, FP_ANY_LOW, FP_ANY_LOW,
    FP_ANY_LOW | FP_LARGE,
#define FP_BEYOND (FP_ANY_LOW | FP_LARGE | FP_OVERLONG4)
    FP_BEYOND, FP_BEYOND, FP_BEYOND, FP_BEYOND, FP_BEYOND, FP_BEYOND, FP_BEYOND, FP_BEYOND,
    FP_BEYOND | FP_SURROGATE, FP_BEYOND, FP_BEYOND};
#define FP_CONTINUATION (FP_LONG | FP_OVERLONG2 | FP_TWO)
static const uint8_t FP_SECOND_HIGH[16] = {
    FP_SHORT, FP_SHORT, FP_SHORT, FP_SHORT, FP_SHORT, FP_SHORT, FP_SHORT, FP_SHORT,
    FP_CONTINUATION | FP_OVERLONG3 | FP_OVERLONG4, FP_CONTINUATION | FP_OVERLONG3 | FP_LARGE,
    FP_CONTINUATION | FP_SURROGATE | FP_LARGE, FP_CONTINUATION | FP_SURROGATE | FP_LARGE,
    FP_SHORT, FP_SHORT, FP_SHORT, FP_SHORT};

/* Return the faults of 32 bytes; `before`: the previous 32 bytes. */
FP_AVX2 static inline __m256i fp_utf8_faults(__m256i now, __m256i before) {
    const __m256i nibble = _mm256_set1_epi8(0x0f);
    __m256i joint = _mm256_permute2x128_si256(before, now, 0x21);
    __m256i back1 = _mm256_alignr_epi8(now, joint, 15);
    __m256i back2 = _mm256_alignr_epi8(now, joint, 14);
    __m256i back3 = _mm256_alignr_epi8(now, joint, 13);
    __m256i high = _mm256_shuffle_epi8(fp_table(FP_FIRST_HIGH), _mm256_and_si256(_mm256_srli_epi16(back1, 4), nibble));
    __m256i low = _mm256_shuffle_epi8(fp_table(FP_FIRST_LOW), _mm256_and_si256(back1, nibble));
    __m256i next = _mm256_shuffle_epi8(fp_table(FP_SECOND_HIGH), _mm256_and_si256(_mm256_srli_epi16(now, 4), nibble));
    __m256i pairs = _mm256_and_si256(_mm256_and_si256(high, low), next);
    /* The top bit is set if a lead byte two or three bytes before needs a continuation here. */
    __m256i third = _mm256_subs_epu8(back2, _mm256_set1_epi8((char)(0xe0 - 0x80)));
    __m256i fourth = _mm256_subs_epu8(back3, _mm256_set1_epi8((char)(0xf0 - 0x80)));
    __m256i asked = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8((char)0x80));
    return _mm256_xor_si256(pairs, asked);
}

FP_AVX2 static int fp_utf8_avx2(fp_bytes p, fp_bytes end) {
    __m256i before = _mm256_setzero_si256(), faults = before;
    while (p < end) {
        /* If `before` is ASCII, no sequence is open: skip ASCII 64 bytes at a time. */
        if (_mm256_movemask_epi8(before) == 0) {
            while (end - p >= 64) {
                __m256i both = _mm256_or_si256(
                    _mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 32)));
                if (_mm256_movemask_epi8(both)) break;
                p += 64;
            }
            before = _mm256_setzero_si256();
        }
        __m256i now;
        if (end - p >= 32) {
            now = _mm256_loadu_si256((const __m256i *)p);
        } else { /* the tail, padded with ASCII, so that an open sequence is a fault */
            uint8_t tail[32] = {0};
            memcpy(tail, p, (size_t)(end - p));
            now = _mm256_loadu_si256((const __m256i *)tail);
        }
        faults = _mm256_or_si256(faults, fp_utf8_faults(now, before));
        before = now;
        p += 32;
    }
    faults = _mm256_or_si256(faults, fp_utf8_faults(_mm256_setzero_si256(), before));
    return _mm256_testz_si256(faults, faults);
}

#endif

static int fp_utf8(fp_bytes p, fp_bytes end, int simd) {
#if FASTPACK_X86
    if (simd) return fp_utf8_avx2(p, end);
#endif
    (void)simd;
    return fp_utf8_portable(p, end);
}

/* ---- the grammar: each function reads at a position and returns the end, or NULL if unsure */

#define FP_HEX4(p) (FP_CLASS[(p)[0]] & FP_CLASS[(p)[1]] & FP_CLASS[(p)[2]] & FP_CLASS[(p)[3]] & 4)

/* Bits: 1: ends plain string content; 2: completes an escape after a backslash; 4: hexadecimal digit. */
static const uint8_t FP_CLASS[256] = {
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    ['"'] = 3, ['\\'] = 3, ['/'] = 2, ['b'] = 6, ['f'] = 6, ['n'] = 2, ['r'] = 2, ['t'] = 2,
    ['0'] = 4, ['1'] = 4, ['2'] = 4, ['3'] = 4, ['4'] = 4, ['5'] = 4, ['6'] = 4, ['7'] = 4, ['8'] = 4, ['9'] = 4,
    ['a'] = 4, ['c'] = 4, ['d'] = 4, ['e'] = 4,
    ['A'] = 4, ['B'] = 4, ['C'] = 4, ['D'] = 4, ['E'] = 4, ['F'] = 4};

/* p: at a backslash. */
static inline fp_bytes fp_escape(fp_bytes p, fp_bytes end) {
    if (end - p < 2) return NULL;
    if (FP_CLASS[p[1]] & 2) return p + 2;
    return p[1] == 'u' && end - p >= 6 && FP_HEX4(p + 2) ? p + 6 : NULL;
}

#if FASTPACK_X86

/* Tables whose common bits, for the low and the high nibble of a byte, mark the bytes that complete an escape. */
static const uint8_t FP_ESCAPED_LOW[16] = {
    ['"' & 15] = 1 | 4 | 8, /* and b, r */
    ['t' & 15] = 8, ['u' & 15] = 8, ['f' & 15] = 4, ['\\' & 15] = 2, ['n' & 15] = 4, ['/' & 15] = 1};
static const uint8_t FP_ESCAPED_HIGH[16] = {[2] = 1, [5] = 2, [6] = 4, [7] = 8};

FP_AVX2 static inline uint64_t fp_equal(__m256i bytes, char wanted) {
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(wanted)));
}

/* Return a mask of the characters after a backslash that begins an escape (Langdale and Lemire: a run of backslashes is
 * added to its odd starts, so that the carry shows the parity of its length). carry: the first character is one; it is
 * set for the next block. */
static inline uint64_t fp_escaped(uint64_t backslashes, uint64_t *carry) {
    uint64_t begins = backslashes & ~*carry;
    uint64_t follows = (begins << 1 | *carry) & UINT64_C(0xffffffff);
    uint64_t odd = begins & UINT64_C(0xaaaaaaaa) & ~follows;
    uint64_t escaped = (UINT64_C(0x55555555) ^ (odd + begins) << 1) & follows;
    *carry = (begins & ~escaped) >> 31;
    return escaped;
}

/* Return whether the characters of `escaped` (a mask of 32) complete an escape. */
FP_AVX2 static inline int fp_escapes_avx2(fp_bytes p, fp_bytes end, __m256i bytes, uint64_t escaped) {
    const __m256i nibble = _mm256_set1_epi8(0x0f);
    __m256i low = _mm256_shuffle_epi8(fp_table(FP_ESCAPED_LOW), _mm256_and_si256(bytes, nibble));
    __m256i high =
        _mm256_shuffle_epi8(fp_table(FP_ESCAPED_HIGH), _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble));
    if (escaped & fp_equal(_mm256_and_si256(low, high), 0)) return 0;
    for (uint64_t left = escaped & fp_equal(bytes, 'u'); left; left &= left - 1) {
        fp_bytes hex = p + _tzcnt_u64(left) + 1;
        if (end - hex < 4 || !FP_HEX4(hex)) return 0;
    }
    return 1;
}

/* Scan a string while 32 bytes can be read before `limit`. Return the position after the closing quote, with *closed
 * set, or the position at which to continue byte by byte. Masks cover all escapes of a block: source code has one every
 * 20 bytes, ASCII-escaped text one every ten: 4.5 and 2.6 GB/s; with a jump for each escape 2.4 and 1.15. */
FP_AVX2 static fp_bytes fp_string_avx2(fp_bytes p, fp_bytes end, fp_bytes limit, int *closed) {
    const __m256i top = _mm256_set1_epi8(0x1f);
    uint64_t carry = 0;
    for (; limit - p >= 32; p += 32) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)p);
        uint64_t backslashes = fp_equal(bytes, '\\'), quotes = fp_equal(bytes, '"'), escaped = 0;
        uint64_t stops = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(bytes, top), bytes));
        if (backslashes | carry) escaped = fp_escaped(backslashes, &carry);
        stops |= quotes & ~escaped;
        if (stops) escaped &= stops ^ (stops - 1); /* up to the first stop */
        if (escaped && !fp_escapes_avx2(p, end, bytes, escaped)) return NULL;
        if (stops) {
            p += _tzcnt_u64(stops);
            if (p >= end || *p != '"') return NULL;
            *closed = 1;
            return p + 1;
        }
    }
    return p - carry;
}

#endif

/* p: after the opening quote. */
static inline fp_bytes fp_string(fp_bytes p, fp_bytes end, fp_bytes limit, int simd) {
#if FASTPACK_X86
    if (simd) {
        int closed = 0;
        p = fp_string_avx2(p, end, limit, &closed);
        if (p == NULL || closed) return p;
    }
#endif
    (void)limit;
    (void)simd;
    for (;;) {
        while (p < end && !(FP_CLASS[*p] & 1)) p++;
        if (p >= end) return NULL;
        if (*p == '"') return p + 1;
        if (*p != '\\' || (p = fp_escape(p, end)) == NULL) return NULL;
    }
}

static inline fp_bytes fp_digits(fp_bytes p, fp_bytes end) {
    fp_bytes first = p;
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p == first ? NULL : p;
}

static fp_bytes fp_number(fp_bytes p, fp_bytes end) {
    fp_bytes first = p;
    if (*p == '-' && ++p == end) return NULL;
    if (*p == '0') p++;
    else if ((p = fp_digits(p, end)) == NULL) return NULL;
    if (p < end && *p == '.' && (p = fp_digits(p + 1, end)) == NULL) return NULL;
    if (p < end && (*p | 0x20) == 'e') {
        if (++p < end && (*p == '+' || *p == '-')) p++;
        if ((p = fp_digits(p, end)) == NULL) return NULL;
    }
    return p - first > FP_MAX_NUMBER ? NULL : p;
}

static inline fp_bytes fp_word(fp_bytes p, fp_bytes end, const char *word, int length) {
    return end - p >= length && memcmp(p, word, (size_t)length) == 0 ? p + length : NULL;
}

static fp_bytes fp_scalar(fp_bytes p, fp_bytes end, fp_bytes limit, int simd) {
    switch (*p) {
    case '"': return fp_string(p + 1, end, limit, simd);
    case 't': return fp_word(p, end, "true", 4);
    case 'f': return fp_word(p, end, "false", 5);
    case 'n': return fp_word(p, end, "null", 4);
    default: return fp_number(p, end);
    }
}

static inline fp_bytes fp_space(fp_bytes p, fp_bytes end) {
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
    return p;
}

/* Read a key and its colon at p. */
static inline fp_bytes fp_key(fp_bytes p, fp_bytes end, fp_bytes limit, int simd) {
    p = fp_space(p, end);
    if (p >= end || *p != '"' || (p = fp_string(p + 1, end, limit, simd)) == NULL) return NULL;
    p = fp_space(p, end);
    return p < end && *p == ':' ? p + 1 : NULL;
}

/* Check one JSON text in [p, end), except its UTF-8; bytes up to `limit` are readable. */
static int fp_json(fp_bytes p, fp_bytes end, fp_bytes limit, int simd) {
    uint8_t closers[FP_MAX_DEPTH];
    int depth = 0;
    for (;;) { /* start of a value */
        p = fp_space(p, end);
        if (p >= end) return 0;
        if (*p == '{' || *p == '[') {
            if (depth == FP_MAX_DEPTH) return 0;
            uint8_t closer = closers[depth++] = *p == '{' ? '}' : ']';
            p = fp_space(p + 1, end);
            if (p < end && *p == closer) {
                p++;
                depth--;
            } else if (closer == ']') {
                continue;
            } else {
                if ((p = fp_key(p, end, limit, simd)) == NULL) return 0;
                continue;
            }
        } else if ((p = fp_scalar(p, end, limit, simd)) == NULL) {
            return 0;
        }
        for (;;) { /* end of a value */
            p = fp_space(p, end);
            if (depth == 0) return p == end;
            if (p >= end) return 0;
            if (*p == closers[depth - 1]) {
                p++;
                depth--;
                continue;
            }
            if (*p++ != ',') return 0;
            if (closers[depth - 1] == '}' && (p = fp_key(p, end, limit, simd)) == NULL) return 0;
            break;
        }
    }
}

static inline int fp_is_inside(int64_t offset, int64_t length, int64_t n) {
    return offset >= 0 && length >= 0 && offset <= n && length <= n - offset;
}

/* Write the k results, 1 (accepted) or 0 (unsure), to `verdict`; rows: k pairs (offset, length) into the n bytes of
 * `data`. Return 0 if a row is outside the data. Both passes check each row, because another thread may change it. */
static int fp_validate_rows(fp_bytes data, int64_t n, const int64_t *rows, int64_t k, uint8_t *verdict, int simd) {
    int64_t low = n, high = 0, total = 0;
    for (int64_t i = 0; i < k; i++) {
        int64_t offset = rows[2 * i], length = rows[2 * i + 1];
        if (!fp_is_inside(offset, length, n)) return 0;
        if (offset < low) low = offset;
        if (offset + length > high) high = offset + length;
        total += length + 1;
    }
    /* Check the UTF-8 of adjacent lines together: for short lines a call costs more than the check. A sequence cannot
     * contain a newline, so all lines together are well-formed if and only if each one is. */
    int all_utf8 = high - low < total && fp_utf8(data + low, data + high, simd);
    for (int64_t i = 0; i < k; i++) {
        int64_t offset = rows[2 * i], length = rows[2 * i + 1];
        if (!fp_is_inside(offset, length, n)) return 0;
        fp_bytes first = data + offset, last = first + length;
        verdict[i] = fp_json(first, last, data + n, simd) && (all_utf8 || fp_utf8(first, last, simd));
    }
    return 1;
}

#endif
