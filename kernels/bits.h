/* fp_clzll, fp_ctzll: the number of leading or trailing zero bits of a nonzero value, with every compiler. */
#ifndef FASTPACK_BITS_H
#define FASTPACK_BITS_H

#if defined(_MSC_VER)
#include <intrin.h>
static __inline int fp_clzll(unsigned long long value) {
    unsigned long place;
    _BitScanReverse64(&place, value);
    return 63 - (int)place;
}
static __inline int fp_ctzll(unsigned long long value) {
    unsigned long place;
    _BitScanForward64(&place, value);
    return (int)place;
}
#else
#define fp_ctzll __builtin_ctzll
#define fp_clzll __builtin_clzll
#endif

#endif
