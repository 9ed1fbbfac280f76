/* Rows learned by rows_learn_one that are added to the triangle later, while other rows arrive. */
#ifndef ONEPASS_PENDING_H
#define ONEPASS_PENDING_H

#include "rows.h"

enum { FAR = 48 };   /* minimum number of features for which the triangle exceeds the fast caches */

/* Allocate the state for d features and c outputs, in rows of `wide` numbers; NULL on failure. */
Pending *pending_open(ptrdiff_t d, ptrdiff_t c, ptrdiff_t wide);
void pending_close(Pending *pending);

/* A copy, of the same sizes; NULL on failure. */
Pending *pending_copy(const Pending *from, ptrdiff_t d, ptrdiff_t c, ptrdiff_t wide);

/* Learn a row, given as the original x and as the prepared `row` of weight `weight`; write its
   errors before it is learned. Returns 0 and changes nothing if the row has so much information
   that it must be added to the triangle at once. */
int pending_learn(Rows *rows, const double *x, const double *row, double weight, double *errors);

/* Scores of x without the contributions of the means and of w0. Returns 0 if there are no pending
   rows, or if scores were computed since the last row was learned. */
int pending_predict(Rows *rows, const double *x, double *scores);

/* Compute the leverage of a centred `row` (wide), which is overwritten. Returns 0 if there are no
   pending rows. */
int pending_leverage(const Rows *rows, double *row, double *leverage);

/* Add the contributions of the pending rows to theta_j (c). */
void pending_add(const Rows *rows, ptrdiff_t j, double *theta);

/* Add all pending rows to the triangle. */
void pending_flush(Rows *rows);

#endif
