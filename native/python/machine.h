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

enum { SUMS = 4 }; /* independent partial sums, for instruction-level parallelism */

static const double LATER[2 * WIDE] = {[WIDE] = 1, 1, 1, 1, 1, 1, 1, 1};

#define at(numbers) (*(const loose *)(numbers))

/* w . x; the numbers after the last whole vector are read by a vector that overlaps it. */
WITHIN double product(const double *w, const double *x, ptrdiff_t d)
{
    if (d < WIDE) {
        double all = 0.0;
        for (ptrdiff_t j = 0; j < d; j++)
            all += w[j] * x[j];
        return all;
    }
    vector sum[SUMS] = {{0.0}};
    ptrdiff_t j = 0;
    for (; j + SUMS * WIDE <= d; j += SUMS * WIDE)
#pragma GCC unroll 4
        for (int i = 0; i < SUMS; i++)
            sum[i] += at(w + j + i * WIDE) * at(x + j + i * WIDE);
    for (; j + WIDE <= d; j += WIDE)
        sum[0] += at(w + j) * at(x + j);
    if (j < d)
        sum[1] += at(LATER + (d - j)) * at(w + d - WIDE) * at(x + d - WIDE);
    const vector v = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

#undef at

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
