/* Many states of recursive least squares of the same sizes, each packed in a few numbers. */
#include "packed.h"

#include "givens.h"

ptrdiff_t packed_size(const Rows *rows)
{
    const ptrdiff_t d = rows->d, c = rows->c, m = rows->free ? 2 * (d + c) : 0;
    return d * (d - 1) / 2 + d * c + d + c + m + (rows->level > 0.0 ? 3 * d + 2 : 0) + 3;
}

/* Copy n numbers from or to a packed state; return the position after them. */
WITHIN double *transfer(double *state, double *part, ptrdiff_t n, const int load)
{
    if (load)
        memcpy(part, state, n * sizeof *part);
    else
        memcpy(state, part, n * sizeof *part);
    return state + n;
}

/* Copy everything except the counts, with D as it is. */
WITHIN double *transfer_all(Rows *rows, double *state, const int load)
{
    const ptrdiff_t d = rows->d, c = rows->c;
    for (ptrdiff_t j = 0; j < d; j++) {
        double *row = rows_at(rows, j);
        if (load)
            row[j] = 1.0;
        for (ptrdiff_t l = j + 1; l < d + c; l++, state++)
            if (load)
                row[l] = *state;
            else
                *state = row[l];
    }
    state = transfer(state, rows->diagonal[rows->now], d, load);
    state = transfer(state, rows->squares, c, load);
    if (rows->free) {
        state = transfer(state, rows->means, d + c, load);
        state = transfer(state, rows->rest, d + c, load);
    }
    if (rows->level > 0.0) {
        state = transfer(state, rows->energy, d, load);
        state = transfer(state, rows->active, d, load);
        state = transfer(state, rows->last, d, load);
        state = transfer(state, &rows->age, 1, load);
    }
    return state;
}

void packed_load(Rows *rows, const double *from)
{
    const double *state = transfer_all(rows, (double *)from, 1); /* it is only read */
    if (rows->level > 0.0)
        rows->count = (ptrdiff_t)*state++;
    rows->faded = *state++;
    rows->mass = *state;
    rows->due = 1.0;
    rows->fresh = 0;
}

static void store(Rows *rows, double *state)
{
    double *D = rows->diagonal[rows->now];
    for (ptrdiff_t j = 0; j < rows->d; j++)
        D[j] *= rows->due;
    rows->due = 1.0;
    state = transfer_all(rows, state, 0);
    if (rows->level > 0.0)
        *state++ = (double)rows->count;
    *state++ = rows->faded;
    *state = rows->mass;
}

ptrdiff_t packed_learn(Rows *rows, double *state, ptrdiff_t n, const int *at, const double *X,
                       const double *Y, const double *weights, double *errors, double *work)
{
    const ptrdiff_t d = rows->d, c = rows->c;
    double *x = work, *y = x + GATHERED * d, *s = y + GATHERED * c, *e = s + GATHERED;
    ptrdiff_t done = 0, learned = 0, k = 0;
    packed_load(rows, state);
    for (; done < n && learned == k; done += learned) {
        k = n - done < GATHERED ? n - done : GATHERED;
        for (ptrdiff_t i = 0; i < k; i++) {
            const ptrdiff_t row = at[done + i];
            memcpy(x + i * d, X + row * d, d * sizeof *x);
            memcpy(y + i * c, Y + row * c, c * sizeof *y);
            s[i] = weights ? weights[row] : 1.0;
        }
        learned = rows_learn(rows, k, x, y, weights ? s : NULL, e);
        if (learned < 0)
            return 0;
        for (ptrdiff_t i = 0; i < learned; i++)
            memcpy(errors + at[done + i] * c, e + i * c, c * sizeof *e);
    }
    if (done > 0) {
        store(rows, state);
        state[packed_size(rows) - 1] += (double)done;
    }
    return done;
}
