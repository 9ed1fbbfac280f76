/* Recursive least squares row by row, by rotations without square roots [1], a few rows at once.
 *
 * With R = D^(1/2) U, where U has ones on its diagonal, and z = D^(1/2) theta, a row [a b] of
 * weight q is added column by column:
 *
 *     D_j' = D_j + q a_j^2,   k = q a_j / D_j',   q <- q D_j / D_j'                           (1)
 *     [a b] <- [a b] - a_j [U theta]_j,   [U theta]_j <- [U theta]_j + k [a b]                (2)
 *
 * The remainder of b is the row's error before it was learned, and the least sum of squares grows
 * by q times its square. Fading multiplies D. Many rows are added together, column by column
 * (givens.c), and each number of the triangle is read and written once for all of them.
 * The rows of a block are centred at the means before the block; the means before each row relative
 * to these are weighted means of the rows so far.
 * If a row has far more information than all rows before it, (2) would subtract large numbers; then
 * [U theta]_j <- D_j / D_j' [U theta]_j + k [a b], with the original row, is used instead.
 * Cost: 2 d^2 + O(d) operations per row.
 *
 * [1] W. M. Gentleman, "Least squares computations by Givens transformations without square roots",
 *     Journal of the Institute of Mathematics and its Applications 12, 1973.
 */
#include "rows.h"

#include "givens.h"
#include "pending.h"

enum { AT_ONCE = GROUPS * K }; /* maximum number of rows per block */
static const double TOLERANCE = 1e-4; /* lower bound of the tolerance, as in memory/floor.py */
/* Fading by time, as in memory/forgetting/exponential.py: */
static const double PATIENCE = 2.0;     /* half-lives between two visits of the floor */
static const double GAP = 0x1p-24;      /* without a floor, Python handles more fading by one row */
static const double FAINTEST = 1e-120; /* the minimum factor of one row */

double *rows_at(const Rows *rows, ptrdiff_t j)
{
    return rows->triangle[rows->now] + place(rows->wide, j) - edge(j);
}

/* Solve U w = theta by back substitution. */
EVERY_MACHINE void rows_solve(Rows *rows)
{
    const ptrdiff_t d = rows->d, c = rows->c;
    if (rows->fresh)
        return;
    memset(rows->w, 0, d * c * sizeof(double)); /* whole vectors are read */
    for (ptrdiff_t j = d - 1; j >= 0; j--) {
        const double *row = rows_at(rows, j);
        double *w = rows->w + j * c;
        memcpy(w, row + d, c * sizeof *w);
        pending_add(rows, j, w);
        if (c > 1) {
            for (ptrdiff_t l = j + 1; l < d; l++)
                for (ptrdiff_t i = 0; i < c; i++)
                    w[i] -= row[l] * rows->w[l * c + i];
            continue;
        }
        const ptrdiff_t last = edge(d - 1);
        vector sum = {0.0};
        const double theta = w[0];
        w[0] = 0.0; /* the entries before w[0], and those beyond d, are zero already */
        for (ptrdiff_t l = edge(j); l <= last; l += WIDE)
            sum += *(const vector *)(row + l) * *(const vector *)(rows->w + l);
        w[0] = theta;
        for (int i = 0; i < WIDE; i++)
            w[0] -= sum[i];
    }
    rows->fresh = 1;
}

/* The weights of n rows of a block: as given; in the block; and relative to those so far. */
typedef struct {
    double given[AT_ONCE], q[AT_ONCE], gain[AT_ONCE];
} Weights;

/* Compute the weights of rows. In a block later rows grow, in place of fading the past. */
WITHIN void weigh(Rows *rows, ptrdiff_t n, const double *weights, const double *growth, Weights *to)
{
    double mass[AT_ONCE + 1];
    mass[0] = rows->mass;
    for (ptrdiff_t i = 0; i < n; i++) {
        to->given[i] = weights ? weights[i] : 1.0;
        mass[i + 1] = rows->factor * mass[i] + to->given[i];
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        to->gain[i] = to->given[i] / mass[i + 1];
        to->q[i] = (rows->free ? to->gain[i] * (rows->factor * mass[i]) : to->given[i]) * growth[i];
    }
    rows->mass = mass[n];
    if (rows->free && mass[0] == 0.0) /* with an intercept, the first row only sets the means */
        to->given[0] = 0.0;
}

/* Copy numbers, without the call of a function for short rows. */
WITHIN void copy(double *to, const double *from, ptrdiff_t n)
{
    ptrdiff_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        memcpy(to + i, from + i, WIDE * sizeof *to);
    if (n & 4)
        memcpy(to + i, from + i, 4 * sizeof *to);
    i += n & 4;
    if (n & 2)
        memcpy(to + i, from + i, 2 * sizeof *to);
    i += n & 2;
    if (n & 1)
        to[i] = from[i];
}

/* Update the floor with numbers l to before l + WIDE of n rows of the block. */
WITHIN void record_excitation(Rows *rows, ptrdiff_t n, ptrdiff_t l, const double *weights)
{
    vector active = *(vector *)(rows->active + l), last = *(vector *)(rows->last + l);
    const double *row = rows->block + l;
    if (rows->count == 0 || !rows->free)
        last = rows->free ? *(const vector *)row : (vector){0.0};
    for (ptrdiff_t i = 0; i < n; i++) {
        const vector x = *(const vector *)(row + i * rows->wide);
        const vector weight = weights[i] - (vector){0.0};
        active += (vector)((x != last) & (integers)weight);
        last = rows->free ? x : last;
    }
    *(vector *)(rows->active + l) = active;
    *(vector *)(rows->last + l) = *(const vector *)(row + (n - 1) * rows->wide);
}

/* Subtract from numbers l to before l + WIDE of n rows of the block the means before each row, and
   update the means, of which `rest` contains the rounding errors. */
WITHIN void centre(Rows *rows, ptrdiff_t n, ptrdiff_t l, const double *gain)
{
    vector *mean = (vector *)(rows->means + l), *rest = (vector *)(rows->rest + l);
    vector moved = {0.0};
    const vector hi = *mean, lo = *rest;
    for (ptrdiff_t i = 0; i < n; i++) {
        vector *at = (vector *)(rows->block + i * rows->wide + l);
        const vector away = *at - hi - lo;
        *at = away - moved;
        moved = (1.0 - gain[i]) * moved + gain[i] * away;
    }
    const vector by = lo + moved, total = hi + by, back = total - hi;
    *rest = (hi - (total - back)) + (by - back);
    *mean = total;
}

/* Write n rows to the block: centred, with targets relative to w0. Returns whether rounding errors
   are small relative to the earlier information on each weight. */
WITHIN int prepare(Rows *rows, ptrdiff_t n, const double *X, const double *Y,
                   const Weights *weights)
{
    const ptrdiff_t d = rows->d, c = rows->c, wide = rows->wide;
    const double *D = rows->diagonal[rows->now];
    int good = 1;
    for (ptrdiff_t i = 0; i < n; i++) {
        double *row = rows->block + i * wide;
        *(vector *)(row + edge(d + c - 1)) = *(vector *)(row + wide - WIDE) = (vector){0.0};
        copy(row, X + i * d, d);
        copy(row + d, Y + i * c, c);
    }
    for (ptrdiff_t l = 0; l < d + c; l += WIDE) {
        vector energy = {0.0}, peak = {0.0};
        if (rows->level > 0.0 && l < d)
            record_excitation(rows, n, l, weights->given);
        if (rows->free)
            centre(rows, n, l, weights->gain);
        for (ptrdiff_t i = 0; i < n && l < d; i++) {
            const vector x = *(const vector *)(rows->block + i * wide + l), square = x * x;
            const vector size = weights->q[i] * square;
            const integers more = size > peak;
            energy += weights->given[i] * square;
            peak = (vector)((more & (integers)size) | (~more & (integers)peak));
        }
        if (rows->level > 0.0 && l < d)
            *(vector *)(rows->energy + l) += energy;
        for (ptrdiff_t j = l; j < d && j < l + WIDE; j++)
            good &= sharpness(rows, j, rows->due * D[j]) * peak[j - l] <= rows->due * D[j] &&
                    rows->unseen[j] * peak[j - l] == 0.0;
    }
    for (ptrdiff_t i = 0; rows->started && i < n; i++)
        for (ptrdiff_t j = 0; j < d; j++)
            for (ptrdiff_t k = 0; k < c; k++)
                rows->block[i * wide + d + k] -=
                    rows->block[i * wide + j] * rows->start[j * c + k];
    rows->count += rows->level > 0.0 ? n : 0;
    return good;
}

/* The maximum number of rows per block: within it the weights must not grow beyond 1e6. */
WITHIN ptrdiff_t at_once(const Rows *rows)
{
    const double max_rows = rows->factor < 1.0 ? -14.0 / log(rows->factor) : AT_ONCE;
    return max_rows >= AT_ONCE ? AT_ONCE : max_rows >= 1.0 ? (ptrdiff_t)max_rows : 1;
}

/* Learn up to AT_ONCE rows, as if one after the other; write a copy of the triangle. `growth`
   contains the powers of 1 / factor. Returns 0 if a direction has lost its digits, and -1 if
   rounding errors would be large: then the means and sums have changed, but not the triangle. */
WITHIN int learn(Rows *rows, int copy, ptrdiff_t n, const double *X, const double *Y,
                 const double *weights, const double *growth, double *errors)
{
    const ptrdiff_t d = rows->d, c = rows->c, wide = rows->wide, groups = (n + K - 1) / K;
    const double fade = 1.0 / growth[n - 1];
    Weights weighed;
    double *q = weighed.q;
    weigh(rows, n, weights, growth, &weighed);
    rows->due *= rows->factor;
    rows->faded *= rows->factor * fade;
    if (!prepare(rows, n, X, Y, &weighed))
        return -1;
    if (n == 1) {
        q[0] = add_row(rows, rows->block, q[0], rows->due, copy);
    } else {
        const ptrdiff_t padded = rows_of(groups);
        memset(rows->block + n * wide, 0, (padded - n) * wide * sizeof *rows->block);
        memset(q + n, 0, (padded - n) * sizeof *q);
        pass(rows, 0, d, rows->block, q, groups, 0, rows->due, copy, NULL);
    }
    const int good = go_on(rows, copy);
    for (ptrdiff_t l = 0; l < c; l++) {
        double sum = rows->factor * rows->squares[l];
        for (ptrdiff_t i = 0; i < n; i++) {
            const double error = rows->block[i * wide + d + l];
            errors[i * c + l] = error;
            sum += q[i] * error * error;
        }
        rows->squares[l] = sum * fade;
    }
    rows->due = fade;
    return good;
}

/* Write the floor of each weight to `aside` (d): the information of `level` rows times the
   tolerance 1 / (P_jj (P^-1)_jj), the share that the other weights do not explain; and at least the
   ridge. With ridge 0 the tolerance has no lower bound, as in memory/floor.py. */
WITHIN void compute_floor(Rows *rows)
{
    const ptrdiff_t d = rows->d;
    const double *D = rows->diagonal[rows->now];
    vector *column = (vector *)rows->block;
    double *wanted = rows->aside, *P = wanted + d, *inverse = P + d;
    memset(P, 0, 2 * d * sizeof *P);
    for (ptrdiff_t first = 0; first < d; first += WIDE) { /* some columns of U^-1 */
        const ptrdiff_t end = d - first < WIDE ? d : first + WIDE;
        vector scale = {0.0};
        for (ptrdiff_t l = first; l < end; l++)
            scale[l - first] = 1.0 / D[l];
        for (ptrdiff_t j = end - 1; j >= 0; j--) {
            const double *u = rows_at(rows, j);
            vector x = {0.0}, sums[4] = {{0.0}};
            ptrdiff_t l = j + 1;
            if (j >= first)
                x[j - first] = 1.0;
            for (; l + 4 <= end; l += 4) /* four sums, so that additions do not wait */
                for (int i = 0; i < 4; i++)
                    sums[i] += u[l + i] * column[l + i];
            for (; l < end; l++)
                x -= u[l] * column[l];
            x -= (sums[0] + sums[1]) + (sums[2] + sums[3]);
            column[j] = x;
            x *= x * scale;
            for (int i = 0; i < WIDE; i++)
                P[j] += x[i];
        }
    }
    for (ptrdiff_t j = 0; j < d; j++) {
        const double *u = rows_at(rows, j), least = rows->least[j];
        inverse[j] += D[j];
        for (ptrdiff_t l = j + 1; l < d; l++)
            inverse[l] += u[l] * u[l] * D[j];
        const double tolerance = fmax(1.0 / (P[j] * inverse[j]), least > 0.0 ? TOLERANCE : 0.0);
        const double size = rows->active[j] > 0.0 ? rows->energy[j] / rows->active[j] : 0.0;
        wanted[j] = fmax(rows->level * size * tolerance, least);
    }
}

/* Raise the information on each weight to the floor, by pseudo-rows that the current weights fit.
   They are added to the triangle in place, starting at their first nonzero column. Returns 0 if a
   direction has lost its digits. */
WITHIN int apply_floor(Rows *rows)
{
    const ptrdiff_t d = rows->d, c = rows->c, wide = rows->wide;
    const double faded_part = -expm1(-log(2.0) * rows->age);
    double *D = rows->diagonal[rows->now], smallest = INFINITY;
    rows_solve(rows);
    for (ptrdiff_t j = 0; j < d; j++)
        D[j] *= rows->due;
    rows->due = 1.0;
    compute_floor(rows);
    for (ptrdiff_t first = 0; first < d; first += AT_ONCE) {
        const ptrdiff_t n = d - first < AT_ONCE ? d - first : AT_ONCE, groups = (n + K - 1) / K;
        double q[AT_ONCE] = {0.0};
        memset(rows->block, 0, rows_of(groups) * wide * sizeof(double));
        for (ptrdiff_t i = 0; i < n; i++) {
            const ptrdiff_t j = first + i;
            double *to = rows->block + i * wide;
            q[i] = rows->aside[j] * faded_part;
            to[j] = 1.0;
            memcpy(to + d, rows->w + j * c, c * sizeof *to);
        }
        pass(rows, first, d, rows->block, q, groups, 1, 1.0, rows->now, NULL);
    }
    for (ptrdiff_t j = 0; j < d; j++)
        smallest = D[j] < smallest ? D[j] : smallest;
    rows->age = 0.0;
    return smallest > FAINT; /* the weights fit all pseudo-rows and have not changed */
}

int rows_predict(Rows *rows, const double *x, double *scores)
{
    const ptrdiff_t d = rows->d, c = rows->c;
    if (rows->fresh || !pending_predict(rows, x, scores))
        return 0;
    for (ptrdiff_t k = 0; k < c; k++)
        scores[k] += rows->means[d + k];
    if (rows->started)
        for (ptrdiff_t j = 0; j < d; j++)
            for (ptrdiff_t k = 0; k < c; k++)
                scores[k] += (x[j] - rows->means[j]) * rows->start[j * c + k];
    return 1;
}

EVERY_MACHINE double rows_leverage(const Rows *rows, const double *x)
{
    const ptrdiff_t d = rows->d;
    double *row = rows->block, leverage = 0.0;
    memset(row, 0, rows->wide * sizeof *row);
    for (ptrdiff_t j = 0; j < d; j++)
        row[j] = rows->free ? x[j] - rows->means[j] - rows->rest[j] : x[j];
    if (rows->pending && pending_leverage(rows, row, &leverage))
        return leverage;
    for (ptrdiff_t j = 0; j < d; j++) {
        const double a = row[j], *u = rows_at(rows, j);
        for (ptrdiff_t l = j + 1; l < d; l++)
            row[l] -= a * u[l];
        leverage += a * a / (rows->due * rows->diagonal[rows->now][j]);
    }
    return leverage;
}

/* Whether the squares of numbers, and sums of such squares, are far from overflow. */
WITHIN int safe_values(const double *x, ptrdiff_t n)
{
    int good = 1;
    for (ptrdiff_t i = 0; i < n; i++)
        good &= fabs(x[i]) <= LARGEST;
    return good;
}

/* Whether weights are far from overflow and underflow. */
WITHIN int safe_weights(const double *weights, ptrdiff_t n)
{
    int good = 1;
    for (ptrdiff_t i = 0; i < n; i++)
        good &= weights[i] <= LARGEST && weights[i] * LARGEST >= 1.0;
    return good;
}

/* The number of bytes from `squares` to `last`, which are overwritten by learning. */
WITHIN size_t written(const Rows *rows)
{
    return (rows->last + rows->d - rows->squares) * sizeof(double);
}

/* Learn rows as if one after the other, in blocks as large as possible; the first block is written
   to a copy of the triangle, later ones in place. Returns the number of rows learned before a block
   that is not calm or has extreme values; -1 if the state is no longer valid. */
EVERY_MACHINE static ptrdiff_t learn_all(Rows *rows, int copy, ptrdiff_t n, const double *X,
                                         const double *Y, const double *weights, double *errors)
{
    const ptrdiff_t d = rows->d, c = rows->c;
    const ptrdiff_t max_rows = at_once(rows), all = n;
    double growth[AT_ONCE] = {1.0};
    int good = 1;
    for (ptrdiff_t i = 1; i < (n < max_rows ? n : max_rows); i++)
        growth[i] = growth[i - 1] / rows->factor;
    for (ptrdiff_t k; n > 0 && good; n -= k) {
        const Rows was = *rows;
        const ptrdiff_t room = rows->level > 0.0 ? rows->period - rows->count % rows->period : n;
        k = n < max_rows ? n : max_rows;
        k = room < k ? room : k;
        if (!safe_values(X, k * d) || !safe_values(Y, k * c) ||
            (weights && !safe_weights(weights, k)))
            return all - n;
        memcpy(rows->aside, rows->squares, written(rows));
        good = learn(rows, copy, k, X, Y, weights, growth, errors);
        if (good < 0) {
            *rows = was;
            memcpy(rows->squares, rows->aside, written(rows));
            return all - n;
        }
        if (rows->level > 0.0) {
            rows->age += rows->step * k;
            if (rows->count % rows->period == 0)
                good &= apply_floor(rows);
        }
        X += k * d;
        Y += k * c;
        errors += k * c;
        weights += weights ? k : 0;
    }
    return good ? all : -1;
}

ptrdiff_t rows_learn(Rows *rows, ptrdiff_t n, const double *X, const double *Y,
                     const double *weights, double *errors)
{
    pending_flush(rows);
    return learn_all(rows, rows->now, n, X, Y, weights, errors);
}

/* Apply the floor after a row, if it is due. */
WITHIN void visit(Rows *rows)
{
    if (rows->level > 0.0) {
        rows->age += rows->step;
        if (rows->count % rows->period == 0) {
            pending_flush(rows);
            apply_floor(rows);
        }
    }
}

/* Restore the state before a row; the triangle before the row must not have been overwritten. */
WITHIN void go_back(Rows *rows, const Rows *was)
{
    *rows = *was;
    memcpy(rows->squares, rows->before, written(rows));
}

/* Solve for w; return whether it is finite. */
WITHIN int solved(Rows *rows)
{
    int good = 1;
    rows_solve(rows);
    for (ptrdiff_t i = 0; i < rows->d * rows->c; i++)
        good &= isfinite(rows->w[i]) != 0;
    return good;
}

/* Learn one row and return 1, or change nothing and return 0; there are no pending rows. With
   `solve`, w must be finite after the row. */
EVERY_MACHINE static int learn_row(Rows *rows, const double *x, const double *y, double weight,
                                   double *errors, int solve)
{
    const double one = 1.0;
    const Rows was = *rows;
    memcpy(rows->before, rows->squares, written(rows));
    const int learned = learn(rows, 1 - rows->now, 1, x, y, &weight, &one, errors);
    if (learned <= 0 || (solve && !solved(rows))) {
        go_back(rows, &was);
        rows->fresh = 0;
        return 0;
    }
    visit(rows);
    return 1;
}

/* Whether the first row of the block is the first in which some feature differs from its mean. */
WITHIN int shows_unseen(const Rows *rows)
{
    int shows = 0;
    for (ptrdiff_t j = 0; j < rows->d; j++)
        shows |= rows->unseen[j] != 0.0 && rows->block[j] != 0.0;
    return shows;
}

EVERY_MACHINE int rows_learn_one(Rows *rows, const double *x, const double *y, double weight,
                                 double *errors)
{
    const double one = 1.0;
    if (rows->d >= FAR && !rows->pending) /* without memory for it, rows are added at once */
        rows->pending = pending_open(rows->d, rows->c, rows->wide);
    if (rows->pending) {
        const Rows was = *rows;
        memcpy(rows->before, rows->squares, written(rows));
        Weights weights;
        weigh(rows, 1, &weight, &one, &weights);
        rows->faded *= rows->factor;
        prepare(rows, 1, x, y, &weights);
        if (!shows_unseen(rows) &&
            pending_learn(rows, x, rows->block, weights.q[0], errors)) {
            visit(rows);
            return 1;
        }
        go_back(rows, &was);
        pending_flush(rows);
    }
    return learn_row(rows, x, y, weight, errors, 1);
}

EVERY_MACHINE int rows_learn_few(Rows *rows, ptrdiff_t n, const double *X, const double *Y,
                                 const double *weights, double *errors)
{
    pending_flush(rows);
    if (n == 1) /* the same bits as rows_learn_one without pending rows */
        return safe_values(X, rows->d) && safe_values(Y, rows->c) &&
               (!weights || safe_weights(weights, 1)) &&
               learn_row(rows, X, Y, weights ? *weights : 1.0, errors, 1);
    const Rows was = *rows;
    memcpy(rows->before, rows->squares, written(rows));
    const int good = learn_all(rows, 1 - rows->now, n, X, Y, weights, errors) == n && solved(rows);
    if (!good)
        rows_undo(rows, &was);
    return good;
}

void rows_undo(Rows *rows, const Rows *was)
{
    go_back(rows, was);
    rows->fresh = 0;
}

EVERY_MACHINE ptrdiff_t rows_learn_at(Rows *rows, ptrdiff_t n, const double *X, const double *Y,
                                      const double *weights, const double *passed, double *errors)
{
    const ptrdiff_t d = rows->d, c = rows->c;
    ptrdiff_t i = 0;
    pending_flush(rows);
    for (int good = 1; i < n && good; i += good) {
        const double factor = fmax(exp2(-passed[i]), FAINTEST);
        const int gap = rows->level > 0.0 ? rows->age + passed[i] > PATIENCE : factor < GAP;
        if (gap || !safe_values(X + i * d, d) || !safe_values(Y + i * c, c) ||
            (weights && !safe_weights(weights + i, 1)))
            break;
        rows->factor = factor;
        rows->step = passed[i];
        good = learn_row(rows, X + i * d, Y + i * c, weights ? weights[i] : 1.0, errors + i * c,
                         n == 1);
        rows->factor = 1.0;
    }
    return i;
}

/* Allocate the arrays of a state; returns 0 on failure. */
static int allocate(Rows *rows, int zeros)
{
    const size_t d = rows->d, c = rows->c, m = d + c;
    const size_t size = place(rows->wide, d) + rows->wide, written = c + 2 * m + 3 * d + 12 * WIDE;
    const size_t sizes[] = {size, size, d, d, d * c, d * c, c, m, m, d, d, d, d, d, written,
                            written, AT_ONCE * rows->wide};
    double **parts[] = {&rows->triangle[0], &rows->triangle[1], &rows->diagonal[0],
                        &rows->diagonal[1], &rows->w, &rows->start, &rows->squares, &rows->means,
                        &rows->rest, &rows->energy, &rows->active, &rows->last, &rows->least,
                        &rows->unseen, &rows->before, &rows->aside, &rows->block};
    rows->memory = room_for(parts, sizes, sizeof sizes / sizeof *sizes, zeros);
    return rows->memory != NULL;
}

int rows_open(Rows *rows, ptrdiff_t d, ptrdiff_t c)
{
    memset(rows, 0, sizeof *rows);
    rows->d = d;
    rows->c = c;
    rows->wide = edge(d + c + WIDE - 1);
    if (rows->wide % (8 * WIDE) == 0) /* avoid cache conflicts between rows */
        rows->wide += WIDE;
    rows->factor = rows->due = rows->faded = 1.0;
    return allocate(rows, 1);
}

int rows_copy(Rows *to, const Rows *from)
{
    const size_t size = (from->triangle[1] - from->triangle[0]) * sizeof(double);
    *to = *from;
    to->pending = NULL;
    if (!allocate(to, 0))
        return 0;
    for (int i = 0; i < 2; i++)
        if (i == from->now || from->pending)
            memcpy(to->triangle[i], from->triangle[i], size);
    memcpy(to->diagonal[0], from->diagonal[0],
           (from->before - from->diagonal[0]) * sizeof(double));
    if (from->pending && !(to->pending = pending_copy(from->pending, from->d, from->c, from->wide)))
        rows_close(to);
    return to->memory != NULL;
}

void rows_close(Rows *rows)
{
    pending_close(rows->pending);
    free(rows->memory);
    rows->pending = NULL;
    rows->memory = NULL;
}
