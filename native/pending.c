/* Single rows if the triangle exceeds the caches: it is read once per row.
 *
 * Both prediction and update of a row b need its coefficients a in rows of the triangle, a U = b
 * (rows.c, (2), without gain). Learned rows that are not yet in the triangle are represented by
 * their a and by
 *
 *     h_i = a_i / D - sum_l<i h_l (h_l . a_i) / s_l,    s_i = 1 / q_i + h_i . a_i               (3)
 *     w   = U^-1 (theta + sum_i h_i e_i / s_i)                                                (4)
 *
 * with e_i the error of row i before it was learned: the recursion of least squares in the
 * coordinates of the triangle. It is used for so few rows that (3) loses no digits, and not for
 * rows with much more information than the past. While rows are collected, earlier rows are added
 * to a second copy of the triangle, some of its columns with each new row, which bounds the
 * latency. When they have been added, the coefficients a' of each collected row are updated for
 * each added row, with coefficients a and gains k:
 *
 *     a'_j <- a'_j - g a_j,   g <- g + a'_j k_j,   g = 0 at first                              (5)
 */
#include "pending.h"

#include "givens.h"

enum { AHEAD = K }; /* rows per batch; equals the size of a group and of a vector */
static const double SURE = 4096.0; /* maximum information of a row relative to the past */

typedef struct {
    ptrdiff_t count;
    double *rows;        /* prepared rows (wide each) */
    double *a, *h;       /* (tall each) */
    double *moved;       /* e / s (c each) */
    double q[AHEAD], over[AHEAD]; /* weights, 1 / s; 0 in unused entries */
} Batch;

struct Pending {
    ptrdiff_t tall;      /* d, rounded up to pairs of vectors */
    Batch old, now;      /* rows being added, and rows being collected */
    int open;            /* whether there are pending rows */
    ptrdiff_t column;    /* the column before which the old rows have been added */
    double left[AHEAD];  /* the remaining weights q of the old rows at this column */
    double *noted;       /* a and k of (1) of the old rows */
    double *across;      /* a of the collected rows, transposed (d, AHEAD) */
    double *inverse;     /* 1 / D (d) */
    double least;        /* the smallest D */
    double grown;        /* the factor of later weights, in place of fading the past */
    double *x, *a, *rest; /* the last predicted row: x, a, and the remainder of its targets */
    int current;         /* whether x and a are current */
    int predicted;       /* whether a row was predicted since the last was learned */
    void *memory;
};

/* Compute the coefficients a of a row; the remainder of its targets is left in the row. */
WITHIN void eliminate(const Rows *rows, double *row, double *a)
{
    const ptrdiff_t d = rows->d, wide = rows->wide;
    const double *at = rows->triangle[rows->now];
    for (ptrdiff_t j = 0; j < d; j += WIDE) {
        const ptrdiff_t m = wide - j;
        const int k = d - j < WIDE ? d - j : WIDE;
        vector lead = *(vector *)(row + j);
        double by[WIDE] = {0.0};
        for (int i = 0; i < k; i++) {
            by[i] = lead[i];
            lead -= by[i] * *(const vector *)(at + i * m);
        }
        memcpy(a + j, by, sizeof by);
        *(vector *)(row + j) = lead;
        if (k == WIDE)
            for (ptrdiff_t l = WIDE; l < m; l += WIDE) {
                vector x = *(vector *)(row + j + l);
#pragma GCC unroll 8
                for (int i = 0; i < WIDE; i++)
                    x -= by[i] * *(const vector *)(at + i * m + l);
                *(vector *)(row + j + l) = x;
            }
        else
            for (ptrdiff_t l = WIDE; l < m; l += WIDE)
                for (int i = 0; i < k; i++)
                    *(vector *)(row + j + l) -= by[i] * *(const vector *)(at + i * m + l);
        at += WIDE * m;
    }
}

/* The sum of a vector. */
WITHIN double lanes(const vector *v)
{
    const double *x = (const double *)v;
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

/* h . a for all rows of a batch; h and a are padded to whole vectors. */
WITHIN void dot_products(const Batch *batch, ptrdiff_t tall, const double *a, double *dots)
{
    for (ptrdiff_t i = 0; i < batch->count; i++) {
        const double *h = batch->h + i * tall;
        vector sum[2] = {{0.0}};
        for (ptrdiff_t j = 0; j < tall; j += 2 * WIDE) {
            sum[0] += *(const vector *)(a + j) * *(const vector *)(h + j);
            sum[1] += *(const vector *)(a + j + WIDE) * *(const vector *)(h + j + WIDE);
        }
        sum[0] += sum[1];
        dots[i] = lanes(sum);
    }
}

/* Add the contribution of a batch to the prediction of a row, given h . a. */
WITHIN void add_predictions(const Batch *batch, ptrdiff_t c, const double *dots, double sign,
                            double *to)
{
    for (ptrdiff_t i = 0; i < batch->count; i++)
        for (ptrdiff_t k = 0; k < c; k++)
            to[k] += sign * dots[i] * batch->moved[i * c + k];
}

/* Subtract the contributions of a batch: the sum in (3). */
WITHIN void subtract_batch(const Batch *batch, ptrdiff_t tall, const double *dots, double *h)
{
    for (ptrdiff_t i = 0; i < batch->count; i += 4) { /* four rows at once, padded with weight 0 */
        const double *rows = batch->h + i * tall;
        double by[4];
        for (int l = 0; l < 4; l++)
            by[l] = i + l < batch->count ? dots[i + l] * batch->over[i + l] : 0.0;
        for (ptrdiff_t j = 0; j < tall; j += WIDE)
            for (int l = 0; l < 4; l++)
                *(vector *)(h + j) -= by[l] * *(const vector *)(rows + l * tall + j);
    }
}

/* Start to collect rows, relative to the current triangle. */
WITHIN void begin(Rows *rows)
{
    Pending *pending = rows->pending;
    const double *D = rows->diagonal[rows->now];
    double least = INFINITY;
    for (ptrdiff_t j = 0; j < rows->d; j++) {
        const double information = rows->due * D[j];
        pending->inverse[j] = 1.0 / information;
        least = information < least ? information : least;
    }
    pending->least = least;
    pending->open = 1;
}

/* Add the old rows to the columns before `last` of the second copy of the triangle. */
WITHIN void take_old(Rows *rows, ptrdiff_t last)
{
    Pending *pending = rows->pending;
    const ptrdiff_t first = pending->column;
    if (first >= last)
        return;
    pass(rows, first, last, pending->old.rows, pending->left, 1, 0, rows->due, 1 - rows->now,
         pending->noted);
    pending->column = last;
}

/* Transpose a of a batch: feature j of row i is at [j][i]. */
WITHIN void transpose_batch(const Batch *batch, ptrdiff_t d, ptrdiff_t tall, double *to)
{
    for (ptrdiff_t j = 0; j < d; j++)
        for (int i = 0; i < AHEAD; i++)
            to[j * AHEAD + i] = batch->a[i * tall + j];
}

/* (5): update a of the collected rows, at [j][i], after the old rows were added to the triangle. */
WITHIN void carry_over(const Pending *pending, ptrdiff_t d, double *across)
{
    const double *noted = pending->noted;
    vector g[K];
    memset(g, 0, sizeof g);
    for (ptrdiff_t j = 0; j < d; j++, noted += 2 * K) {
        vector *at = (vector *)(across + j * AHEAD), a = *at;
#pragma GCC unroll 8
        for (int i = 0; i < K; i++) {
            a -= noted[i] * g[i];
            g[i] += noted[K + i] * a;
        }
        *at = a;
    }
}

/* Compute (3) anew for the rows of a full batch, without other pending rows, and the e / s of (4).
   */
WITHIN void recur_all(Batch *batch, ptrdiff_t d, ptrdiff_t c, ptrdiff_t tall,
                      const double *across, const double *inverse)
{
    vector gram[AHEAD];
    double N[AHEAD][AHEAD] = {{0.0}}; /* h_i = sum_m a_m / D N_mi */
    memset(gram, 0, sizeof gram);
    for (ptrdiff_t j = 0; j < d; j++) {
        const double *a = across + j * AHEAD;
        const vector over = inverse[j] * *(const vector *)a;
        for (int i = 0; i < AHEAD; i++)
            gram[i] += a[i] * over;
    }
    const double *M = (const double *)gram;
    for (ptrdiff_t i = 0; i < batch->count; i++) {
        N[i][i] = 1.0;
        for (ptrdiff_t l = 0; l < i; l++) {
            double dot = 0.0;
            for (ptrdiff_t m = 0; m <= l; m++)
                dot += N[m][l] * M[m * AHEAD + i];
            for (ptrdiff_t m = 0; m <= l; m++)
                N[m][i] -= dot * batch->over[l] * N[m][l];
        }
        double f = 0.0;
        for (ptrdiff_t m = 0; m <= i; m++)
            f += N[m][i] * M[m * AHEAD + i];
        const double over = 1.0 / (1.0 / batch->q[i] + f);
        for (ptrdiff_t k = 0; k < c; k++)
            batch->moved[i * c + k] *= over / batch->over[i];
        batch->over[i] = over;
    }
    for (ptrdiff_t j = 0; j < d; j++) {
        double sum[AHEAD] = {0.0};
        for (int m = 0; m < AHEAD; m++)
            for (int i = 0; i < AHEAD; i++)
                sum[i] += across[j * AHEAD + m] * N[m][i];
        for (int i = 0; i < AHEAD; i++)
            batch->h[i * tall + j] = inverse[j] * sum[i];
    }
}

/* Remove all rows of a batch. */
WITHIN void clear(Batch *batch, ptrdiff_t wide)
{
    if (batch->count == 0)
        return;
    memset(batch->rows, 0, AHEAD * wide * sizeof(double));
    memset(batch->q, 0, sizeof batch->q);
    memset(batch->over, 0, sizeof batch->over);
    batch->count = 0;
}

/* The old rows have been added: switch to that copy of the triangle. */
WITHIN void switch_triangle(Rows *rows)
{
    Pending *pending = rows->pending;
    const double faded = pow(rows->factor, (double)pending->old.count);
    take_old(rows, rows->d);
    go_on(rows, 1 - rows->now);
    rows->due = faded;
    for (int i = 0; i < AHEAD; i++)
        pending->now.q[i] *= faded;
    pending->grown *= faded;
    clear(&pending->old, rows->wide);
}

/* The collected rows become the old ones. */
WITHIN void swap_batches(Pending *pending)
{
    const Batch old = pending->old;
    pending->old = pending->now;
    pending->now = old;
    pending->column = 0;
    memcpy(pending->left, pending->old.q, sizeof pending->left);
}

EVERY_MACHINE int pending_learn(Rows *rows, const double *x, const double *row, double weight,
                                double *errors)
{
    Pending *pending = rows->pending;
    Batch *now = &pending->now;
    const ptrdiff_t d = rows->d, c = rows->c, i = now->count;
    double dots[2 * AHEAD];
    if (!pending->open) {
        begin(rows);
        pending->grown = 1.0;
    }
    double *to = now->rows + i * rows->wide;
    if (!pending->current || memcmp(x, pending->x, d * sizeof *x) != 0) {
        memcpy(to, row, rows->wide * sizeof *row);
        memset(to + d, 0, c * sizeof *to);
        eliminate(rows, to, pending->a);
        memcpy(pending->rest, to + d, c * sizeof *to);
    }
    pending->current = 0;
    const double *a = pending->a;
    double *h = now->h + i * pending->tall;
    dot_products(&pending->old, pending->tall, a, dots);
    dot_products(now, pending->tall, a, dots + AHEAD);
    for (ptrdiff_t j = 0; j < d; j++)
        h[j] = a[j] * pending->inverse[j];
    subtract_batch(&pending->old, pending->tall, dots, h);
    subtract_batch(now, pending->tall, dots + AHEAD, h);
    vector sum = {0.0};
    for (ptrdiff_t j = 0; j < pending->tall; j += WIDE)
        sum += *(const vector *)(a + j) * *(const vector *)(h + j);
    const double f = lanes(&sum);
    const double q = weight * pending->grown / rows->factor;
    int good = pending->least > FAINT && q > 0.0 && q * f >= 0.0 && q * f < SURE;
    for (ptrdiff_t j = 0; j < d; j++)
        good &= sharpness(rows, j, 1.0 / pending->inverse[j]) * q * (row[j] * row[j]) *
                    pending->inverse[j] <= 1.0;
    for (ptrdiff_t k = 0; k < c; k++) {
        errors[k] = row[d + k] + pending->rest[k];
    }
    add_predictions(&pending->old, c, dots, -1.0, errors);
    add_predictions(now, c, dots + AHEAD, -1.0, errors);
    for (ptrdiff_t k = 0; k < c; k++)
        good &= isfinite(errors[k]) != 0;
    if (!good) {
        memset(to, 0, rows->wide * sizeof *to);
        memset(h, 0, pending->tall * sizeof *h);
        return 0;
    }
    const double over = 1.0 / (1.0 / q + f);
    memcpy(to, row, rows->wide * sizeof *row);
    memcpy(now->a + i * pending->tall, a, d * sizeof *a);
    for (ptrdiff_t k = 0; k < c; k++) {
        now->moved[i * c + k] = errors[k] * over;
        rows->squares[k] *= rows->factor;
        rows->squares[k] += weight * errors[k] * errors[k] / (1.0 + q * f);
    }
    now->q[i] = q;
    now->over[i] = over;
    now->count++;
    pending->grown /= rows->factor;
    pending->predicted = 0;
    rows->fresh = 0;
    if (pending->old.count > 0) /* process the same number of entries of the triangle per row */
        take_old(rows, edge((ptrdiff_t)(d * (1.0 - sqrt(1.0 - (double)now->count / AHEAD)))));
    if (now->count == AHEAD) {
        if (pending->old.count > 0) {
            switch_triangle(rows);
            begin(rows);
            transpose_batch(now, d, pending->tall, pending->across);
            carry_over(pending, d, pending->across);
            recur_all(now, d, c, pending->tall, pending->across, pending->inverse);
        }
        swap_batches(pending);
    }
    return 1;
}

EVERY_MACHINE int pending_predict(Rows *rows, const double *x, double *scores)
{
    Pending *pending = rows->pending;
    const ptrdiff_t d = rows->d, c = rows->c;
    double dots[2 * AHEAD], *row = rows->block;
    if (!pending || !pending->open || pending->predicted)
        return 0;
    memset(row, 0, rows->wide * sizeof *row);
    for (ptrdiff_t j = 0; j < d; j++)
        row[j] = rows->free ? x[j] - rows->means[j] - rows->rest[j] : x[j];
    eliminate(rows, row, pending->a);
    dot_products(&pending->old, pending->tall, pending->a, dots);
    dot_products(&pending->now, pending->tall, pending->a, dots + AHEAD);
    for (ptrdiff_t k = 0; k < c; k++) {
        pending->rest[k] = row[d + k];
        scores[k] = -row[d + k];
    }
    add_predictions(&pending->old, c, dots, 1.0, scores);
    add_predictions(&pending->now, c, dots + AHEAD, 1.0, scores);
    memcpy(pending->x, x, d * sizeof *x);
    pending->current = pending->predicted = 1;
    return 1;
}

/* P = grown (U^-1 D^-1 U^-T - sum_i h_i h_i^T / s_i), in the coordinates of (4). */
EVERY_MACHINE int pending_leverage(const Rows *rows, double *row, double *leverage)
{
    Pending *pending = rows->pending;
    const Batch *both[] = {&pending->old, &pending->now};
    double dots[AHEAD], sum = 0.0;
    if (!pending->open)
        return 0;
    pending->current = 0; /* a is overwritten */
    eliminate(rows, row, pending->a);
    for (ptrdiff_t j = 0; j < rows->d; j++)
        sum += pending->a[j] * pending->a[j] * pending->inverse[j];
    for (int b = 0; b < 2; b++) {
        dot_products(both[b], pending->tall, pending->a, dots);
        for (ptrdiff_t i = 0; i < both[b]->count; i++)
            sum -= dots[i] * dots[i] * both[b]->over[i];
    }
    *leverage = pending->grown * sum;
    return 1;
}

void pending_add(const Rows *rows, ptrdiff_t j, double *theta)
{
    const Pending *pending = rows->pending;
    if (!pending || !pending->open)
        return;
    const Batch *both[] = {&pending->old, &pending->now};
    for (int b = 0; b < 2; b++)
        for (ptrdiff_t i = 0; i < both[b]->count; i++)
            for (ptrdiff_t k = 0; k < rows->c; k++)
                theta[k] += both[b]->h[i * pending->tall + j] * both[b]->moved[i * rows->c + k];
}

EVERY_MACHINE void pending_flush(Rows *rows)
{
    Pending *pending = rows->pending;
    if (!pending || !pending->open)
        return;
    for (int i = 0; i < 2; i++) {
        if (pending->old.count > 0)
            switch_triangle(rows);
        swap_batches(pending);
    }
    pending->open = pending->current = pending->predicted = 0;
}

Pending *pending_open(ptrdiff_t d, ptrdiff_t c, ptrdiff_t wide)
{
    const ptrdiff_t tall = (d + 2 * WIDE - 1) / (2 * WIDE) * (2 * WIDE);
    const size_t sizes[] = {AHEAD * wide, AHEAD * wide, AHEAD * tall, AHEAD * tall, AHEAD * tall,
                            AHEAD * tall, AHEAD * c, AHEAD * c, 2 * AHEAD * d, AHEAD * d, d, d,
                            tall, c};
    Pending *pending = calloc(1, sizeof *pending);
    if (!pending)
        return NULL;
    double **parts[] = {&pending->old.rows, &pending->now.rows, &pending->old.a, &pending->now.a,
                        &pending->old.h, &pending->now.h, &pending->old.moved,
                        &pending->now.moved, &pending->noted, &pending->across,
                        &pending->inverse, &pending->x,
                        &pending->a, &pending->rest};
    const int count = sizeof sizes / sizeof *sizes;
    pending->tall = tall;
    pending->memory = room_for(parts, sizes, count, 1);
    if (!pending->memory) {
        free(pending);
        return NULL;
    }
    return pending;
}

Pending *pending_copy(const Pending *from, ptrdiff_t d, ptrdiff_t c, ptrdiff_t wide)
{
    Pending *to = pending_open(d, c, wide);
    if (!to)
        return NULL;
    const Pending own = *to;
    double **parts[] = {&to->old.rows, &to->now.rows, &to->old.a, &to->now.a, &to->old.h,
                        &to->now.h, &to->old.moved, &to->now.moved, &to->noted, &to->across,
                        &to->inverse, &to->x, &to->a, &to->rest};
    const int swapped = from->now.rows < from->old.rows;
    const double *start = swapped ? from->now.rows : from->old.rows;
    *to = *from;
    to->memory = own.memory;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        *parts[i] = own.old.rows + (*parts[i] - start);
    memcpy(own.old.rows, start, (from->rest + c - start) * sizeof(double));
    return to;
}

void pending_close(Pending *pending)
{
    if (pending)
        free(pending->memory);
    free(pending);
}
