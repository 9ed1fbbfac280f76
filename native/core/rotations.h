/* The loops of least_squares.c for one kind of processor; least_squares.c includes this file once
   for each, with LANES doubles in a vector.

   A row [a b] of weight q is added to row j of the triangle by a rotation without square roots,
   where x is what is left of the row, u is row j of [U theta], and a = x_j:

       D' = D + q a^2,   x <- x - a u,   u <- u + (q a / D') x,   q <- q D / D'              (1)

   If D <= D' / 4, u is computed as (D / D') u + (q a / D') x with the former x: it loses no digits
   if the row outweighs the past. What is left of b after all rotations is its error before the row
   was learned. While D is 0, the row replaces u.

   Several rows i at once, in a unit, by running sums:

       x_i <- (x_i - a_i u) - a_i S_i / D_i,   S_i = sum over l < i of q_l a_l (x_l - a_l u)   (2)

   where D_i is D before row i. If the unit outweighs the past, S_i contains x_l in place of
   x_l - a_l u, and u D_0 / D_i is in place of u. Row i k + t of a unit of LANES k rows is lane i of
   vector t. Columns right of a panel of 8 are rotated by (1), LANES columns in a vector. */

typedef double NAMED(vector) __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef long long NAMED(mask) __attribute__((vector_size(8 * LANES)));
#define vector NAMED(vector)
#define mask NAMED(mask)
#define INLINE static inline __attribute__((always_inline)) MACHINE

typedef struct {
    vector weighted[8], before[8]; /* q a, and a / D before each row */
    double past, over;             /* D before, and 1 / D after the unit */
    int sharp;                     /* whether the unit outweighs the past */
} NAMED(Factors);
#define Factors NAMED(Factors)

/* For each lane the sum of the lanes before it; `all` is the sum of all. */
INLINE vector NAMED(sums_before)(vector v, double *all)
{
    const vector zero = {0};
#if LANES == 8
    v += __builtin_shufflevector(zero, v, 0, 8, 0, 10, 0, 12, 0, 14);
    v += __builtin_shufflevector(zero, v, 0, 1, 9, 9, 4, 5, 13, 13);
    v += __builtin_shufflevector(zero, v, 0, 1, 2, 3, 11, 11, 11, 11);
    v = __builtin_shufflevector(v, v, 7, 0, 1, 2, 3, 4, 5, 6);
#elif LANES == 4
    v += __builtin_shufflevector(zero, v, 0, 4, 0, 6);
    v += __builtin_shufflevector(zero, v, 0, 1, 5, 5);
    v = __builtin_shufflevector(v, v, 3, 0, 1, 2);
#else
    v += __builtin_shufflevector(zero, v, 0, 2);
    v = __builtin_shufflevector(v, v, 1, 0);
#endif
    *all = v[0];
    v[0] = 0.0;
    return v;
}

/* The factors of a unit with the column a; returns D after it. The rotations by (1), in the order
   of the rows, are written to `rotations` if it is not NULL. */
INLINE double NAMED(factors_of)(const vector *a, vector *q, double past, Factors *f,
                                Rotation *rotations, const int k)
{
    vector D[9], inverse[9], sum = {0};
    _Alignas(64) double gain[8 * LANES], retain[8 * LANES];
    double all;
#pragma GCC unroll 8
    for (int t = 0; t < k; t++) {
        D[t] = sum;
        sum += (f->weighted[t] = q[t] * a[t]) * a[t];
    }
    D[k] = sum;
    sum = NAMED(sums_before)(sum, &all) + past;
#pragma GCC unroll 9
    for (int t = 0; t <= k; t++) {
        D[t] += sum;
        inverse[t] = (vector)((mask)(1.0 / D[t]) & (D[t] > TINY));
    }
    const double after = past + all;
    f->past = past;
    f->over = after > TINY ? 1.0 / after : 0.0;
    f->sharp = fabs(past) < 0.25 * fabs(after); /* not if both are 0, so that u is kept */
#pragma GCC unroll 8
    for (int t = 0; t < k; t++) {
        const mask none = D[t + 1] <= TINY, one = (mask)((vector){0} + 1.0);
        const vector share = (vector)((none & one) | (~none & (mask)(D[t] * inverse[t + 1])));
        f->before[t] = a[t] * inverse[t];
        q[t] *= share;
        *(vector *)(gain + LANES * t) = f->weighted[t] * inverse[t + 1];
        *(vector *)(retain + LANES * t) = share;
    }
    if (rotations)
        for (int i = 0; i < LANES * k; i++) {
            Rotation *r = rotations + i / GROUP * PANEL;
            const int at = i % k * LANES + i / k;
            r->a[i % GROUP] = ((const double *)a)[at];
            r->gain[i % GROUP] = gain[at];
            r->retain[i % GROUP] = retain[at];
            r->sharp = f->sharp;
        }
    return after;
}

/* (2) for a column of a unit and the number u of the triangle; returns the new u. */
INLINE double NAMED(rotate_column)(vector *x, double u, const vector *a, const Factors *f,
                                   const int k, const int sharp)
{
    vector y[8], sums[8], sum = {0};
    const double v = sharp ? f->past * u : u;
    double all;
#pragma GCC unroll 8
    for (int t = 0; t < k; t++) {
        y[t] = x[t] - v * (sharp ? f->before : a)[t];
        sums[t] = sum;
        sum += f->weighted[t] * (sharp ? x : y)[t];
    }
    sum = NAMED(sums_before)(sum, &all);
#pragma GCC unroll 8
    for (int t = 0; t < k; t++)
        x[t] = y[t] - f->before[t] * (sums[t] + sum);
    return (sharp ? v * f->over : u) + f->over * all;
}

/* Rotate a unit of LANES k rows of `block` into `count` rows of the triangle at T, in the columns
   up to `width`. */
INLINE void NAMED(rotate_unit)(double *T, ptrdiff_t stride, int count, int width, double *block,
                               double *q, Rotation *rotations, const int k)
{
    vector tile[16][8] __attribute__((aligned(64))), weights[8];
    Factors factors[2];
    for (int i = 0; i < LANES; i++)
        for (int t = 0; t < k; t++) {
            const double *row = block + (i * k + t) * stride;
            ((double *)weights)[t * LANES + i] = q[i * k + t];
            for (int l = 0; l < width; l++)
                ((double *)tile[l])[t * LANES + i] = row[l];
        }
    T[0] = NAMED(factors_of)(tile[0], weights, T[0], factors, rotations, k);
    for (int j = 0; j < count; j++) {
        double *u = T + j * stride;
        const Factors *f = factors + j % 2;
        for (int l = j + 1; l < width; l++) {
            u[l] = f->sharp ? NAMED(rotate_column)(tile[l], u[l], tile[j], f, k, 1)
                            : NAMED(rotate_column)(tile[l], u[l], tile[j], f, k, 0);
            if (l == j + 1 && l < count) /* early, since it takes long */
                T[l * stride + l] = NAMED(factors_of)(tile[l], weights, T[l * stride + l],
                                                      factors + l % 2,
                                                      rotations ? rotations + l : NULL, k);
        }
    }
    for (int i = 0; i < LANES * k; i++) {
        const int at = i % k * LANES + i / k;
        q[i] = ((double *)weights)[at];
        for (int l = count; l < width; l++)
            block[i * stride + l] = ((double *)tile[l])[at];
    }
}
#define ROTATE_UNIT(k)                                                                             \
    static MACHINE __attribute__((noinline)) void NAMED(rotate_unit_##k)(                          \
        double *T, ptrdiff_t stride, int count, int width, double *block, double *q,               \
        Rotation *rotations)                                                                       \
    {                                                                                              \
        NAMED(rotate_unit)(T, stride, count, width, block, q, rotations, k);                       \
    }
ROTATE_UNIT(8)
ROTATE_UNIT(4)
ROTATE_UNIT(2)
ROTATE_UNIT(1)
#undef ROTATE_UNIT

/* (1) for GROUP rows and `count` rows of the triangle, in `many` vectors of columns. */
INLINE void NAMED(rotate_strip)(double *T, ptrdiff_t stride, int count, double *block,
                                const Rotation *r, const int many, const int sharp)
{
    vector x[GROUP][MANY], u[MANY];
#pragma GCC unroll 8
    for (int i = 0; i < GROUP; i++)
#pragma GCC unroll 2
        for (int v = 0; v < many; v++)
            x[i][v] = *(vector *)(block + i * stride + LANES * v);
    for (int j = 0; j < count; j++, r++, T += stride) {
#pragma GCC unroll 2
        for (int v = 0; v < many; v++)
            u[v] = *(vector *)(T + LANES * v);
#pragma GCC unroll 8
        for (int i = 0; i < GROUP; i++)
#pragma GCC unroll 2
            for (int v = 0; v < many; v++) {
                const vector left = x[i][v] - r->a[i] * u[v];
                u[v] = sharp && r->sharp ? r->retain[i] * u[v] + r->gain[i] * x[i][v]
                                         : u[v] + r->gain[i] * left;
                x[i][v] = left;
            }
#pragma GCC unroll 2
        for (int v = 0; v < many; v++)
            *(vector *)(T + LANES * v) = u[v];
    }
#pragma GCC unroll 8
    for (int i = 0; i < GROUP; i++)
#pragma GCC unroll 2
        for (int v = 0; v < many; v++)
            *(vector *)(block + i * stride + LANES * v) = x[i][v];
}

/* Rotate n <= CHUNK rows, which are 0 left of the panel that begins with column `start`, into the
   triangle; `block` and q have room for a multiple of 8 rows. */
static MACHINE void NAMED(rotate)(double *T, ptrdiff_t d, ptrdiff_t c, ptrdiff_t stride,
                                  ptrdiff_t n, double *block, double *q, ptrdiff_t start)
{
    Rotation rotations[CHUNK / GROUP][PANEL];
    const ptrdiff_t end = d + c, rows = (n + 7) & -8;
    memset(block + n * stride, 0, (rows - n) * stride * sizeof *block);
    memset(q + n, 0, (rows - n) * sizeof *q);
    for (ptrdiff_t from = start, to; from < d; from = to) {
        const int whole = end - from <= 16; /* all columns are in the tile */
        to = whole || from + PANEL > d ? d : from + PANEL;
        double *row = T + from * stride + from;
        const int count = to - from, width = whole ? end - from : PANEL;
        for (ptrdiff_t i = 0, used; i < rows; i += used) {
            const ptrdiff_t left = rows - i;
            double *at = block + i * stride + from;
            Rotation *r = whole ? NULL : rotations[i / GROUP];
            const int k = left >= 8 * LANES ? 8 : left >= 4 * LANES ? 4 : left >= 2 * LANES ? 2 : 1;
            used = k * LANES;
            if (k == 8)
                NAMED(rotate_unit_8)(row, stride, count, width, at, q + i, r);
            else if (k == 4)
                NAMED(rotate_unit_4)(row, stride, count, width, at, q + i, r);
            else if (k == 2)
                NAMED(rotate_unit_2)(row, stride, count, width, at, q + i, r);
            else
                NAMED(rotate_unit_1)(row, stride, count, width, at, q + i, r);
        }
        /* a stretch of 64 columns of the panel remains in the nearest cache for all rows */
        for (ptrdiff_t l = from + PANEL; l < end && !whole; l += 64)
            for (ptrdiff_t i = 0; i < rows; i += GROUP) {
                const ptrdiff_t stop = l + 64 < stride ? l + 64 : stride;
                const Rotation *r = rotations[i / GROUP];
                double *x = block + i * stride;
                int sharp = 0;
                for (int j = 0; j < count; j++)
                    sharp |= r[j].sharp;
                ptrdiff_t at = l;
                for (; sharp && at < stop; at += LANES)
                    NAMED(rotate_strip)(row + at - from, stride, count, x + at, r, 1, 1);
                for (; at + MANY * LANES <= stop; at += MANY * LANES)
                    NAMED(rotate_strip)(row + at - from, stride, count, x + at, r, MANY, 0);
                for (; at < stop; at += LANES)
                    NAMED(rotate_strip)(row + at - from, stride, count, x + at, r, 1, 0);
            }
    }
}

/* (1) for one row and one vector of columns right of a panel. */
INLINE void NAMED(rotate_vector)(double *T, ptrdiff_t stride, const int count, double *x,
                                 const Rotation *r, const int sharp)
{
    vector left = *(vector *)x;
#pragma GCC unroll 8
    for (int j = 0; j < count; j++) {
        vector *u = (vector *)(T + j * stride), old = left;
        left -= r->a[j] * *u;
        *u = sharp ? r->retain[j] * *u + r->gain[j] * old : *u + r->gain[j] * left;
    }
    *(vector *)x = left;
}

/* (1) for one row of weight q, which is 0 left of column `start`; returns what is left of q. */
static MACHINE double NAMED(rotate_one)(double *T, ptrdiff_t d, ptrdiff_t stride, double *x,
                                        double q, ptrdiff_t start)
{
    Rotation r;
    for (ptrdiff_t from = start & -LANES; from < d; from += LANES) {
        const int count = d - from < LANES ? d - from : LANES;
        double *row = T + from * stride + from;
        vector left = *(vector *)(x + from);
        r.sharp = 0;
        for (int j = 0; j < count; j++) {
            vector *u = (vector *)(row + j * stride), old = left; /* left of its diagonal, u is 0 */
            const double a = left[j], past = (*u)[j], after = past + q * a * a;
            const double over = after > TINY ? 1.0 / after : 0.0;
            r.a[j] = a;
            r.gain[j] = q * a * over;
            r.retain[j] = after > TINY ? past * over : 1.0;
            const int sharp = fabs(past) <= 0.25 * fabs(after);
            r.sharp |= sharp;
            q *= r.retain[j];
            left -= a * *u;
            left[j] = 0.0;
            *u = sharp ? r.retain[j] * *u + r.gain[j] * old : *u + r.gain[j] * left;
            row[j * stride + j] = after;
        }
        *(vector *)(x + from) = left;
        for (ptrdiff_t l = LANES; l < stride - from; l += LANES)
            if (count == LANES && !r.sharp)
                NAMED(rotate_vector)(row + l, stride, LANES, x + from + l, &r, 0);
            else
                NAMED(rotate_vector)(row + l, stride, count, x + from + l, &r, 1);
    }
    return q;
}

/* Eliminate a row [a b], which is 0 left of column `start`: a becomes the row in units of U, and b
   its error. */
static MACHINE void NAMED(eliminate)(const double *T, ptrdiff_t d, ptrdiff_t stride, double *x,
                                     ptrdiff_t start)
{
    for (ptrdiff_t from = start & -LANES; from < d; from += LANES) {
        const int count = d - from < LANES ? d - from : LANES;
        const double *row = T + from * stride + from;
        _Alignas(64) double a[LANES] = {0};
        vector left = *(vector *)(x + from);
        for (int j = 0; j < count; j++) {
            a[j] = left[j];
            left -= a[j] * *(const vector *)(row + j * stride);
            left[j] = a[j];
        }
        *(vector *)(x + from) = left;
        for (ptrdiff_t l = LANES; l < stride - from; l += LANES) {
            vector *to = (vector *)(x + from + l), even = *to, odd = {0};
            if (count == LANES)
#pragma GCC unroll 4
                for (int j = 0; j < LANES; j += 2) {
                    even -= a[j] * *(const vector *)(row + l + j * stride);
                    odd -= a[j + 1] * *(const vector *)(row + l + (j + 1) * stride);
                }
            else
                for (int j = 0; j < count; j++)
                    even -= a[j] * *(const vector *)(row + l + j * stride);
            *to = even + odd;
        }
    }
}

/* `eliminate` for GROUP rows, which are 0 left of the panel that begins with column `start`. */
INLINE void NAMED(eliminate_strip)(const double *T, ptrdiff_t stride, int count, double *x,
                                   double a[GROUP][PANEL], const int many)
{
    vector rest[GROUP][MANY];
#pragma GCC unroll 8
    for (int i = 0; i < GROUP; i++)
#pragma GCC unroll 2
        for (int v = 0; v < many; v++)
            rest[i][v] = *(vector *)(x + i * stride + LANES * v);
    for (int j = 0; j < count; j++)
#pragma GCC unroll 2
        for (int v = 0; v < many; v++) {
            const vector u = *(const vector *)(T + j * stride + LANES * v);
#pragma GCC unroll 8
            for (int i = 0; i < GROUP; i++)
                rest[i][v] -= a[i][j] * u;
        }
#pragma GCC unroll 8
    for (int i = 0; i < GROUP; i++)
#pragma GCC unroll 2
        for (int v = 0; v < many; v++)
            *(vector *)(x + i * stride + LANES * v) = rest[i][v];
}
static MACHINE void NAMED(eliminate_group)(const double *T, ptrdiff_t d, ptrdiff_t stride,
                                           double *block, ptrdiff_t start)
{
    double a[GROUP][PANEL];
    for (ptrdiff_t from = start; from < d; from += PANEL) {
        const int count = d - from < PANEL ? d - from : PANEL;
        const double *row = T + from * stride + from;
        for (int i = 0; i < GROUP; i++) {
            double *x = block + i * stride + from;
            for (int j = 0; j < count; j++) {
                a[i][j] = x[j];
                for (int l = j + 1; l < PANEL; l++)
                    x[l] -= a[i][j] * row[j * stride + l];
            }
        }
        ptrdiff_t l = PANEL;
        for (; l + MANY * LANES <= stride - from; l += MANY * LANES)
            NAMED(eliminate_strip)(row + l, stride, count, block + from + l, a, MANY);
        for (; l < stride - from; l += LANES)
            NAMED(eliminate_strip)(row + l, stride, count, block + from + l, a, 1);
    }
}

/* The product of u and w from column l on; left of l, u or w is 0. */
static MACHINE double NAMED(dot)(const double *u, const double *w, ptrdiff_t l, ptrdiff_t d)
{
    vector sum = {0}, more = {0};
    double total = 0.0;
    for (l &= -LANES; l + 2 * LANES <= d; l += 2 * LANES) {
        sum += *(const vector *)(u + l) * *(const vector *)(w + l);
        more += *(const vector *)(u + l + LANES) * *(const vector *)(w + l + LANES);
    }
    for (; l < d; l++)
        total += u[l] * w[l];
    sum += more;
    for (int i = 0; i < LANES; i++)
        total += sum[i];
    return total;
}

/* Replace a vector of a row by its difference from the means. With `bounded`, add its square to the
   energy of the columns that the row excites: that it changes, or without an intercept, where it is
   not 0. */
INLINE vector NAMED(away)(vector *row, vector mean, vector rest, const int bounded, double weight,
                          vector *energy, vector *active, vector *last)
{
    const vector x = *row, away = (x - mean) - rest;
    if (bounded) {
        const vector own = (vector)((mask)((vector){0} + weight) & (x != *last));
        *energy += own * away * away;
        *active += own;
        *last = x;
    }
    return *row = away;
}

/* Replace rows of a block by their differences from the running means, where the means move by
   `share` of each difference; add h times the squares to sums. Within the block the means are
   relative to those before it, so that their rounding errors are small. */
INLINE void NAMED(centre_vector)(LeastSquares *s, ptrdiff_t n, double *block, const double *share,
                                 const double *h, const double *weights, ptrdiff_t l,
                                 const int bounded)
{
    const vector m = *(vector *)(s->means + l), rest = *(vector *)(s->rests + l);
    vector moved = {0}, sum = *(vector *)(s->sums + l), energy = {0}, active = {0}, last = {0};
    const double centred = has(s->head, FREE) ? 1.0 : 0.0; /* without an intercept `last` remains 0 */
    if (bounded)
        last = *(vector *)(s->last + l);
    for (ptrdiff_t r = 0; r < n; r++) {
        const vector away = NAMED(away)((vector *)(block + r * s->stride + l), m, rest + moved,
                                        bounded, weights[r], &energy, &active, &last);
        moved += share[r] * away;
        sum += h[r] * away * away;
        last *= centred;
    }
    const vector add = rest + moved, t = m + add, back = t - m;
    *(vector *)(s->means + l) = t;
    *(vector *)(s->rests + l) = (m - (t - back)) + (add - back);
    *(vector *)(s->sums + l) = sum;
    if (bounded) {
        *(vector *)(s->energy + l) += energy;
        *(vector *)(s->active + l) += active;
        *(vector *)(s->last + l) = last;
    }
}
static MACHINE void NAMED(centre)(LeastSquares *s, ptrdiff_t n, double *block, const double *share,
                                  const double *h, const double *weights)
{
    for (ptrdiff_t l = 0; l < s->stride; l += LANES)
        if (s->energy)
            NAMED(centre_vector)(s, n, block, share, h, weights, l, 1);
        else
            NAMED(centre_vector)(s, n, block, share, h, weights, l, 0);
}

/* The same for one row that outweighs the past: the means are the row less `share` of the
   difference, so that a repeated row leaves no rounding error. */
static MACHINE void NAMED(centre_near)(LeastSquares *s, double *row, double share, double h,
                                       double weight)
{
    for (ptrdiff_t l = 0; l < s->stride; l += LANES) {
        const vector x = *(vector *)(row + l), none = {0};
        vector *energy = (vector *)(s->energy + l), *active = (vector *)(s->active + l);
        vector *last = (vector *)(s->last + l), unused = none;
        const int bounded = s->energy != NULL;
        const vector away = NAMED(away)(
            (vector *)(row + l), *(vector *)(s->means + l), *(vector *)(s->rests + l), bounded,
            weight, bounded ? energy : &unused, bounded ? active : &unused, bounded ? last : &unused);
        const vector add = -away * share, t = x + add, back = t - x;
        *(vector *)(s->means + l) = t;
        *(vector *)(s->rests + l) = (x - (t - back)) + (add - back);
        *(vector *)(s->sums + l) += h * away * away;
    }
}
#undef vector
#undef mask
#undef Factors
#undef INLINE
