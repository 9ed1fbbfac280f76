/* Learned rows that are added to the triangle later, while others arrive. */
#ifndef ONEPASS_PENDING_H
#define ONEPASS_PENDING_H

#include "rows.h"

enum { FAR = 48 };   /* features from which on the triangle exceeds the nearer caches */

/* Room for d features and c outputs of a width, in zeros; NULL if there is none. */
Pending *pending_open(ptrdiff_t d, ptrdiff_t c, ptrdiff_t wide);
void pending_close(Pending *pending);

/* Learn a row, x as it came and as it was prepared, of a weight there; its errors before it. Returns
   0 and leaves all as it was where the row says so much that it is to be taken in at once. */
int pending_learn(Rows *rows, const double *x, const double *row, double weight, double *errors);

/* Scores of x less what the means and w0 say of it, once after each row that is learned; or 0. */
int pending_say(Rows *rows, const double *x, double *scores);

/* Add to theta_j (c) what the rows say that are not in the triangle. */
void pending_add(const Rows *rows, ptrdiff_t j, double *theta);

/* Add all of them to the triangle. */
void pending_flush(Rows *rows);

#endif
