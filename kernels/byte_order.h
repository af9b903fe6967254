/* le32toh, htole64, htobe16 and similar functions, which glibc and musl declare in <endian.h>, on every system. */
#ifndef FASTPACK_BYTE_ORDER_H
#define FASTPACK_BYTE_ORDER_H

#if defined(__linux__) || defined(__CYGWIN__)
#include <endian.h>
#elif defined(__FreeBSD__) || defined(__NetBSD__) || defined(__OpenBSD__)
#include <sys/endian.h>
#elif defined(__APPLE__)
#include <libkern/OSByteOrder.h>
#define le32toh(x) OSSwapLittleToHostInt32(x)
#define le64toh(x) OSSwapLittleToHostInt64(x)
#define htole64(x) OSSwapHostToLittleInt64(x)
#define htobe16(x) OSSwapHostToBigInt16(x)
#define htobe32(x) OSSwapHostToBigInt32(x)
#define htobe64(x) OSSwapHostToBigInt64(x)
#elif defined(_WIN32) /* little-endian wherever Python runs */
#include <stdlib.h>
#define le32toh(x) (x)
#define le64toh(x) (x)
#define htole64(x) (x)
#define htobe16(x) _byteswap_ushort(x)
#define htobe32(x) _byteswap_ulong(x)
#define htobe64(x) _byteswap_uint64(x)
#else
#error "no byte order functions are known for this system"
#endif

#endif
