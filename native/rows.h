/* Recursive least squares row by row: the triangle of centred rows, and their means. */
#ifndef ONEPASS_ROWS_H
#define ONEPASS_ROWS_H

#include <stddef.h>

static const double LARGEST = 1e60; /* larger numbers are left to Python */
/* Smallest safe ratio of a diagonal entry of R to a row in that weight, as in square_root.py: */
static const double SHARP = 1e-4;        /* where the entry holds little more than the ridge */
static const double SHARP_FADING = 1e-6; /* where it holds rows that fade */
static const double DULL = 1e-13;        /* where it holds rows that do not fade */
enum { FEW = 1 << 16 }; /* maximum number of rows that are learned atomically */

typedef struct Pending Pending; /* pending.h */

typedef struct {
    ptrdiff_t d, c;       /* features, outputs */
    int free;             /* whether there is an intercept */
    double factor;        /* the factor by which the past fades before each row */
    ptrdiff_t wide;       /* d + c, filled up to whole vectors */
    double *triangle[2];  /* rows of [U theta], each from the vector of its diagonal on; a spare */
    double *diagonal[2];  /* D (d) */
    int now;              /* the current copy */
    double due;           /* pending factor of D */
    double *w;            /* U w = theta (d, c), if it is fresh */
    int fresh;
    double *start;        /* w0 (d, c) */
    int started;          /* whether w0 is not zero */
    /* from squares to last all lie one after the other, so that they can be put back */
    double *squares;      /* least sum of squares (c) */
    double *means;        /* of features (d) and targets (c) */
    double *rest;         /* their rounding errors (d + c) */
    double mass;          /* sum of faded weights */
    double faded;         /* the factor by which the initial state has faded */
    /* the floor of the information about each weight, if level > 0 */
    double level;
    ptrdiff_t period, count;        /* rows between two visits, rows so far */
    double age;                     /* half-lives since the last visit */
    double *energy, *active, *last; /* (d) each */
    double *least;                  /* the ridge of each weight (d) */
    /* work */
    double *before;       /* squares to last, before a row */
    double *aside;        /* squares to last, before some rows of a block */
    double *block;        /* rows that are taken in at once (wide each) */
    void *memory;
    Pending *pending;     /* rows that came one by one and are not in the triangle; or NULL */
} Rows;

/* Room for d features and c outputs, in zeros; 0 if there is none. */
int rows_open(Rows *rows, ptrdiff_t d, ptrdiff_t c);
void rows_close(Rows *rows);

/* Learn n rows one after the other; errors (n, c) are those just before each. weights may be NULL.
   Returns how many were learned: it stops before a row that is too large beside the earlier rows,
   or whose numbers are too large, or weight too small, to be squared. -1 if a direction lost its
   digits: the state is unusable then. */
ptrdiff_t rows_learn(Rows *rows, ptrdiff_t n, const double *X, const double *Y,
                     const double *weights, double *errors);

/* Learn one row, or change nothing and return 0. */
int rows_learn_one(Rows *rows, const double *x, const double *y, double weight, double *errors);

/* The same of n <= FEW rows of weight 1; errors (n, c). */
int rows_learn_few(Rows *rows, ptrdiff_t n, const double *X, const double *Y, double *errors);

/* Answers to x (c), if it takes less than to solve for w: then 1. */
int rows_say(Rows *rows, const double *x, double *scores);

/* Solve for w, if it is not fresh. */
void rows_solve(Rows *rows);

/* The square of the smallest safe ratio for weight j, where D is the squared diagonal entry. */
static inline double sharpness(const Rows *rows, ptrdiff_t j, double D)
{
    const double sharp = D <= 16.0 * rows->d * rows->least[j] ? SHARP
                         : rows->factor < 1.0                 ? SHARP_FADING
                                                              : DULL;
    return sharp * sharp;
}

/* Row j of [U theta] now, as if it began with column 0. */
double *rows_at(const Rows *rows, ptrdiff_t j);

#endif
