/* Rotations for vectors of the width of the machine.
 *
 * For rows i = 1, 2, ... and a column j, (1) and (2) of rows.c have a solution by running sums:
 *
 *     D_i = D_0 + sum_l<=i q_l a_l^2,   y_i = x_i - a_i u,   S_i = sum_l<i q_l a_l y_l
 *     x_i <- y_i - a_i S_i / D_i-1,     u <- u + S / D                                        (6)
 *
 * where x_i and u are the numbers of the rows and of [U theta]_j in a later column, and S and D
 * include all rows. For sharp rows, which have much more information than the past, x replaces y in
 * S, a_i D_0 / D_i-1 replaces a_i in y_i, and u <- D_0 / D u + S / D.
 *
 * A panel of columns is rotated by (6) in units of k LANES rows: lane i of vector t contains row
 * i k + t, so that sums over rows are sums of vectors, and one running sum over the lanes. The
 * columns to the right of the panel are rotated in strips by (2), with lanes along the columns.
 */
#include "givens.h"

static const double MUCH = 0.25; /* a row with a smaller D / D' is sharp */

enum { PANEL = 8 };    /* columns that are rotated together, if there are strips */
enum { MOST = 16 };    /* maximum number of columns of a panel and of its targets */
enum { TILE = 16 };    /* MOST, rounded up to whole vectors */
enum { STRETCH = 64 }; /* columns of strips that are rotated together; a multiple of PANEL */

#if defined(__x86_64__)
#define IN_VECTOR(v) "+x"(v)
#elif defined(__aarch64__)
#define IN_VECTOR(v) "+w"(v)
#else
#define IN_VECTOR(v) "+m"(v)
#endif

/* The rotation of a row of the triangle by K new rows: a, k and D / D' of (1). */
typedef struct {
    _Alignas(64) double parts[3][K];
    int sharp; /* if not, the last part is not set */
} Rotation;

/* Factors of (6) for a unit of up to K vectors of rows. */
typedef struct {
    _Alignas(64) double weighted[K * WIDE], before[K * WIDE];
    double past, over; /* D before, 1 / D after the unit */
    int sharp;
} Factors;

/* Rows `from` to before `to` of the triangle. Columns before `stop` are rotated in units of LANES
   rows, later ones before `end` in strips: vectors of LANES columns. */
typedef struct {
    ptrdiff_t wide, from, to, stop, end;
    const double *row; /* row `from` before the update */
    double *next;      /* row `from` after the update */
    double *block;     /* groups of K rows, wide each */
    ptrdiff_t groups, offset[TILE];
    int recorded; /* whether the rotations are needed later */
    Rotation rotations[GROUPS][TILE];
} Panel;

EVERY_MACHINE double add_row(const Rows *rows, double *block, double q, double due, int copy)
{
    const ptrdiff_t wide = rows->wide;
    const double *row = rows->triangle[rows->now], *D = rows->diagonal[rows->now];
    double *next = rows->triangle[copy];
    for (ptrdiff_t j = 0; j < rows->d; j++) {
        const ptrdiff_t left = edge(j), m = wide - left;
        const double a = block[j], past = due * D[j], D_next = past + q * a * a;
        const double over = 1.0 / D_next, gain = q * a * over, retain = past * over;
        const int sharp = past <= MUCH * D_next;
        for (ptrdiff_t l = 0; l < m; l += WIDE) {
            const vector u = *(const vector *)(row + l), x = *(vector *)(block + left + l);
            const vector y = x - a * u;
            *(vector *)(block + left + l) = y;
            *(vector *)(next + l) = sharp ? retain * u + gain * x : u + gain * y;
        }
        if (sharp)
            next[j - left] = 1.0;
        rows->diagonal[copy][j] = D_next;
        q *= retain;
        row += m;
        next += m;
    }
    return q;
}

#if defined(__AVX__) /* defined if enabled by a compiler flag */
#define LANES 4
#define MANY 1
#elif defined(__aarch64__)
#define LANES 2
#define MANY 2 /* K rows occupy 16 of the 32 registers */
#else
#define LANES 2
#define MANY 4
#endif
#define NAMED(name) name##_any
#define MACHINE
#include "givens_of.h"
#undef LANES
#undef MANY
#undef NAMED
#undef MACHINE

#ifdef MACHINES
#define LANES 4
#define MANY 1
#define NAMED(name) name##_v3
#define MACHINE __attribute__((target("arch=x86-64-v3")))
#include "givens_of.h"
#undef LANES
#undef MANY
#undef NAMED
#undef MACHINE

#define LANES 8
#define MANY 2
#define NAMED(name) name##_v4
#define MACHINE __attribute__((target("arch=x86-64-v4")))
#include "givens_of.h"
#endif

/* Rotate a panel, whose D is `diagonal` before and `after` after the update. */
WITHIN void rotate(Panel *panel, double *q, double due, const double *diagonal, double *after)
{
#ifdef MACHINES
    if (__builtin_cpu_supports("x86-64-v4"))
        rotate_v4(panel, q, due, diagonal, after);
    else if (__builtin_cpu_supports("x86-64-v3"))
        rotate_v3(panel, q, due, diagonal, after);
    else
#endif
        rotate_any(panel, q, due, diagonal, after);
}

void pass(const Rows *rows, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
          ptrdiff_t groups, int stairs, double due, int copy, double *recorded)
{
    const ptrdiff_t wide = rows->wide, end = rows->d + rows->c;
    Panel panel; /* not initialized, since it is large */
    panel.wide = wide;
    panel.block = block;
    for (ptrdiff_t from = first; from < last; from = panel.to) {
        const ptrdiff_t begin = place(wide, from);
        const int all = end - from <= MOST; /* whether the panel has no strips */
        panel.from = from;
        panel.to = all || from + PANEL > last ? last : from + PANEL;
        panel.stop = all ? end : from + PANEL;
        panel.end = all ? end : wide;
        panel.groups = stairs ? (panel.to - first + K - 1) / K : groups;
        panel.groups = panel.groups < groups ? panel.groups : groups;
        panel.row = rows->triangle[rows->now] + begin;
        panel.next = rows->triangle[copy] + begin;
        for (ptrdiff_t j = 0; j < panel.to - from; j++)
            panel.offset[j] = place(wide, from + j) - edge(j) - begin;
        panel.recorded = recorded || panel.stop < panel.end;
        rotate(&panel, q, due, rows->diagonal[rows->now] + from, rows->diagonal[copy] + from);
        for (ptrdiff_t j = from; recorded && j < panel.to; j++) {
            const Rotation *rotation = &panel.rotations[0][j - from];
            memcpy(recorded + 2 * K * j, rotation->parts[0], K * sizeof *recorded);
            memcpy(recorded + 2 * K * j + K, rotation->parts[1], K * sizeof *recorded);
        }
    }
}
