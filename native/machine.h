/* Vectors of doubles, and one compiled form of a function for each kind of machine. */
#ifndef ONEPASS_MACHINE_H
#define ONEPASS_MACHINE_H

#include <stddef.h>
#include <stdlib.h> /* defines which C library this is */

#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && __GNUC__ >= 12
#define MACHINES
#define EVERY_MACHINE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_MACHINE
#endif
#define WITHIN static inline __attribute__((always_inline))

enum { WIDE = 8 }; /* doubles in a vector */
typedef double vector __attribute__((vector_size(8 * WIDE), may_alias));
typedef double loose __attribute__((vector_size(8 * WIDE), aligned(8), may_alias));

/* Numbers below 1e-308 count as zero from here on, until they are as they were: means and weights of
   what is long silent fade to there, and a processor takes a hundred times as long for each. */
static inline unsigned begin_swift(void)
{
#if defined(__x86_64__)
    const unsigned was = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(was | 0x8040);
    return was;
#else
    return 0;
#endif
}

static inline void end_swift(unsigned was)
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

/* Room for parts of so many doubles, in zeros, each from a vector's beginning on and with a vector
   to spare; to be freed. NULL if there is none. */
static inline void *room_for(double **const *parts, const size_t *sizes, int count)
{
    size_t all = WIDE;
    for (int i = 0; i < count; i++)
        all += edge(sizes[i] + 2 * WIDE - 1);
    void *memory = calloc(all, sizeof(double));
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
