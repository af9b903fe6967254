/* FP_PREFETCH: load a cache line that is read (write: 0) or written (1) soon; nothing with other compilers. */
#ifndef FASTPACK_PREFETCH_H
#define FASTPACK_PREFETCH_H

#if defined(__GNUC__)
#define FP_PREFETCH(address, write) __builtin_prefetch((address), (write), 2)
#else
#define FP_PREFETCH(address, write) ((void) (address))
#endif

#endif
