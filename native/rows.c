/* Recursive least squares row by row, by rotations without square roots [1], a few rows at once.
 *
 * With R = D^(1/2) U, where U has ones on its diagonal, and z = D^(1/2) theta, a row [a b] of
 * weight q is added column by column:
 *
 *     D_j' = D_j + q a_j^2,   k = q a_j / D_j',   q <- q D_j / D_j'                           (1)
 *     [a b] <- [a b] - a_j [U theta]_j,   [U theta]_j <- [U theta]_j + k [a b]                (2)
 *
 * The remainder of b is the row's error before it was learned, and the least sum of squares grows
 * by q times its square. Fading multiplies D. For K rows all (1) of a column are computed together,
 * since D_j is a running sum, and each number of the triangle is read and written once.
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

/* Update means by a part of the difference from a row; `rest` contains their rounding errors. */
WITHIN void centre(double *restrict mean, double *restrict rest, const double *restrict x,
                   double *restrict moved, ptrdiff_t n, double part)
{
    for (ptrdiff_t j = 0; j < n; j++) {
        const double away = x[j] - mean[j] - rest[j], by = rest[j] + part * away;
        const double total = mean[j] + by, back = total - mean[j];
        rest[j] = (mean[j] - (total - back)) + (by - back);
        mean[j] = total;
        moved[j] = away;
    }
}

/* Update the floor with a row: the sum of squares and the excitation of each feature. */
WITHIN void record_excitation(Rows *rows, const double *x, const double *moved, double weight)
{
    for (ptrdiff_t j = 0; j < rows->d; j++) {
        const int on = rows->free ? x[j] != rows->last[j] && rows->count > 0 : x[j] != 0.0;
        rows->energy[j] += weight * (moved[j] * moved[j]);
        rows->active[j] += on ? weight : 0.0;
        rows->last[j] = x[j];
    }
    rows->count++;
}

/* Write a row to the block: centred, with targets relative to w0. Returns its weight in the block.
   */
WITHIN double prepare(Rows *rows, double *to, const double *x, const double *y, double weight)
{
    const ptrdiff_t d = rows->d, c = rows->c;
    const double past = rows->factor * rows->mass;
    double q = weight;
    rows->mass = past + weight;
    rows->faded *= rows->factor;
    for (ptrdiff_t j = d + c; j < rows->wide; j++)
        to[j] = 0.0;
    if (rows->free) {
        const double part = weight / rows->mass;
        centre(rows->means, rows->rest, x, to, d, part);
        centre(rows->means + d, rows->rest + d, y, to + d, c, part);
        q = part * past;
    } else {
        memcpy(to, x, d * sizeof *x);
        memcpy(to + d, y, c * sizeof *y);
    }
    if (rows->level > 0.0) /* with an intercept, the first row only sets the means */
        record_excitation(rows, x, to, rows->free && past == 0.0 ? 0.0 : weight);
    if (rows->started)
        for (ptrdiff_t j = 0; j < d; j++)
            for (ptrdiff_t k = 0; k < c; k++)
                to[d + k] -= to[j] * rows->start[j * c + k];
    return q;
}

/* The maximum number of rows per block: the first row must not fade below 1e-100 within it. */
WITHIN ptrdiff_t at_once(const Rows *rows)
{
    const double max_rows = rows->factor < 1.0 ? -230.0 / log(rows->factor) : AT_ONCE;
    return max_rows >= AT_ONCE ? AT_ONCE : max_rows >= 1.0 ? (ptrdiff_t)max_rows : 1;
}

/* Whether rounding errors of n rows are small relative to the earlier information on each weight.
   */
WITHIN int calm(const Rows *rows, ptrdiff_t n, const double *q)
{
    int good = 1;
    for (ptrdiff_t j = 0; j < rows->d; j++) {
        const double D = rows->due * rows->diagonal[rows->now][j], sharp = sharpness(rows, j, D);
        for (ptrdiff_t i = 0; i < n; i++) {
            const double x = rows->block[i * rows->wide + j];
            good &= sharp * q[i] * (x * x) <= D;
        }
    }
    return good;
}

/* Learn up to AT_ONCE rows, as if one after the other, in groups of k; write a copy of the
   triangle. Returns 0 if a direction has lost its digits, and -1 if the rows are not calm: then the
   means and sums have changed, but not the triangle. */
WITHIN int learn(Rows *rows, int copy, ptrdiff_t n, const double *X, const double *Y,
                 const double *weights, double *errors, const int k)
{
    const ptrdiff_t d = rows->d, c = rows->c, wide = rows->wide, groups = (n + k - 1) / k;
    double q[AT_ONCE], grown = 1.0, fade = 1.0;
    for (ptrdiff_t i = 0; i < n; i++) {
        double *row = rows->block + i * wide;
        q[i] = prepare(rows, row, X + i * d, Y + i * c, weights ? weights[i] : 1.0) * grown;
        grown /= rows->factor; /* the weights of later rows grow, in place of fading the past */
        fade *= i ? rows->factor : 1.0;
    }
    for (ptrdiff_t i = n; i < groups * k; i++) {
        memset(rows->block + i * wide, 0, wide * sizeof *rows->block);
        q[i] = 0.0;
    }
    rows->due *= rows->factor;
    if (!calm(rows, n, q))
        return -1;
    pass(wide, 0, d, rows->block, q, groups, rows->due, rows->triangle[rows->now],
         rows->diagonal[rows->now], rows->triangle[copy], rows->diagonal[copy], NULL, k);
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
    for (ptrdiff_t first = 0; first < d; first += K) {
        double q[K] = {0.0}, *at = rows->triangle[rows->now] + place(wide, first);
        memset(rows->block, 0, K * wide * sizeof(double));
        for (ptrdiff_t j = first; j < d && j < first + K; j++) {
            const double size = rows->active[j] > 0.0 ? rows->energy[j] / rows->active[j] : 0.0;
            const double information = rows->level * size, least = rows->least[j];
            double *to = rows->block + (j - first) * wide;
            q[j - first] = (information > least ? information : least) * faded_part;
            to[j] = 1.0;
            memcpy(to + d, rows->w + j * c, c * sizeof *to);
        }
        pass(wide, first, d, rows->block, q, 1, 1.0, at, D, at, D, NULL, K);
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
    const double step = -log2(rows->factor);
    const ptrdiff_t max_rows = at_once(rows), all = n;
    int good = 1;
    for (ptrdiff_t k; n > 0 && good; n -= k) {
        const Rows was = *rows;
        const ptrdiff_t room = rows->level > 0.0 ? rows->period - rows->count % rows->period : n;
        k = n < max_rows ? n : max_rows;
        k = room < k ? room : k;
        if (!safe_values(X, k * d) || !safe_values(Y, k * c) ||
            (weights && !safe_weights(weights, k)))
            return all - n;
        memcpy(rows->aside, rows->squares, written(rows));
        if (k == 1)
            good = learn(rows, copy, 1, X, Y, weights, errors, 1);
        else
            good = learn(rows, copy, k, X, Y, weights, errors, K);
        if (good < 0) {
            *rows = was;
            memcpy(rows->squares, rows->aside, written(rows));
            return all - n;
        }
        if (rows->level > 0.0) {
            rows->age += step * k;
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
        rows->age -= log2(rows->factor);
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

EVERY_MACHINE int rows_learn_one(Rows *rows, const double *x, const double *y, double weight,
                                 double *errors)
{
    Rows was = *rows;
    memcpy(rows->before, rows->squares, written(rows));
    if (rows->pending) {
        const double q = prepare(rows, rows->block, x, y, weight);
        if (pending_learn(rows, x, rows->block, q, errors)) {
            visit(rows);
            return 1;
        }
        go_back(rows, &was);
        pending_flush(rows);
        was = *rows;
    }
    const int learned = learn(rows, 1 - rows->now, 1, x, y, &weight, errors, 1);
    if (learned <= 0 || !solved(rows)) {
        go_back(rows, &was);
        rows->fresh = 0;
        return 0;
    }
    visit(rows);
    return 1;
}

EVERY_MACHINE int rows_learn_few(Rows *rows, ptrdiff_t n, const double *X, const double *Y,
                                 double *errors)
{
    if (n == 1)
        return rows_learn_one(rows, X, Y, 1.0, errors);
    pending_flush(rows);
    const Rows was = *rows;
    memcpy(rows->before, rows->squares, written(rows));
    const int good = learn_all(rows, 1 - rows->now, n, X, Y, NULL, errors) == n && solved(rows);
    if (!good) {
        go_back(rows, &was);
        rows->fresh = 0;
    }
    return good;
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
    const size_t m = d + c, size = rows_at(rows, d) - rows_at(rows, 0) + rows->wide;
    const size_t sizes[] = {size, size, d, d, d * c, d * c, c, m, m, d, d, d, d,
                            c + 2 * m + 3 * d + 12 * WIDE, c + 2 * m + 3 * d + 12 * WIDE,
                            AT_ONCE * rows->wide};
    double **parts[] = {&rows->triangle[0], &rows->triangle[1], &rows->diagonal[0],
                        &rows->diagonal[1], &rows->w, &rows->start, &rows->squares, &rows->means,
                        &rows->rest, &rows->energy, &rows->active, &rows->last, &rows->least,
                        &rows->before, &rows->aside, &rows->block};
    const int count = sizeof sizes / sizeof *sizes;
    rows->memory = room_for(parts, sizes, count);
    if (!rows->memory)
        return 0;
    if (d >= FAR && !(rows->pending = pending_open(d, c, rows->wide)))
        rows_close(rows);
    return rows->memory != NULL;
}

int rows_copy(Rows *to, const Rows *from)
{
    if (!rows_open(to, from->d, from->c))
        return 0;
    const Rows own = *to;
    double **parts[] = {&to->triangle[0], &to->triangle[1], &to->diagonal[0], &to->diagonal[1],
                        &to->w, &to->start, &to->squares, &to->means, &to->rest, &to->energy,
                        &to->active, &to->last, &to->least, &to->before, &to->aside, &to->block};
    *to = *from;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        *parts[i] = own.triangle[0] + (*parts[i] - from->triangle[0]);
    to->memory = own.memory;
    to->pending = own.pending;
    memcpy(to->triangle[0], from->triangle[0], (from->before - from->triangle[0]) * sizeof(double));
    if (to->pending)
        pending_copy(to->pending, from->pending, from->c);
    return 1;
}

void rows_close(Rows *rows)
{
    pending_close(rows->pending);
    free(rows->memory);
    rows->pending = NULL;
    rows->memory = NULL;
}
