/* How rows are taken into a triangle: rotations without square roots. rows.c tells the mathematics. */
#ifndef ONEPASS_GIVENS_H
#define ONEPASS_GIVENS_H

#include <math.h>
#include <string.h>

#include "machine.h"
#include "rows.h"

enum { K = 8 };                      /* rows in a group */
enum { NEAR = 1 << 15 };             /* doubles that stay in the nearer caches */
static const double SHARP = 0.25;    /* a row that leaves less of D says much more than the past */
static const double FAINT = 1e-100;  /* D below it: others look after what is so nearly lost */

/* Where row j of the triangle begins: with the vector of its diagonal. */
WITHIN ptrdiff_t place(ptrdiff_t wide, ptrdiff_t j)
{
    const ptrdiff_t whole = j / WIDE;
    const ptrdiff_t before = WIDE * (whole * wide - WIDE * (whole * (whole - 1) / 2));
    return before + j % WIDE * (wide - whole * WIDE);
}

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

/* Take k rows, the last of which may be zero, into rows `first` to before `last` of the triangle.
   Notes each a and k of (1) if there is a place to note it. */
WITHIN void pass(ptrdiff_t wide, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
                 double due, const double *row, const double *diagonal, double *next,
                 double *after, double *noted, const int k)
{
    double a[K], D[K + 1], gain[K], kept[K];
    for (ptrdiff_t j = first; j < last; j++) {
        const ptrdiff_t from = edge(j), m = wide - from;
        double smallest = 1.0;
        D[0] = due * diagonal[j];
        for (int i = 0; i < k; i++)
            a[i] = block[i * wide + j];
        for (int i = 0; i < k; i++)
            D[i + 1] = D[i] + q[i] * a[i] * a[i];
        for (int i = 0; i < k; i++) {
            const double over = 1.0 / D[i + 1];
            kept[i] = D[i] * over;
            gain[i] = q[i] * a[i] * over;
            q[i] *= kept[i];
        }
        for (int i = 0; i < k; i++)
            smallest = kept[i] < smallest ? kept[i] : smallest;
        after[j] = D[k];
        if (noted) {
            memcpy(noted + 2 * K * j, a, k * sizeof *a);
            memcpy(noted + 2 * K * j + K, gain, k * sizeof *gain);
        }
        if (smallest > SHARP)
            take(row, next, block + from, wide, m, a, gain, k);
        else {
            take_sharp(row, next, block + from, wide, m, a, gain, kept, k);
            next[j - from] = 1.0;
        }
        row += m;
        next += m;
    }
}

/* Take groups of k rows into rows `first` to before `last` of the triangle. A panel of it takes in
   all groups while it is near. */
WITHIN void take_in(const Rows *rows, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
                    ptrdiff_t groups, const int k)
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

/* Go on with the triangle that has taken them in; 0 if a direction lost its digits. */
WITHIN int go_on(Rows *rows)
{
    const double *after = rows->diagonal[1 - rows->now];
    double least = INFINITY;
    for (ptrdiff_t j = 0; j < rows->d; j++)
        least = after[j] < least ? after[j] : least;
    rows->now = 1 - rows->now;
    rows->due = 1.0;
    rows->fresh = 0;
    return least > FAINT;
}

#endif
