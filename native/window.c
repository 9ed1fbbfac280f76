/* Least squares on a sliding window, by rotations without square roots (rows.c).
 *
 * A row that leaves is a row of negative weight: with q < 0 in (1) and (2) of rows.c, the triangle
 * is that of the rows that remain. Rows are added in the order +i, -(i - W), +(i + 1), ..., so that
 * the remainder of each target is the error just before the row, as in a window of W rows. The
 * triangle has a column for the intercept, the first, and rows are relative to one row of the
 * window, so that constant features are exactly 0.
 *
 * With the leverage h of a row in the triangle that contains it, all rotations of the row together
 * multiply its weight by
 *
 *     prod_j D_j / D_j' = 1 / (1 - h)  if it leaves,    1 - h  if it enters.                  (1)
 *
 * Rounding errors grow by at most this factor, so that a block with 1 - h < 1e-2 for a row that
 * leaves is not used. The triangle is then computed anew from the rows of the window, as it is once
 * per window length, and if any D_j has decreased to less than 1e-4 of its maximum since then.
 * Fading: a row of clock t, in half-lives, has the weight 2^(t - zero), and D is relative to the
 * clock `zero`. The penalty fades with the rows, and is renewed once it has faded to one half.
 * Cost: 6 p^2 + O(p) operations per row, with p columns.
 */
#include "window.h"

#include "givens.h"

enum { AT_ONCE = GROUPS * K };     /* maximum number of rows per block */
static const double NONE = 1e-200; /* D of a column without a penalty, before the first row */
static const double LEAST = 1e-2;  /* minimum of 1 - h */
static const double STEEP = 0.25;  /* minimum of 1 - h of a row that enters within a group */
static const double LOW = 1e-4;    /* minimum of D relative to its maximum */
static const double QUIET = 1e-6;  /* minimum of the sum of squared errors, relative likewise */
static const double CLEAN = 1e-12; /* minimum of D relative to its column, if there is a penalty */
static const double CLEAN_LOOSE = 1e-14;
static const double ROUNDING = 1e-12; /* smallest deviation of a feature relative to its size */
static const double SNAP = 4.0 * 2.220446049250313e-16;
static const double DEEP = 32.0;  /* maximum number of half-lives from `zero` */
static const double FAINTEST = -120.0; /* rows of a lower clock have no effect */
static const double RENEWED = 1.0 - 1e-9; /* half-lives between two renewals of the penalty */

/* The number of sums: squares of columns and targets, as in a row of the block, and of errors; and
   the weight of the rows. */
WITHIN ptrdiff_t sums_of(const Window *window)
{
    return window->rows.wide + window->c + 1;
}

typedef long long mask __attribute__((vector_size(8 * WIDE)));

/* Write a row to the block, relative to the centre, and add its squares to `sums`. Returns its
   weight, negative for `sign` -1. */
WITHIN double put_row(const Window *window, ptrdiff_t i, double *to, double *sums, double sign)
{
    const ptrdiff_t wide = window->rows.wide, m = window_columns(window) + window->c;
    const double *row = window_row(window, i), *center = window->center;
    const double clock = row[m + 1] - window->zero;
    double q = sign * row[m];
    if (clock != 0.0)
        q = clock < FAINTEST ? 0.0 : q * exp2(clock);
    for (ptrdiff_t l = 0; l < m; l += WIDE) {
        const vector x = *(const loose *)(row + l), away = x - *(const vector *)(center + l);
        const mask varies = away * away > SNAP * SNAP * (x * x); /* not only by rounding errors */
        *(vector *)(to + l) = (vector)((mask)away & varies);
    }
    for (ptrdiff_t l = m; l < wide; l++)
        to[l] = 0.0;
    for (ptrdiff_t l = 0; l < m; l += WIDE) {
        const vector x = *(const vector *)(to + l);
        *(vector *)(sums + l) += q * x * x;
    }
    sums[wide + window->c] += q;
    return q;
}

/* Rows of the block: their number, weights, and the positions of those that enter. */
typedef struct {
    ptrdiff_t rows, steps, gone;
    double q[AT_ONCE];
    ptrdiff_t entering[AT_ONCE];
    int renew;
} Block;

/* Stored rows from `start` to before `stop` that are learned; the number of rows that leave after
   each, or NULL. */
typedef struct {
    ptrdiff_t start, stop;
    const double *leaving;
} Arriving;

/* The sums of the copy that is not current, as a copy of those that are. */
WITHIN double *next_sums(Window *window)
{
    double *sums = window->sums[1 - window->rows.now];
    memcpy(sums, window->sums[window->rows.now], sums_of(window) * sizeof *sums);
    return sums;
}

/* Whether the sum of squared errors is not much smaller than before; exact fits leave errors of
   rounding only. */
WITHIN int quiet(const Window *window, const double *sums, ptrdiff_t k)
{
    const ptrdiff_t l = window->rows.wide + k;
    return sums[l] >= QUIET * window->peak[l] ||
           window->peak[l] <= 1e-20 * window->peak[window_columns(window) + k];
}

/* Rotate the rows of the block into the triangle, and write the result to a copy, which becomes the
   current one; or in place, if this is the current one. Returns 0 if numbers are not finite or, if
   `strict`, digits were lost. With `single` the rows are rotated one by one. */
WITHIN int rotate(Window *window, Block *block, int copy, int strict, const int single)
{
    Rows *rows = &window->rows;
    const ptrdiff_t p = window_columns(window), c = window->c, wide = rows->wide;
    double was[AT_ONCE], *sums = window->sums[copy];
    memcpy(was, block->q, block->rows * sizeof *was);
    if (single)
        for (ptrdiff_t i = 0; i < block->rows; i++) {
            block->q[i] = add_row(rows, rows->block + i * wide, block->q[i], 1.0, copy);
            rows->now = copy;
        }
    else {
        const ptrdiff_t groups = (block->rows + K - 1) / K;
        for (ptrdiff_t i = block->rows; i < rows_of(groups); i++) {
            memset(rows->block + i * wide, 0, wide * sizeof(double));
            block->q[i] = 0.0;
        }
        pass(rows, 0, p, rows->block, block->q, groups, 0, 1.0, copy, NULL);
    }
    int good = 1;
    go_on(rows, copy);
    for (ptrdiff_t j = 0; j < p; j++)
        good &= rows->diagonal[copy][j] > 0.0 && rows->diagonal[copy][j] < INFINITY;
    for (ptrdiff_t i = 0; i < block->rows; i++) {
        const double ratio = was[i] != 0.0 ? block->q[i] / was[i] : 1.0; /* (1) */
        if (strict)
            good &= was[i] < 0.0 ? ratio > 0.0 && ratio * LEAST <= 1.0
                                 : single || ratio >= STEEP;
        for (ptrdiff_t k = 0; k < c; k++) {
            const double error = rows->block[i * wide + p + k];
            double *sum = sums + wide + k, *peak = window->peak + wide + k;
            *sum += block->q[i] * error * error;
            *peak = *sum > *peak ? *sum : *peak;
            good &= !strict || quiet(window, sums, k);
        }
    }
    return good;
}

/* Whether the weights are determined accurately, and nothing much larger has left since the
   triangle was computed. Columns that are 0 in all rows of the window have the weight 0. */
WITHIN int calm(const Window *window)
{
    const ptrdiff_t p = window_columns(window), c = window->c;
    const double *D = window->rows.diagonal[window->rows.now], *peak = window->peak;
    const double *sums = window->sums[window->rows.now];
    const double clean = window->loose ? CLEAN_LOOSE : CLEAN;
    int good = 1;
    for (ptrdiff_t j = 0; j < p; j++)
        good &= sums[j] == 0.0 || (D[j] > clean * sums[j] && D[j] >= LOW * peak[j] &&
                                   D[j] < INFINITY && D[j] > FAINT);
    for (ptrdiff_t k = 0; k < c; k++)
        good &= quiet(window, sums, k);
    return good;
}

/* Update the maxima. */
WITHIN void mark(Window *window)
{
    const ptrdiff_t p = window_columns(window), count = sums_of(window);
    const double *D = window->rows.diagonal[window->rows.now];
    const double *sums = window->sums[window->rows.now];
    for (ptrdiff_t j = 0; j < count; j++) {
        const double value = j < p ? D[j] : sums[j];
        window->peak[j] = value > window->peak[j] ? value : window->peak[j];
    }
}

/* Whether each feature varies by more than the rounding errors of its values. */
WITHIN int resolved(const Window *window)
{
    const ptrdiff_t p = window_columns(window), c = window->c;
    const double *sums = window->sums[window->rows.now];
    const double mass = window->sums[window->rows.now][window->rows.wide + c];
    double *largest = window->rows.block;
    int good = 1;
    memset(largest, 0, p * sizeof *largest);
    for (ptrdiff_t i = window->begin; i < window->end; i++) {
        const double *row = window_row(window, i);
        for (ptrdiff_t j = 0; j < p; j++)
            largest[j] = fabs(row[j]) > largest[j] ? fabs(row[j]) : largest[j];
    }
    for (ptrdiff_t j = window->free; j < p; j++)
        good &= sums[j] == 0.0 ||
                sums[j] > ROUNDING * ROUNDING * mass * (largest[j] * largest[j]);
    return good;
}

/* Make the clock of the last row 0. */
static void restart_clock(Window *window, ptrdiff_t stop)
{
    const double clock = window_clock(window);
    if (clock != 0.0)
        for (ptrdiff_t i = window->begin; i < stop; i++)
            *window_clock_of(window, i) -= clock;
    window->renewed -= clock;
    window->zero = 0.0;
}

/* Multiply D, and the sums, so that D is relative to the clock of the last row. */
static void rescale(Window *window)
{
    const ptrdiff_t p = window_columns(window), count = sums_of(window);
    const double clock = window_clock(window), by = exp2(window->zero - clock);
    for (ptrdiff_t j = 0; j < count; j++) {
        window->sums[window->rows.now][j] *= by;
        window->peak[j] *= by;
        if (j < p)
            window->rows.diagonal[window->rows.now][j] *= by;
    }
    window->zero = clock;
}

/* Compute the triangle anew from the rows of the window, relative to the last; `stop` is the end of
   the stored rows. Returns whether it is accurate. */
WITHIN int rebuild(Window *window, ptrdiff_t stop)
{
    Rows *rows = &window->rows;
    const ptrdiff_t c = window->c, p = window_columns(window);
    double *D = rows->diagonal[rows->now], *sums = window->sums[rows->now];
    Block block = {0};
    window->since = 0;
    window->built = 0;
    if (window->end == window->begin)
        return 0;
    restart_clock(window, stop);
    if (window->free) /* but not relative to its 1 */
        memcpy(window->center + 1, window_row(window, window->end - 1) + 1,
               (p + c - 1) * sizeof(double));
    memset(sums, 0, sums_of(window) * sizeof *sums);
    memset(window->peak, 0, sums_of(window) * sizeof *sums);
    const double share = exp2(window->renewed);
    for (ptrdiff_t j = 0; j < p; j++) {
        const double *base = window->base + j * (p + c);
        double *to = rows_at(rows, j);
        memset(to + edge(j), 0, (rows->wide - edge(j)) * sizeof(double));
        memcpy(to + j, base + j, (p + c - j) * sizeof(double));
        D[j] = window->base_diagonal[j] * share;
        for (ptrdiff_t l = j; l < p; l++)
            sums[l] += D[j] * (base[l] * base[l]);
        D[j] = D[j] > NONE ? D[j] : NONE;
    }
    for (ptrdiff_t i = window->begin; i < window->end; i += block.rows) {
        const ptrdiff_t many = window->end - i;
        block.rows = many < AT_ONCE ? many : AT_ONCE;
        for (ptrdiff_t r = 0; r < block.rows; r++)
            block.q[r] = put_row(window, i + r, rows->block + r * rows->wide, sums, 1.0);
        rotate(window, &block, rows->now, 0, 0);
    }
    window->built = calm(window) && (!window->loose || resolved(window));
    if (window->built)
        mark(window);
    return window->built;
}

/* Raise the penalty to its full weight. Returns 0 if digits were lost. */
WITHIN int renew(Window *window)
{
    Rows *rows = &window->rows;
    const ptrdiff_t p = window_columns(window), c = window->c, wide = rows->wide;
    const double clock = window_clock(window), zero = window->zero;
    const double more = exp2(clock - zero) - exp2(window->renewed - zero);
    double *sums = window->sums[rows->now];
    Block block = {0};
    int good = 1;
    window->renewed = clock;
    for (ptrdiff_t j = 0; j < p && good; j += block.rows) {
        block.rows = p - j < AT_ONCE ? p - j : AT_ONCE;
        for (ptrdiff_t r = 0; r < block.rows; r++) {
            double *to = rows->block + r * wide, D = window->base_diagonal[j + r];
            memset(to, 0, wide * sizeof *to);
            memcpy(to, window->base + (j + r) * (p + c), (p + c) * sizeof *to);
            block.q[r] = D > 0.0 ? D * more : 0.0;
            for (ptrdiff_t l = j + r; l < p; l++)
                sums[l] += block.q[r] * (to[l] * to[l]);
        }
        rotate(window, &block, rows->now, 0, 0);
        good = calm(window);
    }
    return good;
}

/* The number of rows that leave after row i, if the window begins at `begin`. */
WITHIN ptrdiff_t leaving_after(const Window *window, const Arriving *arriving, ptrdiff_t i,
                               ptrdiff_t begin)
{
    const ptrdiff_t count = i - begin; /* the row itself stays */
    if (window->limit)
        return count >= window->limit ? count + 1 - window->limit : 0;
    const double due = arriving->leaving ? arriving->leaving[i - arriving->start] : 0.0;
    return due >= count ? count : due > 0.0 ? (ptrdiff_t)due : 0;
}

/* Write up to `steps` new rows, with the rows that leave after each, to the block. */
WITHIN void fill(Window *window, Block *block, ptrdiff_t steps, const Arriving *arriving)
{
    const ptrdiff_t wide = window->rows.wide;
    double *to = window->rows.block, *sums = next_sums(window);
    block->rows = block->steps = block->gone = block->renew = 0;
    while (block->steps < steps && !block->renew) {
        const ptrdiff_t i = window->end + block->steps, begin = window->begin + block->gone;
        const ptrdiff_t gone = leaving_after(window, arriving, i, begin);
        const double clock = *window_clock_of(window, i);
        if (block->rows + 1 + gone > AT_ONCE || clock - window->zero > DEEP)
            return;
        block->entering[block->steps++] = block->rows;
        block->q[block->rows] = put_row(window, i, to + block->rows * wide, sums, 1.0);
        block->rows++;
        for (ptrdiff_t g = 0; g < gone; g++, block->rows++)
            block->q[block->rows] =
                put_row(window, begin + g, to + block->rows * wide, sums, -1.0);
        block->gone += gone;
        block->renew = clock - window->renewed >= RENEWED;
    }
}

/* Complete the steps of a block, whose rows are in the triangle. */
WITHIN void complete(Window *window, const Block *block, double *errors)
{
    const ptrdiff_t c = window->c, p = window_columns(window);
    for (ptrdiff_t s = 0; s < block->steps; s++)
        memcpy(errors + s * c, window->rows.block + block->entering[s] * window->rows.wide + p,
               c * sizeof *errors);
    window->begin += block->gone;
    window->end += block->steps;
    window->since += block->gone;
}

/* After some steps: renew the penalty if it is due, and compute the triangle anew if necessary. */
WITHIN void settle(Window *window, int accurate, int due, ptrdiff_t stop)
{
    accurate = accurate && calm(window);
    if (accurate)
        mark(window);
    if (due && accurate)
        accurate = renew(window);
    else if (due)
        window->renewed = window_clock(window);
    if (!accurate || window->since >= window->end - window->begin)
        rebuild(window, stop);
}

/* Learn one row, after which others leave; returns 0 and changes nothing if this is impossible. */
WITHIN int learn_row(Window *window, const Arriving *arriving, double *errors)
{
    Rows *rows = &window->rows;
    const int was = rows->now;
    Block block;
    const ptrdiff_t i = window->end;
    const ptrdiff_t gone = leaving_after(window, arriving, i, window->begin);
    fill(window, &block, 1, arriving);
    if (block.steps && block.rows <= GROUPS && rotate(window, &block, 1 - was, 1, 1)) {
        complete(window, &block, errors);
        settle(window, 1, block.renew, arriving->stop);
        return 1;
    }
    rows->now = was;
    const double clock = *window_clock_of(window, i);
    if (clock - window->zero > DEEP)
        return 0;
    block.rows = block.steps = 1;
    block.gone = gone;
    block.entering[0] = 0;
    block.q[0] = put_row(window, i, rows->block, next_sums(window), 1.0);
    if (!rotate(window, &block, 1 - was, 0, 1)) {
        rows->now = was;
        return 0;
    }
    complete(window, &block, errors);
    settle(window, !gone, clock - window->renewed >= RENEWED, arriving->stop);
    return 1;
}

/* Learn stored rows; returns the number of rows learned. */
EVERY_MACHINE static ptrdiff_t learn_stored(Window *window, const Arriving *arriving,
                                            double *errors)
{
    const ptrdiff_t start = arriving->start, stop = arriving->stop, c = window->c;
    ptrdiff_t single = stop - start == 1;
    Block block;
    while (window->built && window->end < stop) {
        double *at = errors + (window->end - start) * c;
        const int was = window->rows.now;
        if (*window_clock_of(window, window->end) - window->zero > DEEP)
            rescale(window);
        if (single > 0) {
            single--;
            if (!learn_row(window, arriving, at))
                break;
            continue;
        }
        fill(window, &block, stop - window->end, arriving);
        single = block.steps > 1 ? block.steps : 1;
        if (block.steps > 1 && rotate(window, &block, 1 - was, 1, 0) && calm(window)) {
            single = 0;
            complete(window, &block, at);
            settle(window, 1, block.renew, stop);
        } else
            window->rows.now = was;
    }
    return window->end - start;
}

int window_reserve(Window *window, ptrdiff_t n)
{
    const ptrdiff_t count = window->end - window->begin, stride = window->stride;
    const size_t bytes = count * stride * sizeof(double);
    if (window->end + n <= window->room)
        return 1;
    if (2 * (count + n) <= window->room) { /* each row is moved at most once on average */
        memmove(window->stored, window_row(window, window->begin), bytes);
    } else {
        const ptrdiff_t room = 2 * (count + n) + 64;
        double *stored = malloc((room * stride + WIDE) * sizeof(double));
        if (!stored)
            return 0;
        if (count)
            memcpy(stored, window_row(window, window->begin), bytes);
        free(window->stored);
        window->stored = stored;
        window->room = room;
    }
    window->begin = 0;
    window->end = count;
    return 1;
}

/* Store n rows after the window, for which there must be room. */
static void store(Window *window, ptrdiff_t n, const double *X, const double *B,
                  const double *weights, const double *clock)
{
    const ptrdiff_t d = window->d, c = window->c;
    const double last = window_clock(window);
    for (ptrdiff_t i = 0; i < n; i++) {
        double *row = window_row(window, window->end + i);
        row[0] = 1.0; /* the intercept */
        row += window->free;
        memcpy(row, X + i * d, d * sizeof *row);
        memcpy(row + d, B + i * c, c * sizeof *row);
        row[d + c] = weights ? weights[i] : 1.0;
        row[d + c + 1] = last + (clock ? clock[i] : window->step * (i + 1));
    }
}

int window_append(Window *window, ptrdiff_t n, const double *X, const double *B,
                  const double *weights, const double *clock)
{
    if (!window_reserve(window, n))
        return 0;
    store(window, n, X, B, weights, clock);
    window->end += n;
    window->built = 0;
    return 1;
}

/* The number of leading rows whose squares are far from overflow and underflow. */
static ptrdiff_t safe_rows(const Window *window, ptrdiff_t n, const double *X, const double *B,
                           const double *weights)
{
    const ptrdiff_t d = window->d, c = window->c;
    for (ptrdiff_t i = 0; i < n; i++) {
        int good = !weights || (weights[i] <= LARGEST && weights[i] * LARGEST >= 1.0);
        for (ptrdiff_t j = 0; j < d; j++)
            good &= fabs(X[i * d + j]) <= LARGEST;
        for (ptrdiff_t l = 0; l < c; l++)
            good &= fabs(B[i * c + l]) <= LARGEST;
        if (!good)
            return i;
    }
    return n;
}

ptrdiff_t window_learn(Window *window, ptrdiff_t n, const double *X, const double *B,
                       const double *weights, const double *clock, const double *leaving,
                       double *errors)
{
    enum { CHUNK = 4096 };
    ptrdiff_t learned = 0;
    while (learned < n && window_ready(window)) {
        const ptrdiff_t i = learned, most = n - i < CHUNK ? n - i : CHUNK;
        const ptrdiff_t k = safe_rows(window, most, X + i * window->d, B + i * window->c,
                                      weights ? weights + i : NULL);
        if (!window_reserve(window, k))
            return -1;
        store(window, k, X + i * window->d, B + i * window->c, weights ? weights + i : NULL, NULL);
        if (clock) { /* relative to the last row before the call */
            const double last = window_clock(window) - (i ? clock[i - 1] : 0.0);
            for (ptrdiff_t r = 0; r < k; r++)
                *window_clock_of(window, window->end + r) = last + clock[i + r];
        }
        const Arriving arriving = {window->end, window->end + k, leaving ? leaving + i : NULL};
        const ptrdiff_t some = learn_stored(window, &arriving, errors + i * window->c);
        learned += some;
        if (some < most)
            break;
    }
    return learned;
}

double window_leverage(const Window *window, const double *x)
{
    const Rows *rows = &window->rows;
    const ptrdiff_t p = window_columns(window);
    const double scale = exp2(window->zero - window_clock(window));
    double *row = rows->block, leverage = 0.0;
    row[0] = 1.0; /* the intercept */
    for (ptrdiff_t j = window->free; j < p; j++)
        row[j] = x[j - window->free] - window->center[j];
    for (ptrdiff_t j = 0; j < p; j++) {
        const double a = row[j], *u = rows_at(rows, j);
        for (ptrdiff_t l = j + 1; l < p; l++)
            row[l] -= a * u[l];
        if (a != 0.0) /* a feature that is constant in the window has no information */
            leverage += window->sums[rows->now][j] == 0.0
                            ? INFINITY
                            : a * a / (scale * rows->diagonal[rows->now][j]);
    }
    return leverage;
}

int window_ready(Window *window)
{
    return window->built || rebuild(window, window->end);
}

void window_penalise(Window *window, const double *triangle)
{
    const ptrdiff_t p = window_columns(window), c = window->c;
    memset(window->base, 0, p * (p + c) * sizeof(double));
    for (ptrdiff_t j = 0; j < p; j++) {
        const double *from = triangle + j * (p + c), pivot = from[j];
        double *to = window->base + j * (p + c);
        window->base_diagonal[j] = pivot * pivot;
        for (ptrdiff_t l = j; l < p + c; l++)
            to[l] = l == j ? 1.0 : pivot * pivot > 0.0 ? from[l] / pivot : 0.0;
    }
    window->built = 0;
}

int window_open(Window *window, ptrdiff_t d, ptrdiff_t c, int free, int loose)
{
    memset(window, 0, sizeof *window);
    window->d = d;
    window->c = c;
    window->free = free;
    window->loose = loose;
    window->stride = d + free + c + 2;
    const ptrdiff_t p = window_columns(window);
    if (!rows_open(&window->rows, p, c))
        return 0;
    const ptrdiff_t sums = sums_of(window);
    const size_t sizes[] = {p * (p + c), p, p + c, sums, sums, sums};
    double **parts[] = {&window->base,    &window->base_diagonal, &window->center,
                        &window->sums[0], &window->sums[1],       &window->peak};
    window->memory = room_for(parts, sizes, sizeof sizes / sizeof *sizes, 1);
    if (!window->memory)
        window_close(window);
    return window->memory != NULL;
}

void window_close(Window *window)
{
    rows_close(&window->rows);
    free(window->memory);
    free(window->stored);
    window->memory = NULL;
    window->stored = NULL;
}

int window_copy(Window *to, const Window *from)
{
    const ptrdiff_t p = window_columns(from), c = from->c, count = sums_of(from);
    const Rows *rows = &from->rows;
    const size_t size = rows_at(rows, p) - rows_at(rows, 0) + rows->wide;
    to->begin = to->end = 0;
    if (!window_reserve(to, from->end - from->begin))
        return 0;
    if (from->end > from->begin)
        memcpy(to->stored, window_row(from, from->begin),
               (from->end - from->begin) * from->stride * sizeof(double));
    to->end = from->end - from->begin;
    to->rows.now = rows->now;
    to->rows.fresh = 0;
    memcpy(to->rows.triangle[rows->now], rows->triangle[rows->now], size * sizeof(double));
    memcpy(to->rows.diagonal[rows->now], rows->diagonal[rows->now], p * sizeof(double));
    memcpy(to->base, from->base, p * (p + c) * sizeof(double));
    memcpy(to->base_diagonal, from->base_diagonal, p * sizeof(double));
    memcpy(to->center, from->center, (p + c) * sizeof(double));
    memcpy(to->sums[rows->now], from->sums[rows->now], count * sizeof(double));
    memcpy(to->peak, from->peak, count * sizeof(double));
    to->limit = from->limit;
    to->step = from->step;
    to->zero = from->zero;
    to->renewed = from->renewed;
    to->since = from->since;
    to->built = from->built;
    return 1;
}
