/* Recursive least squares row by row: the triangle of centred rows, and their means. */
#ifndef ONEPASS_ROWS_H
#define ONEPASS_ROWS_H

#include <stddef.h>

static const double LARGEST = 1e60; /* larger numbers are processed in Python */
/* Smallest safe ratio of a diagonal entry of R to a row in that weight, as in square_root.py: */
static const double SHARP = 1e-4;        /* if the entry contains little more than the ridge */
static const double SHARP_FADING = 1e-6; /* if the entry contains rows that fade */
static const double DULL = 1e-13;        /* if the entry contains rows that do not fade */
enum { FEW = 1 << 16 }; /* maximum number of rows that are learned atomically */

typedef struct Pending Pending; /* pending.h */

typedef struct {
    ptrdiff_t d, c;       /* features, outputs */
    int free;             /* whether there is an intercept */
    double factor;        /* the factor by which the past fades before each row */
    double step;          /* the same in half-lives */
    ptrdiff_t wide;       /* d + c, rounded up to whole vectors */
    double *triangle[2];  /* two copies of [U theta]; a row starts at the vector of its diagonal */
    double *diagonal[2];  /* D (d) of each copy */
    int now;              /* the current copy */
    double due;           /* pending factor of D */
    double *w;            /* the solution of U w = theta (d, c), if `fresh` */
    int fresh;
    double *start;        /* w0 (d, c) */
    int started;          /* whether w0 is not zero */
    /* `squares` to `last` are contiguous, so that they can be restored */
    double *squares;      /* least sum of squares (c) */
    double *means;        /* of features (d) and targets (c) */
    double *rest;         /* rounding errors of the means (d + c) */
    double mass;          /* sum of faded weights */
    double faded;         /* the factor by which the initial state has faded */
    /* the floor of the information about each weight, if level > 0 */
    double level;
    ptrdiff_t period, count;        /* rows between two visits, rows so far */
    double age;                     /* half-lives since the last visit */
    double *energy, *active, *last; /* sums of squares, weight of excited rows, last row (d each) */
    double *least;                  /* the ridge of each weight (d) */
    double *unseen;                 /* 1 for a feature that has not differed from its mean (d): the
                                       row in which it does is learned in Python, else 0 */
    /* work space */
    double *before;       /* copy of `squares` to `last` before a row */
    double *aside;        /* copy of `squares` to `last` before some rows of a block */
    double *block;        /* rows that are added together (wide each) */
    void *memory;
    Pending *pending;     /* single rows that are not in the triangle yet; or NULL */
} Rows;

/* Allocate the state for d features and c outputs, or as a copy; returns 0 on failure. */
int rows_open(Rows *rows, ptrdiff_t d, ptrdiff_t c);
int rows_copy(Rows *to, const Rows *from);
void rows_close(Rows *rows);

/* Learn n rows one after the other; errors (n, c) are those just before each row. weights may be
   NULL. Returns the number of rows learned: learning stops before a row that is too large relative
   to the earlier rows, or whose numbers are too large or weight too small to be squared. Returns -1
   if a direction has lost its digits: then the state is no longer valid. */
ptrdiff_t rows_learn(Rows *rows, ptrdiff_t n, const double *X, const double *Y,
                     const double *weights, double *errors);

/* Learn one row and return 1, or change nothing and return 0. */
int rows_learn_one(Rows *rows, const double *x, const double *y, double weight, double *errors);

/* Learn n <= FEW rows and return 1, or change nothing and return 0; errors (n, c). weights may be
   NULL. */
int rows_learn_few(Rows *rows, ptrdiff_t n, const double *X, const double *Y,
                   const double *weights, double *errors);

/* Undo the last rows_learn_few; `was` is a copy of the structure before it. */
void rows_undo(Rows *rows, const Rows *was);

/* Learn n rows, each `passed` half-lives (n) after the row before; rows->factor must be 1. Returns
   the number of rows learned: learning stops before a row as in rows_learn, and before a long gap.
   */
ptrdiff_t rows_learn_at(Rows *rows, ptrdiff_t n, const double *X, const double *Y,
                        const double *weights, const double *passed, double *errors);

/* Predict x (c) and return 1, if this is faster than solving for w; otherwise return 0. */
int rows_predict(Rows *rows, const double *x, double *scores);

/* The variance of the prediction of x relative to that of a target, without that of the means:
   (x - means)^T P (x - means). Uses the block as work space. */
double rows_leverage(const Rows *rows, const double *x);

/* Solve for w, unless it is current. */
void rows_solve(Rows *rows);

/* The square of the smallest safe ratio for weight j, where D is the squared diagonal entry. */
static inline double sharpness(const Rows *rows, ptrdiff_t j, double D)
{
    const double sharp = D <= 16.0 * rows->d * rows->least[j] ? SHARP
                         : rows->factor < 1.0                 ? SHARP_FADING
                                                              : DULL;
    return sharp * sharp;
}

/* A pointer to row j of the current [U theta], as if the row began with column 0. */
double *rows_at(const Rows *rows, ptrdiff_t j);

#endif
