/* Recursive least squares whose state is one vector of doubles. All functions are stateless.

   The vector begins with a head of numbers. The parts after it are, in this order, for d features
   and c outputs, with stride = d + c rounded up to a multiple of 8:

   T (d, stride)       the triangle: unit upper triangle U, with D on its diagonal, and theta (d, c)
                       to its right: the information is U^T D U, and U w = theta
   sums (stride)       faded sums of squares of the columns, centred
   means, rests (stride each)  means of features and targets, as two doubles each
   energy, active (stride each)  sums of squares and weights, not faded, of the rows that excite a
                       column: with an intercept, that change it; with LEVEL only
   last (stride)       the last row; with LEVEL only
   prior (stride)      weight of the prior in the triangle by column, -1 once it was removed; with
                       UNITS or PRIOR only
   visited (panels)    FADED at the last visit of a panel of 8 weights; with LEVEL or HELD only
   start (c, d)        the initial weights; with STARTED only
   squares (c)         the least sum of squares
   w (c, d)            the weights, if FRESH is SOLVED

   All sums are in units of the last row. The size is rounded up to a multiple of 8. It is
   followed by the rows of a window, or by seven more experts and the weights of a mixture. */
#ifndef ONEPASS_LEAST_SQUARES_H
#define ONEPASS_LEAST_SQUARES_H

#include <stddef.h>

enum { /* the numbers of the head */
    FEATURES, /* d */
    OUTPUTS,  /* c */
    FLAGS,    /* sum of the flags below */
    FACTOR,   /* log2 of the factor by which the past fades before each row, or 0 */
    LEVEL,    /* of the bound of the information about each weight, or 0 */
    RIDGE,    /* the penalty of each weight; 0 if there is none, or a matrix */
    PRIOR,    /* weight of the prior, in rows with the first nonzero deviation of a feature; or 0 */
    ROWS,     /* number of rows learned */
    MASS,     /* sum of the faded weights of the rows */
    FADED,    /* log2 of the factor by which the initial state has faded */
    DUE,      /* log2 of the factor by which the past has faded since the last visit of a panel */
    TURN,     /* the panel that is visited next */
    ATTEMPT,  /* number of rows at which the prior of UNITS is removed if possible */
    FRESH,    /* whether w is the solution of U w = theta: one of the values below */
    HEAD = 16
};
enum { /* flags */
    FREE = 1,       /* there is an intercept */
    STARTED = 2,    /* the initial weights are not zero */
    HELD = 4,       /* the ridge does not fade */
    UNITS = 8,      /* PRIOR is 0: a prior in units of the column lengths where it exceeds the ridge,
                       which is removed once the rows determine all weights */
    WINDOW = 16,    /* a window follows */
    MIXTURE = 32,   /* experts follow */
    INDICATORS = 64, /* the targets of a mixture are class indicators */
    DIRECTIONAL = 128 /* the past fades in Python, and what that needs follows */
};
enum { STALE, ELIMINATED, SOLVED }; /* ELIMINATED: a row was predicted without w */
enum { EXPERTS = 8 };

typedef struct {
    double *head, *T, *sums, *means, *rests, *energy, *active, *last, *prior, *visited, *start, *squares, *w;
    ptrdiff_t d, c, stride;
} LeastSquares;

/* The size of the vector with this head, without what follows; 0 if the head is invalid. */
ptrdiff_t ls_size(const double *head);
/* The size with what follows. `rows` is the capacity of a window. */
ptrdiff_t ls_whole_size(const double *head, ptrdiff_t rows);
LeastSquares ls_of(double *vector);

/* Learn n rows X (n, d), Y (n, c) one after the other; errors (n, c) are those just before each
   row. weights (n), fades (n; log2, before each row) and leaving (n; rows that leave the window
   after each row) may be NULL. Returns 0 if there is no memory, or a number is not finite. */
int ls_learn(double *vector, ptrdiff_t n, const double *X, const double *Y, const double *weights,
             const double *fades, const double *leaving, double *errors);
/* Learn rows, each in one of several vectors of one size. `order` contains the indices of the rows,
   grouped by key; those of key k end before ends[k]. */
int ls_learn_keys(double *vectors, ptrdiff_t keys, const int *order, const int *ends,
                  const double *X, const double *Y, const double *weights, double *errors);
/* Compute w, unless it is fresh. */
void ls_solve(const LeastSquares *s);
/* Scores (c) of a row x (d). `row` (stride) is work space, which may be x. */
void ls_predict(const LeastSquares *s, const double *x, double *scores, double *row);
/* The same by elimination with U; afterwards `row` contains x in units of U. */
void ls_eliminate(const LeastSquares *s, const double *x, double *scores, double *row);
/* (x - m)^T P (x - m) for the row that was eliminated last. */
double ls_leverage(const LeastSquares *s, const double *row);
/* The weighted sum of squared residuals of output k: the least value without its penalty. */
double ls_residual(const LeastSquares *s, ptrdiff_t k);
/* Weights (c, d), centre (d) and offset (c): a prediction is w (x - centre) + offset. */
void ls_fitted(double *vector, double *weights, double *centre, double *offset);
/* Add rows [a b] (n, stride), not centred, of any weights. */
int ls_rotate(double *vector, ptrdiff_t n, const double *rows, const double *weights);

/* native/core/window.c */
enum { /* the numbers of a window */
    CAPACITY, /* of the ring, in rows */
    STORED,   /* number of rows in the window */
    NEXT,     /* place of the next row in the ring */
    GONE,     /* number of rows removed since the state was recomputed or replaced */
    SHADOWED, /* number of rows that the shadow has learned; -1 if there is no shadow */
    LENGTH,   /* of the window, in rows */
    WINDOW_HEAD = 8
};
ptrdiff_t window_size(const double *head, ptrdiff_t capacity);
int window_learn(double *vector, ptrdiff_t n, const double *X, const double *Y,
                 const double *weights, const double *fades, const double *leaving,
                 double *errors);
/* native/core/mixture.c */
ptrdiff_t mixture_size(const double *head);
void mixture_weigh(ptrdiff_t k, ptrdiff_t n, ptrdiff_t c, int indicators, const double *Y,
                   const double *weights, const double *each, double *numbers, double *errors);
int mixture_learn(double *vector, ptrdiff_t n, const double *X, const double *Y,
                  const double *weights, double *errors);

/* Parts that the files of the core share. */
enum { CHUNK = 128 }; /* maximum number of rows that are rotated together */
int ls_learn_rows(double *vector, ptrdiff_t n, const double *X, const double *Y,
                  const double *weights, const double *fades, double *errors);
/* Aligned room for this many doubles; the caller frees `memory`. */
double *ls_room(ptrdiff_t size, double **memory);
/* Work space for changes of the past, in doubles. */
ptrdiff_t ls_work_size(const LeastSquares *s);
/* Fade the past before a row of this weight, and adapt the prior to the row; returns whether a row
   may still change the prior. `scores` are those of the row before, in the work space, or NULL if
   its errors are those of the rotations; `ls_set_errors` then computes its errors. */
int ls_prepare(LeastSquares *s, const double *x, double log, double weight, double *work,
               const double **scores);
void ls_set_errors(const LeastSquares *s, const double *y, const double *scores, double *errors);
/* How many of n rows, at least one, have the prior of the first; `sums` has room for d numbers. */
ptrdiff_t ls_rows_with_prior(const LeastSquares *s, ptrdiff_t n, const double *X,
                             const double *weights, const double *fades, double *sums);
/* Remove the prior of UNITS, if each D keeps half of its value. */
void ls_remove_prior(LeastSquares *s, double *work);
/* Add a pseudo-row e_j of weight q whose target is the initial weight. */
void ls_add_prior(LeastSquares *s, ptrdiff_t j, double q, double *work);
/* Write n rows to `block` (stride each), less the means before each, which are then moved by its
   weight q; q becomes its weight in the triangle. `weights` are those of the energy, NULL for ones.
   */
void ls_centre(LeastSquares *s, ptrdiff_t n, const double *X, const double *Y, double *q,
               const double *weights, double *block);
/* Whether means and sums of squares are finite; with `whole`, also D and theta. */
int ls_is_finite(const LeastSquares *s, int whole);
/* Rotate rows that have been centred, and are 0 left of the panel from `start` on, into the triangle;
   the errors remain in the block, which has room for a multiple of 8 rows. */
void ls_rotate_block(LeastSquares *s, ptrdiff_t n, double *block, double *q, ptrdiff_t start);

#endif
