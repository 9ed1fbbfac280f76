/* Square-root-free Givens rotations that add rows to a triangle; rows.c has the equations. */
#ifndef ONEPASS_GIVENS_H
#define ONEPASS_GIVENS_H

#include <math.h>
#include <string.h>

#include "machine.h"
#include "rows.h"
#include "strips.h"

static const double FAINT = 1e-100;  /* smaller D require the general algorithm */

/* The offset of row j of the triangle, which begins with the vector that contains its diagonal. */
WITHIN ptrdiff_t place(ptrdiff_t wide, ptrdiff_t j)
{
    const ptrdiff_t whole = j / WIDE;
    const ptrdiff_t before = WIDE * (whole * wide - WIDE * (whole * (whole - 1) / 2));
    return before + j % WIDE * (wide - whole * WIDE);
}

/* Add groups of k rows (1 or K; the last ones may be zero) to rows `first` to before `last` of a
   triangle. `first` must be the start of a vector, and `last` the start of a vector or d. `row`
   points to row `first` of the triangle, and the result is written to `next`; `diagonal` points to
   D, and the result is written to `after`. D is multiplied by `due` before; q, which is negative
   for rows that leave, is updated. If `recorded` is not NULL, a and k of (1) of a single group are
   stored there. */
void pass(ptrdiff_t wide, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
          ptrdiff_t groups, double due, const double *row, const double *diagonal, double *next,
          double *after, double *recorded, int k);

/* Make a copy of the triangle the current one; returns 0 if a direction has lost its digits. */
WITHIN int go_on(Rows *rows, int copy)
{
    const double *after = rows->diagonal[copy];
    int good = 1;
    for (ptrdiff_t j = 0; j < rows->d; j++)
        good &= after[j] > FAINT && after[j] < INFINITY;
    rows->now = copy;
    rows->due = 1.0;
    rows->fresh = 0;
    return good;
}

#endif
