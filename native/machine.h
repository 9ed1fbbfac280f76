/* Vectors of doubles, and compilation of a function for several kinds of processors. */
#ifndef ONEPASS_MACHINE_H
#define ONEPASS_MACHINE_H

#include <stddef.h>
#include <stdlib.h> /* defines the macro of the C library */

#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && __GNUC__ >= 12
#define MACHINES
#define EVERY_MACHINE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_MACHINE
#endif
#define WITHIN static inline __attribute__((always_inline))

enum { WIDE = 8 }; /* doubles in a vector */
typedef double vector __attribute__((vector_size(8 * WIDE), may_alias));
typedef long long integers __attribute__((vector_size(8 * WIDE)));
typedef double loose __attribute__((vector_size(8 * WIDE), aligned(8), may_alias));

/* Treat subnormal numbers, below 1e-308, as zero until `restore_mode` restores the former mode.
   Means and weights of features that are unexcited for long decay to such numbers, which are a
   hundred times slower. */
static inline unsigned flush_subnormals(void)
{
#if defined(__x86_64__)
    const unsigned was = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(was | 0x8040);
    return was;
#else
    return 0;
#endif
}

static inline void restore_mode(unsigned was)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(was);
#else
    (void)was;
#endif
}

/* The start of the vector that contains number j. */
WITHIN ptrdiff_t edge(ptrdiff_t j)
{
    return j & ~(ptrdiff_t)(WIDE - 1);
}

/* Allocate parts of these sizes, in doubles, filled with zeros if `zeros`. Each part is aligned to
   a vector and followed by a spare vector. Returns the memory, to be freed by the caller; NULL on
   failure. */
static inline void *room_for(double **const *parts, const size_t *sizes, int count, int zeros)
{
    size_t all = WIDE;
    for (int i = 0; i < count; i++)
        all += edge(sizes[i] + 2 * WIDE - 1);
    void *memory = zeros ? calloc(all, sizeof(double)) : malloc(all * sizeof(double));
    if (!memory)
        return NULL;
    const size_t off = (size_t)memory % sizeof(vector);
    double *at = (double *)memory + (off ? (sizeof(vector) - off) / sizeof(double) : 0);
    for (int i = 0; i < count; i++) {
        *parts[i] = at;
        at += edge(sizes[i] + 2 * WIDE - 1);
    }
    return memory;
}

#endif
