/* Find the newlines of a byte buffer, 64 bytes at a time.
 *
 * There are two implementations: AVX2, selected at run time because wheels are built for plain x86-64, and a portable
 * one with memchr. AVX-512 is not faster: memory is the limit. The AVX2 loop converts each block of 64 bytes to a bit
 * mask, the masks of 4 KiB to a list of positions, and the list to rows. Two simple loops are faster than one combined
 * loop (lines of 48 bytes in cache: 18 instead of 10 GB/s). Software prefetching helps because the hardware prefetcher
 * stops at page boundaries (10.9 instead of 8.2 GB/s).
 */
#ifndef FASTPACK_LINES_SIMD_H
#define FASTPACK_LINES_SIMD_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define FASTPACK_X86 1
#include <immintrin.h>
#else
#define FASTPACK_X86 0
#endif

#define FP_SPAN 4096  /* bytes per list of newline positions, so that the list stays in the L1 cache */
#define FP_AHEAD 4096 /* prefetch distance in bytes */

typedef struct {
    int64_t base;       /* file position of the buffer's first byte */
    int64_t line_start; /* file position of the start of the current line */
    int64_t *rows;      /* out: pairs (line start, length) */
    int64_t n_rows;     /* pairs written */
    int64_t capacity;   /* pairs that fit into `rows` */
} fp_lines;

static int64_t fp_lines_portable(const uint8_t *data, int64_t i, int64_t n, fp_lines *lines) {
    while (i < n && lines->n_rows < lines->capacity) {
        const uint8_t *hit = (const uint8_t *)memchr(data + i, '\n', (size_t)(n - i));
        if (hit == NULL) return n;
        i = hit - data;
        int64_t *row = lines->rows + 2 * lines->n_rows++;
        row[0] = lines->line_start;
        row[1] = lines->base + i - lines->line_start;
        lines->line_start = lines->base + ++i;
    }
    return i;
}

static int64_t fp_count_portable(const uint8_t *data, int64_t i, int64_t n) {
    int64_t count = 0;
    for (; i < n; i++) count += data[i] == '\n';
    return count;
}

#if FASTPACK_X86

#define FP_AVX2 __attribute__((target("avx2,bmi,popcnt")))

FP_AVX2 static inline uint64_t fp_mask(const uint8_t *data) {
    const __m256i newline = _mm256_set1_epi8('\n');
    __m256i low = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)data), newline);
    __m256i high = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(data + 32)), newline);
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

/* Append the positions of the mask's bits to `list`. The first two are stored unconditionally: with lines of 30 to
 * 100 bytes most blocks have one or two newlines, and a loop over the bits would often be mispredicted. */
#define FP_LIST(mask, at)                                              \
    {                                                                  \
        uint64_t bits = (mask);                                        \
        int64_t count = (int64_t)_mm_popcnt_u64(bits);                 \
        list[0] = (uint32_t)(at) + (uint32_t)_tzcnt_u64(bits);         \
        bits = _blsr_u64(bits);                                        \
        list[1] = (uint32_t)(at) + (uint32_t)_tzcnt_u64(bits);         \
        bits = _blsr_u64(bits);                                        \
        for (uint32_t *rest = list + 2; bits; bits = _blsr_u64(bits))  \
            *rest++ = (uint32_t)(at) + (uint32_t)_tzcnt_u64(bits);     \
        list += count;                                                 \
    }

/* Append the rows of the newlines at `found` (positions relative to `at`); return 0 if they do not fit. */
static inline int fp_add_rows(fp_lines *lines, const uint32_t *found, int64_t count, int64_t at) {
    if (lines->capacity - lines->n_rows < count) return 0;
    int64_t *row = lines->rows + 2 * lines->n_rows;
    int64_t line_start = lines->line_start;
    for (int64_t i = 0; i < count; i++) {
        int64_t newline = at + found[i];
        row[2 * i] = line_start;
        row[2 * i + 1] = newline - line_start;
        line_start = newline + 1;
    }
    lines->line_start = line_start;
    lines->n_rows += count;
    return 1;
}

/* Index spans of at most FP_SPAN bytes, in steps of 256, while their rows fit; then one newline at a time. */
FP_AVX2 static int64_t fp_lines_avx2(const uint8_t *data, int64_t n, fp_lines *lines) {
    uint32_t found[FP_SPAN + 64];
    int64_t at = 0;
    while (n - at >= 256) {
        int64_t span = n - at < FP_SPAN ? (n - at) & -256 : FP_SPAN;
        uint32_t *list = found;
        for (int64_t i = 0; i < span; i += 256) {
            const uint8_t *block = data + at + i;
            for (int k = 0; k < 256; k += 64) __builtin_prefetch(block + FP_AHEAD + k);
            uint64_t a = fp_mask(block), b = fp_mask(block + 64), c = fp_mask(block + 128), d = fp_mask(block + 192);
            if (a | b | c | d) {
                FP_LIST(a, i)
                FP_LIST(b, i + 64)
                FP_LIST(c, i + 128)
                FP_LIST(d, i + 192)
            }
        }
        if (!fp_add_rows(lines, found, list - found, lines->base + at)) break;
        at += span;
    }
    return fp_lines_portable(data, at, n, lines);
}

FP_AVX2 static int64_t fp_count_avx2(const uint8_t *data, int64_t n) {
    int64_t i = 0, count = 0;
    for (; i + 64 <= n; i += 64) count += (int64_t)_mm_popcnt_u64(fp_mask(data + i));
    return count + fp_count_portable(data, i, n);
}

#endif

static int fp_has_avx2(void) {
#if FASTPACK_X86
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("popcnt");
#else
    return 0;
#endif
}

/* Return the number of consumed bytes of `data`: n or, if `rows` is full, an end between the last stored newline and
 * the next one. */
static int64_t fp_index_lines(const uint8_t *data, int64_t n, fp_lines *lines, int simd) {
#if FASTPACK_X86
    if (simd) return fp_lines_avx2(data, n, lines);
#endif
    (void)simd;
    return fp_lines_portable(data, 0, n, lines);
}

static int64_t fp_count_newlines(const uint8_t *data, int64_t n, int simd) {
#if FASTPACK_X86
    if (simd) return fp_count_avx2(data, n);
#endif
    (void)simd;
    return fp_count_portable(data, 0, n);
}

#endif
