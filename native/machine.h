/* Vectors of doubles, and one compiled form of a function for each kind of machine. */
#ifndef ONEPASS_MACHINE_H
#define ONEPASS_MACHINE_H

#include <stdlib.h> /* tells which C library this is */

#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && __GNUC__ >= 12
#define EVERY_MACHINE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_MACHINE
#endif
#define WITHIN static inline __attribute__((always_inline))

enum { WIDE = 8 }; /* doubles in a vector */
typedef double vector __attribute__((vector_size(8 * WIDE), may_alias));
typedef double loose __attribute__((vector_size(8 * WIDE), aligned(8), may_alias));

#endif
