/* Least squares on the rows of a window: a row that leaves is added with the weight -1.

   Behind the vector follow WINDOW_HEAD numbers, an empty state (the penalty alone), a second state
   (the shadow), the largest D of each weight since the state was computed anew (d), and the ring of
   stored rows: features, targets, weight, and FADED when the row was learned.

   Removing rows accumulates rounding errors. Therefore, after four windows have left, the shadow
   learns each new row too, from the empty state. Once it has learned all rows of the window, it
   replaces the state; a row costs at most three rotations. If so much information leaves at once
   that digits would be lost, the state is recomputed from the n stored rows, in O(n d^2). */
#include "least_squares.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = CHUNK / 2, WINDOWS = 4 };
static const double LEAST = 1e-307, MOST = 1e300; /* bounds of a prior that fades */
static const double LOST = 1e-10; /* smallest ratio of D to its peak without a loss of digits */

typedef struct {
    double *extra, *empty, *shadow, *peak, *ring;
    ptrdiff_t size, width; /* of the state, and of a stored row */
} Window;

ptrdiff_t window_size(const double *head, ptrdiff_t capacity)
{
    const ptrdiff_t d = head[FEATURES], c = head[OUTPUTS];
    return 3 * ls_size(head) + WINDOW_HEAD + d + capacity * (d + c + 2);
}

static Window window_of(double *vector)
{
    const ptrdiff_t d = vector[FEATURES], c = vector[OUTPUTS];
    Window w = {.size = ls_size(vector), .width = d + c + 2};
    w.extra = vector + w.size;
    w.empty = w.extra + WINDOW_HEAD;
    w.shadow = w.empty + w.size;
    w.peak = w.shadow + w.size;
    w.ring = w.peak + d;
    return w;
}

/* A stored row; 0 is the oldest. */
static double *stored_row(const Window *w, ptrdiff_t i)
{
    const ptrdiff_t capacity = w->extra[CAPACITY], next = w->extra[NEXT], n = w->extra[STORED];
    return w->ring + (next + 2 * capacity - n + i) % capacity * w->width;
}

static void store(Window *w, const double *x, const double *y, double weight, double clock,
                  ptrdiff_t d, ptrdiff_t c)
{
    double *row = w->ring + (ptrdiff_t)w->extra[NEXT] * w->width;
    memcpy(row, x, d * sizeof *row);
    memcpy(row + d, y, c * sizeof *row);
    row[d + c] = weight;
    row[d + c + 1] = clock;
    w->extra[NEXT] = w->extra[NEXT] + 1.0 < w->extra[CAPACITY] ? w->extra[NEXT] + 1.0 : 0.0;
    w->extra[STORED]++;
}

/* Copy the empty state, as if it had faded as much as the state has: the ridge is held, and a prior
   fades. */
static void copy_empty(const Window *w, double *to, double faded, double factor, double *work)
{
    memcpy(to, w->empty, w->size * sizeof *to);
    to[FACTOR] = factor;
    LeastSquares s = ls_of(to);
    to[FADED] = faded;
    for (ptrdiff_t p = 0; s.visited && p < (s.d + 7) / 8; p++)
        s.visited[p] = faded;
    for (ptrdiff_t j = 0; s.prior && j < s.d; j++)
        if (s.prior[j] > 0.0) {
            s.prior[j] = fmax(s.prior[j] * exp2(faded), LEAST);
            ls_add_prior(&s, j, s.prior[j], work);
        }
}

/* Compute the state anew from the stored rows. */
static int rebuild(double *vector, Window *w, double *work)
{
    const ptrdiff_t d = vector[FEATURES], c = vector[OUTPUTS], n = w->extra[STORED];
    const double rows = vector[ROWS];
    double *X = malloc(n * (d + 2 * c + 2) * sizeof *X), *Y = X + n * d, *errors = Y + n * c;
    double *weights = errors + n * c, *fades = weights + n;
    if (!X)
        return 0;
    double before = n ? stored_row(w, 0)[d + c + 1] : 0.0;
    copy_empty(w, vector, before, vector[FACTOR], work);
    for (ptrdiff_t i = 0; i < n; i++) {
        const double *row = stored_row(w, i);
        memcpy(X + i * d, row, d * sizeof *X);
        memcpy(Y + i * c, row + d, c * sizeof *Y);
        weights[i] = row[d + c];
        fades[i] = row[d + c + 1] - before;
        before = row[d + c + 1];
    }
    const int good = ls_learn_rows(vector, n, X, Y, weights, fades, errors);
    LeastSquares s = ls_of(vector);
    vector[ROWS] = rows;
    ls_remove_prior(&s, work);
    memset(w->peak, 0, d * sizeof *w->peak);
    w->extra[GONE] = 0.0;
    w->extra[SHADOWED] = -1.0;
    free(X);
    return good;
}

/* Add the prior of features that are new to the state to the shadow; the empty state stores it as
   it was before it faded. */
static void share_prior(double *vector, Window *w, double *work)
{
    const LeastSquares s = ls_of(vector), empty = ls_of(w->empty);
    LeastSquares shadow = ls_of(w->shadow);
    for (ptrdiff_t j = 0; j < s.d; j++)
        if (s.prior[j] > 0.0 && empty.prior[j] == 0.0) {
            empty.prior[j] = fmin(s.prior[j] * exp2(-vector[FADED]), MOST);
            if (w->extra[SHADOWED] >= 0.0)
                ls_add_prior(&shadow, j, shadow.prior[j] = s.prior[j], work);
        }
}

/* Let the shadow learn rows that the state has learned; replace the state once it has all rows. */
static int follow(double *vector, Window *w, ptrdiff_t n, const double *X, const double *Y,
                  const double *weights, const double *fades, double *errors, double *work)
{
    double *extra = w->extra;
    int good = 1;
    if (extra[SHADOWED] >= 0.0) {
        good = ls_learn_rows(w->shadow, n, X, Y, weights, fades, errors);
        extra[SHADOWED] += n;
        if (extra[SHADOWED] < extra[STORED])
            return good;
        if (extra[SHADOWED] == extra[STORED]) { /* otherwise rows of the shadow have left */
            LeastSquares s = ls_of(vector);
            w->shadow[ROWS] = vector[ROWS];
            memcpy(vector, w->shadow, w->size * sizeof *vector);
            ls_remove_prior(&s, work);
            memset(w->peak, 0, (size_t)vector[FEATURES] * sizeof *w->peak);
            extra[GONE] = 0.0;
        }
        extra[SHADOWED] = -1.0;
    }
    if (extra[GONE] >= WINDOWS * extra[STORED]) {
        copy_empty(w, w->shadow, vector[FADED], vector[FACTOR], work);
        extra[SHADOWED] = 0.0;
    }
    return good;
}

/* Learn n rows, after each of which some leave; returns whether no digits were lost. The ring is
   not changed. */
static int slide(LeastSquares *s, const Window *w, ptrdiff_t n, const double *X, const double *Y,
                 const double *weights, const double *leaving, double *block, double *errors)
{
    const ptrdiff_t d = s->d, c = s->c;
    double q[CHUNK + 8], before[CHUNK], *v = s->head;
    ptrdiff_t m = 0, gone = 0, at[LONGEST];
    for (ptrdiff_t i = 0; i < n; i++) {
        const double weight = weights ? weights[i] : 1.0;
        at[i] = m;
        before[m] = 1.0;
        q[m] = weight;
        ls_centre(s, 1, X + i * d, Y + i * c, q + m, NULL, block + m * s->stride);
        m++;
        for (double k = leaving[i]; k > 0.0; k--, m++) {
            const double *row = stored_row(w, gone++);
            q[m] = -row[d + c] * exp2(v[FADED] - row[d + c + 1]);
            ls_centre(s, 1, row, row + d, q + m, NULL, block + m * s->stride);
            before[m] = q[m];
        }
    }
    for (ptrdiff_t j = 0; j < d; j++)
        w->peak[j] = fmax(w->peak[j], s->T[j * (s->stride + 1)]);
    ls_rotate_block(s, m, block, q, 0);
    int good = 1;
    for (ptrdiff_t r = 0; r < m; r++) /* of a row that leaves, q grows by 1 / (1 - leverage) */
        good &= before[r] >= 0.0 || (q[r] <= 0.0 && q[r] * LOST > before[r]);
    for (ptrdiff_t j = 0; j < d && gone; j++)
        good &= s->T[j * (s->stride + 1)] >= LOST * w->peak[j];
    for (ptrdiff_t i = 0; i < n; i++)
        memcpy(errors + i * c, block + at[i] * s->stride + d, c * sizeof *errors);
    v[ROWS] += n;
    return good;
}

/* The number of rows that can be learned together, of at most `limit`; and those that leave after
   each. The first row may have more rows that leave than can be removed together. */
static ptrdiff_t count_together(const Window *w, ptrdiff_t limit, const double *leaving,
                                double *leave, double *gone)
{
    const double *extra = w->extra, length = extra[LENGTH];
    ptrdiff_t m = 0;
    *gone = 0.0;
    while (m < limit) {
        const double stored = extra[STORED] + (double)(m + 1) - *gone;
        const double some = leaving ? leaving[m] : stored > length ? stored - length : 0.0;
        if (m && *gone + some > fmin(extra[STORED], LONGEST))
            break;
        leave[m++] = fmin(some, extra[STORED]);
        *gone += leave[m - 1];
        /* the shadow replaces the state after the row with which it has all rows */
        if (extra[SHADOWED] >= 0.0 && extra[SHADOWED] + (double)m >= stored - leave[m - 1])
            break;
    }
    return m;
}

int window_learn(double *vector, ptrdiff_t n, const double *X, const double *Y,
                 const double *weights, const double *fades, const double *leaving,
                 double *errors)
{
    LeastSquares s = ls_of(vector);
    Window w = window_of(vector);
    const ptrdiff_t d = s.d, c = s.c, saved = w.size + d;
    const int few = n == 1 && !leaving && w.extra[STORED] <= w.extra[LENGTH]; /* leave */
    const ptrdiff_t rows = few ? 8 : CHUNK + 8;
    const int fading = fades || vector[FACTOR] != 0.0;
    const ptrdiff_t size = rows * s.stride + ls_work_size(&s) + saved + LONGEST * c;
    double leave[LONGEST], *memory, *block = ls_room(size, &memory);
    double *work = block + rows * s.stride, *copy = work + ls_work_size(&s);
    double *unused = copy + saved; /* errors of the shadow */
    int good = block != NULL;
    ptrdiff_t limit = LONGEST;
    for (ptrdiff_t i = 0, m; i < n && block; i += m) {
        const double *x = X + i * d, *y = Y + i * c, *own = weights ? weights + i : NULL;
        const double now = fades ? fades[i] : vector[FACTOR];
        const double *scores;
        double gone;
        const int unsettled = ls_prepare(&s, x, now, own ? *own : 1.0, work, &scores);
        if (s.prior && vector[PRIOR] > 0.0)
            share_prior(vector, &w, work);
        m = fading ? 1 : n - i < limit ? n - i : limit;
        if (unsettled) /* rows that leave raise no prior */
            m = ls_rows_with_prior(&s, m, x, own, NULL, copy);
        m = count_together(&w, m, leaving ? leaving + i : NULL, leave, &gone);
        if (m > 1) {
            memcpy(copy, vector, w.size * sizeof *copy);
            memcpy(copy + w.size, w.peak, d * sizeof *copy);
        }
        const int many = leave[0] > LONGEST;
        if (many)
            leave[0] = 0.0; /* the state is computed anew */
        int accurate = slide(&s, &w, m, x, y, own, leave, block, errors + i * c) && !many;
        if (!accurate && m > 1) {
            memcpy(vector, copy, w.size * sizeof *copy);
            memcpy(w.peak, copy + w.size, d * sizeof *copy);
            limit = m / 2;
            m = 0;
            continue;
        }
        ls_set_errors(&s, y, scores, errors + i * c);
        limit = limit < LONGEST ? 2 * limit : LONGEST;
        w.extra[STORED] -= gone;
        w.extra[GONE] += gone;
        for (ptrdiff_t r = 0; r < m; r++)
            store(&w, x + r * d, y + r * c, own ? own[r] : 1.0, vector[FADED], d, c);
        if (!accurate)
            good &= rebuild(vector, &w, work);
        good &= follow(vector, &w, m, x, y, own, fades ? fades + i : NULL, unused, work);
    }
    free(memory);
    return good && ls_is_finite(&s, n > 1);
}
