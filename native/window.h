/* Least squares on a sliding window: rows enter and leave a triangle by signed rotations. */
#ifndef ONEPASS_WINDOW_H
#define ONEPASS_WINDOW_H

#include "rows.h"

typedef struct {
    Rows rows;             /* the triangle [U theta] and D of p = free + d columns, and w */
    ptrdiff_t d, c;        /* features, outputs */
    int free, loose;       /* intercept; whether the penalty leaves directions undetermined */
    ptrdiff_t limit;       /* maximum number of rows; 0 if the caller counts the rows that leave */
    double step;           /* half-lives between two rows, if rows have no times */
    double *stored;        /* rows: 1 if `free`, x (d), b (c), weight, clock in half-lives */
    ptrdiff_t stride, room, begin, end; /* `stored` has `room` rows; the window is begin to end */
    double zero;           /* the clock at which D has its true scale */
    double renewed;        /* the clock at which the penalty had its full weight */
    ptrdiff_t since;       /* rows that left since the triangle was computed anew */
    int built;             /* whether the triangle is current and well conditioned */
    double *base, *base_diagonal; /* [U theta] and D of the penalty, (p, p + c) and (p) */
    double *center;        /* the row (p + c) to which the triangle is relative */
    /* Sums of squares of the columns (p) and targets (c), and, from `rows.wide` on, of the errors
       (c), and the weight of the rows; the second copy is that of the other triangle. `peak`
       contains the largest D, and sums, since `built`. */
    double *sums[2], *peak;
    void *memory;
} Window;

/* Allocate the state; returns 0 on failure. */
int window_open(Window *window, ptrdiff_t d, ptrdiff_t c, int free, int loose);
void window_close(Window *window);

/* Copy everything except pointers from another window of the same sizes; returns 0 on failure. */
int window_copy(Window *to, const Window *from);

/* Set the penalty: R and z in one array (p, p + c). */
void window_penalise(Window *window, const double *triangle);

/* Make room for n more rows; returns 0 if there is no memory. */
int window_reserve(Window *window, ptrdiff_t n);

/* Append n rows without learning them; returns 0 if there is no memory. `weights` may be NULL, and
   `clock` too: then the clock advances by `step`. The triangle is computed later. */
int window_append(Window *window, ptrdiff_t n, const double *X, const double *B,
                  const double *weights, const double *clock);

/* Learn n rows, one after the other; errors (n, c) are those just before each row. `leaving` (n) is
   the number of rows that leave after each row, if there is no limit. Returns the number of rows
   learned: learning stops before a row if the window does not determine the weights accurately, or
   if numbers are extreme. Returns -1 if there is no memory. */
ptrdiff_t window_learn(Window *window, ptrdiff_t n, const double *X, const double *B,
                       const double *weights, const double *clock, const double *leaving,
                       double *errors);

/* Whether the triangle is well conditioned; it is computed if necessary. */
int window_ready(Window *window);

/* The variance of the prediction of x (d) relative to that of a target. */
double window_leverage(const Window *window, const double *x);

static inline ptrdiff_t window_columns(const Window *window)
{
    return window->d + window->free;
}

/* The row with an index, of `stride` numbers. */
static inline double *window_row(const Window *window, ptrdiff_t i)
{
    return window->stored + i * window->stride;
}

static inline double *window_clock_of(const Window *window, ptrdiff_t i)
{
    return window_row(window, i) + window->stride - 1;
}

/* The clock of the last row. */
static inline double window_clock(const Window *window)
{
    return window->end > window->begin ? *window_clock_of(window, window->end - 1) : 0.0;
}

#endif
