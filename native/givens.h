/* Square-root-free Givens rotations that add rows to a triangle; rows.c has the equations. */
#ifndef ONEPASS_GIVENS_H
#define ONEPASS_GIVENS_H

#include <math.h>
#include <string.h>

#include "machine.h"
#include "rows.h"
#include "strips.h"

static const double FAINT = 1e-100;  /* smaller D are left to the general algorithm */

/* The start of row j of the triangle: the vector of its diagonal. */
WITHIN ptrdiff_t place(ptrdiff_t wide, ptrdiff_t j)
{
    const ptrdiff_t whole = j / WIDE;
    const ptrdiff_t before = WIDE * (whole * wide - WIDE * (whole * (whole - 1) / 2));
    return before + j % WIDE * (wide - whole * WIDE);
}

/* Take groups of k rows, 1 or K, the last of which may be zero, into rows `first` to before `last` of
   a triangle; `first` begins a vector, and `last` does or is the end. `row` and `next` are where row
   `first` of the triangle stands and is to stand, `diagonal` and `after` where all of D does; D fades
   by `due`, and q is left as it is after them. Notes each a and k of (1) of one group if there is a
   place for it. */
void pass(ptrdiff_t wide, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
          ptrdiff_t groups, double due, const double *row, const double *diagonal, double *next,
          double *after, double *noted, int k);

/* Go on with a copy of the triangle, which has taken them in; 0 if a direction lost its digits. */
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
