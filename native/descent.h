/* Linear models: stochastic gradient descent and the perceptron, row by row. */
#ifndef ONEPASS_DESCENT_H
#define ONEPASS_DESCENT_H

#include <stddef.h>

/* As in onepass/learners/losses.py; a negative one is squared and halved: its slope times its value. */
enum { SQUARED = 1, ABSOLUTE, HUBER, INSENSITIVE, HINGE, LOGISTIC, MISCLASSIFIED };

typedef struct {
    ptrdiff_t d, c; /* features, outputs */
    double *W, *b;  /* (c, d) and (c): learned in place */
    double unit;    /* 1 with an intercept, 0 without */
} Linear;

/* How far each row moves: w <- keep w - clip(rate slope, -limit, limit) x, where rate is divided by
   damping + |x|^2 if there is a damping. All but the rate may be NULL. */
typedef struct {
    const double *rate, *limit, *keep, *damping;
} Pace;

/* Learn n rows of X (n, d) with answers Y (n, c); said (n, c) are the scores just before, and
   change (c) is room for work. It ends before a row that would move by more than `most`, if that
   is above 0, and returns the rows learned. */
ptrdiff_t descend(const Linear *model, int loss, double parameter, ptrdiff_t n, const double *X,
                  const double *Y, const Pace *pace, double most, double *said, double *change);

/* The perceptron; y (n) are the numbers of classes, and known (n, c), or NULL, whether each has
   come before. Returns the mistakes. */
ptrdiff_t correct(const Linear *model, ptrdiff_t n, const double *X, const double *y,
                  const double *moves, const unsigned char *known, double *said);

/* s = W x + b. */
void score(const Linear *model, const double *x, double *said);

#endif
