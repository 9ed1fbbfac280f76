#include "givens.h"

enum { NEAR = 1 << 15 };             /* doubles that stay in the nearer caches */
enum { LONG = 256 };                 /* numbers of a row that are worth to look ahead of */
static const double SHARP = 0.25;    /* rows that leave less of D say much more than the past */

/* (2) of k rows and a row of the triangle, of m numbers. Left of its diagonal, which is 1, the
   triangle is 0, and the rows are 0 there after their columns were taken in: so they stay. */
WITHIN void take(const double *row, double *next, double *rows, ptrdiff_t wide, ptrdiff_t m,
                 const double *a, const double *gain, const int k)
{
    for (ptrdiff_t l = 0; l < m; l += WIDE) {
        vector u = *(const vector *)(row + l);
#pragma GCC unroll 8
        for (int i = 0; i < k; i++) {
            vector *at = (vector *)(rows + i * wide + l);
            const vector x = *at - a[i] * u;
            *at = x;
            u += gain[i] * x;
        }
        *(vector *)(next + l) = u;
    }
}

/* The same where some rows say much more than all before them. */
WITHIN void take_sharp(const double *row, double *next, double *rows, ptrdiff_t wide, ptrdiff_t m,
                       const double *a, const double *gain, const double *kept, const int k)
{
    for (ptrdiff_t l = 0; l < m; l += WIDE) {
        vector u = *(const vector *)(row + l);
        for (int i = 0; i < k; i++) {
            vector *at = (vector *)(rows + i * wide + l);
            const vector x = *at;
            *at = x - a[i] * u;
            u = kept[i] * u + gain[i] * x;
        }
        *(vector *)(next + l) = u;
    }
}

/* What k rows do to a row of the triangle. */
typedef struct {
    double a[K], gain[K], kept[K];
    int sharp;
} Turn;

/* (1) of k rows and a column; returns D after them. */
WITHIN double turn_of(Turn *turn, const double *rows, ptrdiff_t wide, double *q, double known,
                      const int k)
{
    double D[K + 1];
    D[0] = known;
    for (int i = 0; i < k; i++)
        turn->a[i] = rows[i * wide];
    for (int i = 0; i < k; i++)
        turn->gain[i] = q[i] * turn->a[i];
    for (int i = 0; i < k; i++)
        D[i + 1] = D[i] + turn->gain[i] * turn->a[i];
    for (int i = 0; i < k; i++) {
        const double over = 1.0 / D[i + 1];
        turn->kept[i] = D[i] * over;
        turn->gain[i] *= over;
        q[i] *= turn->kept[i];
    }
    turn->sharp = D[0] <= SHARP * D[k]; /* of all k rows, and so of none of them if not */
    return D[k];
}

WITHIN void take_either(const double *row, double *next, double *rows, ptrdiff_t wide, ptrdiff_t m,
                        const Turn *turn, const int k)
{
    if (turn->sharp)
        take_sharp(row, next, rows, wide, m, turn->a, turn->gain, turn->kept, k);
    else
        take(row, next, rows, wide, m, turn->a, turn->gain, k);
}

/* (2) of k rows and as many rows of the triangle as a vector has numbers, so far apart, beyond the
   vector of their diagonals: each number of the rows is read and written once for all of them. */
WITHIN void take_all(const double *row, double *next, ptrdiff_t apart, double *rows,
                     ptrdiff_t wide, ptrdiff_t m, const Turn *turns, const int k)
{
    for (ptrdiff_t l = 0; l < m; l += WIDE) {
        vector x[K];
#pragma GCC unroll 8
        for (int i = 0; i < k; i++)
            x[i] = *(const vector *)(rows + i * wide + l);
#pragma GCC unroll 8
        for (int n = 0; n < WIDE; n++) {
            vector u = *(const vector *)(row + n * apart + l);
#pragma GCC unroll 8
            for (int i = 0; i < k; i++) {
                x[i] -= turns[n].a[i] * u;
                u += turns[n].gain[i] * x[i];
            }
            *(vector *)(next + n * apart + l) = u;
        }
#pragma GCC unroll 8
        for (int i = 0; i < k; i++)
            *(vector *)(rows + i * wide + l) = x[i];
    }
}

/* Note a and k of (1). */
WITHIN void note(double *noted, ptrdiff_t j, const Turn *turn, const int k)
{
    if (!noted)
        return;
    memcpy(noted + 2 * K * j, turn->a, k * sizeof(double));
    memcpy(noted + 2 * K * j + K, turn->gain, k * sizeof(double));
}

/* pass of short rows, of a k that is known: column by column. */
WITHIN void pass_short(ptrdiff_t wide, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
                       double due, const double *row, const double *diagonal, double *next,
                       double *after, double *noted, const int k)
{
    for (ptrdiff_t j = first; j < last; j++) {
        const ptrdiff_t from = edge(j), m = wide - from;
        Turn turn;
        after[j] = turn_of(&turn, block + j, wide, q, due * diagonal[j], k);
        note(noted, j, &turn, k);
        take_either(row, next, block + from, wide, m, &turn, k);
        if (turn.sharp)
            next[j - from] = 1.0;
        row += m;
        next += m;
    }
}

/* The same of long rows: as many columns at once as a vector has numbers. */
WITHIN void pass_long(ptrdiff_t wide, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
                      double due, const double *row, const double *diagonal, double *next,
                      double *after, double *noted, const int k)
{
    Turn turns[WIDE];
    for (ptrdiff_t j = first; j < last; j += WIDE) {
        const ptrdiff_t m = wide - j, count = last - j < WIDE ? last - j : WIDE;
        double *rest = block + j + WIDE;
        int sharp = 0;
        for (ptrdiff_t n = 0; n < count; n++) {
            Turn *turn = turns + n;
            after[j + n] = turn_of(turn, block + j + n, wide, q, due * diagonal[j + n], k);
            note(noted, j + n, turn, k);
            take_either(row + n * m, next + n * m, block + j, wide, WIDE, turn, k);
            if (turn->sharp)
                next[n * m + n] = 1.0;
            sharp |= turn->sharp;
        }
        if (count == WIDE && !sharp)
            take_all(row + WIDE, next + WIDE, m, rest, wide, m - WIDE, turns, k);
        else
            for (ptrdiff_t n = 0; n < count; n++)
                take_either(row + n * m + WIDE, next + n * m + WIDE, rest, wide, m - WIDE,
                            turns + n, k);
        row += count * m;
        next += count * m;
    }
}

/* pass, of a k that is known. */
WITHIN void pass_of(ptrdiff_t wide, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
                    double due, const double *row, const double *diagonal, double *next,
                    double *after, double *noted, const int k)
{
    const ptrdiff_t until = edge(wide > LONG ? wide - LONG : 0);
    const ptrdiff_t middle = until < first ? first : until > last ? last : until;
    const ptrdiff_t done = place(wide, middle) - place(wide, first);
    pass_long(wide, first, middle, block, q, due, row, diagonal, next, after, noted, k);
    pass_short(wide, middle, last, block, q, due, row + done, diagonal, next + done, after, noted,
               k);
}

EVERY_MACHINE void pass(ptrdiff_t wide, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
                        double due, const double *row, const double *diagonal, double *next,
                        double *after, double *noted, int k)
{
    if (k == 1)
        pass_of(wide, first, last, block, q, due, row, diagonal, next, after, noted, 1);
    else
        pass_of(wide, first, last, block, q, due, row, diagonal, next, after, noted, K);
}

/* A panel of the triangle takes in all groups while it is near. */
void take_in(const Rows *rows, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
                    ptrdiff_t groups, int k)
{
    const ptrdiff_t wide = rows->wide;
    const ptrdiff_t panel = groups == 1 ? rows->d : edge(NEAR / wide + WIDE);
    const double *diagonal = rows->diagonal[rows->now];
    double *after = rows->diagonal[1 - rows->now];
    for (ptrdiff_t from = first; from < last; from += panel) {
        const ptrdiff_t to = from + panel < last ? from + panel : last, at = place(wide, from);
        const double *old = rows->triangle[rows->now] + at;
        double *next = rows->triangle[1 - rows->now] + at;
        pass(wide, from, to, block, q, rows->due, old, diagonal, next, after, NULL, k);
        for (ptrdiff_t g = 1; g < groups; g++)
            pass(wide, from, to, block + g * k * wide, q + g * k, 1.0, next, after, next, after,
                 NULL, k);
    }
}
