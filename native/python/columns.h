/* Products with long orthonormal columns, piece by piece. */
#ifndef ONEPASS_COLUMNS_H
#define ONEPASS_COLUMNS_H

#include <stddef.h>

/* q columns of p numbers, stored as rows; of each column the numbers from index `first` to before
   `last` are processed. */
typedef struct {
    ptrdiff_t q, p, first, last;
} Extent;

/* C = B g (q), summed in double, and g . g. */
double into_floats(const Extent *at, const float *rows, const float *g, double *C);
double into_doubles(const Extent *at, const double *rows, const double *g, double *C);

/* rest = g + c B; lifted = rest + d B unless d is NULL; again = B rest (q), summed in double,
   unless again is NULL. Returns rest . rest. The vectors g and rest may be the same. */
double without_floats(const Extent *at, const float *rows, const float *g, const float *c,
                      const float *d, float *rest, float *lifted, double *again);
double without_doubles(const Extent *at, const double *rows, const double *g, const double *c,
                       const double *d, double *rest, double *lifted, double *again);

/* The squared lengths of the columns (q). */
void lengths_floats(const Extent *at, const float *rows, double *squares);
void lengths_doubles(const Extent *at, const double *rows, double *squares);

#endif
