/* Square-root-free Givens rotations that add rows to a triangle; rows.c has the equations. */
#ifndef ONEPASS_GIVENS_H
#define ONEPASS_GIVENS_H

#include <math.h>
#include <string.h>

#include "machine.h"
#include "rows.h"

enum { K = 8, GROUPS = 16 }; /* rows per group; maximum number of groups */
static const double FAINT = 1e-100;  /* smaller D require the general algorithm */

/* The offset of row j of the triangle, which begins with the vector that contains its diagonal. */
WITHIN ptrdiff_t place(ptrdiff_t wide, ptrdiff_t j)
{
    const ptrdiff_t whole = j / WIDE;
    const ptrdiff_t before = WIDE * (whole * wide - WIDE * (whole * (whole - 1) / 2));
    return before + j % WIDE * (wide - whole * WIDE);
}

/* The number of rows that must be zero or used in a block of these groups. */
WITHIN ptrdiff_t rows_of(ptrdiff_t groups)
{
    return (groups + WIDE - 1) / WIDE * (WIDE * K);
}

/* Add groups of K rows (the last ones may be zero) of weights q to rows `first` to before `last` of
   the current triangle, and write these rows to a copy. `first` must be the start of a vector, and
   `last` the start of a vector or d. With `stairs`, group g is zero before column first + g K. D is
   multiplied by `due` before; block and q are overwritten. If `recorded` is not NULL, a and k of
   (1) of a single group are stored there. */
void pass(const Rows *rows, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
          ptrdiff_t groups, int stairs, double due, int copy, double *recorded);

/* Add one row of weight q to the current triangle, and write the result to a copy. Returns what
   remains of q. */
double add_row(const Rows *rows, double *row, double q, double due, int copy);

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
