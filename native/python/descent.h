/* Linear models: stochastic gradient descent and the perceptron, row by row. */
#ifndef ONEPASS_DESCENT_H
#define ONEPASS_DESCENT_H

#include <stddef.h>

/* Losses l as in onepass/learners/losses.py; a negative identifier is l^2 / 2, with the slope l l'.
   */
enum { SQUARED = 1, ABSOLUTE, HUBER, INSENSITIVE, HINGE, LOGISTIC, MISCLASSIFIED };

typedef struct {
    ptrdiff_t d, c; /* features, outputs */
    double *W, *b;  /* (c, d) and (c), updated in place */
    double unit;    /* 1 with an intercept, 0 without */
    double *statistics; /* (c, 5) for adaptive steps, updated in place; otherwise NULL */
} Linear;

/* What adaptive steps of an output depend on: the sum of the rates; the mean of |x|^2; the mean and
   the variance of the targets; the mean squared error. */
typedef struct {
    double rate, energy, mean, variance, error;
} Statistics;

enum { STATISTICS = sizeof(Statistics) / sizeof(double) };

/* The step of each row: w <- keep w - clip(rate slope, -limit, limit) x, where rate is divided by
   damping + |x|^2 unless damping is NULL. limit and keep may be NULL too. */
typedef struct {
    const double *rate, *limit, *keep, *damping;
} Pace;

/* Learn n rows of X (n, d) with targets Y (n, c). The scores just before each row is learned are
   written to predictions (n, c). If `max_step` is above 0, learning stops before a row with a
   larger step. Returns the number of rows learned. */
ptrdiff_t descend(const Linear *model, int loss, double parameter, ptrdiff_t n, const double *X,
                  const double *Y, const Pace *pace, double max_step, double *predictions);

/* Learn by the perceptron; y (n) are the indices of the classes, and known (n, c) is whether a
   class is known before the row, or NULL. Returns the number of mistakes. */
ptrdiff_t correct(const Linear *model, ptrdiff_t n, const double *X, const double *y,
                  const double *moves, const unsigned char *known, double *predictions);

/* s = W x + b. */
void score(const Linear *model, const double *x, double *predictions);

#endif
