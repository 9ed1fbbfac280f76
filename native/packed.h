/* Many states of recursive least squares of the same sizes, each packed in a few numbers. */
#ifndef ONEPASS_PACKED_H
#define ONEPASS_PACKED_H

#include "rows.h"

/* The number of doubles of a packed state, in this order: the rows of U right of the diagonal, each
   followed by its theta; D (d); the least sum of squares (c); with an intercept, the means (d + c)
   and their rounding errors (d + c); with a floor, its `energy`, `active` and `last` (d each), its
   age and number of rows; the share of the initial state; the mass; and the number of rows that
   packed_learn has learned. */
ptrdiff_t packed_size(const Rows *rows);

/* Copy a packed state to `rows`, whose sizes and rule must be those of the state. */
void packed_load(Rows *rows, const double *state);

enum { GATHERED = 32 }; /* rows that are gathered at once */

/* Learn the n rows with the indices `at`, in order; errors (all rows, c) are those just before each
   row. weights may be NULL; `work` has room for GATHERED rows of d + 2 c + 1 numbers. Returns the
   number of rows learned: as for rows_learn, learning stops before a row that Python must learn. If
   a direction has lost its digits, 0 is returned and the state is unchanged. */
ptrdiff_t packed_learn(Rows *rows, double *state, ptrdiff_t n, const int *at, const double *X,
                       const double *Y, const double *weights, double *errors, double *work);

#endif
