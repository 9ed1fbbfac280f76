/* Linear models that go down the slope of a loss, or correct mistakes, row by row. */
#ifndef ONEPASS_DESCENT_H
#define ONEPASS_DESCENT_H

#include <stddef.h>

/* As onepass/losses.py has them; a negative one is squared and halved: its slope times its value. */
enum { SQUARED = 1, ABSOLUTE, HUBER, INSENSITIVE, HINGE, LOGISTIC, MISCLASSIFIED };

typedef struct {
    ptrdiff_t n, d, c;   /* rows, features, outputs */
    const double *X, *Y; /* (n, d) and (n, c) */
    double *W, *b;       /* (c, d) and (c): learned in place */
    double unit;         /* 1 with an intercept, 0 without */
    double *said;        /* (n, c): the scores of each row just before it was learned */
} Stream;

/* How far each row moves: w <- keep w - clip(rate slope, -limit, limit) x. limit, keep: or NULL. */
void descend(const Stream *stream, int loss, double parameter, const double *rate,
             const double *limit, const double *keep);

/* The perceptron; Y (n) are the numbers of classes, and known (n, c), or NULL, whether each has
   come before. Returns the mistakes. */
ptrdiff_t correct(const Stream *stream, const double *moves, const unsigned char *known);

#endif
