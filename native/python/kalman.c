/* The Kalman filter of linear weights, row by row, in the square-root form of Bierman and Thornton.
 *
 * P = sum over j of D_j u_j u_j^T: row j of `factor` (p, p) contains u_j before the diagonal and D_j
 * on it; element j of u_j is 1, and those after it are 0. The equations are in
 * onepass/learners/kalman.py.
 */
#include "buffers.h"

#include <math.h>
#include <string.h>

#include "machine.h"

static const double LARGEST = 1e100; /* as in kalman.py */

enum { TILE = 4 }; /* vectors that stay in registers */

/* Work space: rows of vectors with p numbers each; those after them are arbitrary. */
typedef struct {
    ptrdiff_t p, stride, m;
    double *F;        /* the columns of the transition (p, stride) */
    int moved, upper; /* whether there is a transition; whether it is upper triangular or none */
    double *rows;     /* m rows, whose sum of outer products with these weights is factored */
    double *weights;
    double *column, *next, *weighted; /* a column of the rows, and the one before it (m) */
    double *u, *sums;                 /* a row of the factor, and sums over the rows (stride) */
} Room;

/* Call a function for tiles of `end` numbers; n, the number of vectors, is constant in each. */
#define TILES(end, function, ...)                                                                  \
    for (ptrdiff_t at = 0; at < (end); at += TILE * WIDE)                                          \
        switch (((end) - at + WIDE - 1) / WIDE) {                                                  \
        case 1:                                                                                    \
            function(1, at, __VA_ARGS__);                                                          \
            break;                                                                                 \
        case 2:                                                                                    \
            function(2, at, __VA_ARGS__);                                                          \
            break;                                                                                 \
        case 3:                                                                                    \
            function(3, at, __VA_ARGS__);                                                          \
            break;                                                                                 \
        default:                                                                                   \
            function(TILE, at, __VA_ARGS__);                                                       \
        }

/* row <- F u, where number k of u is 1 and those after it are 0. */
WITHIN void move(const int n, ptrdiff_t at, const Room *room, const double *u, ptrdiff_t k,
                 double *row)
{
    const double *F = room->F + at;
    vector sum[TILE];
    for (int v = 0; v < n; v++)
        sum[v] = ((const vector *)(F + k * room->stride))[v];
    for (ptrdiff_t l = room->upper ? at : 0; l < k; l++)
        for (int v = 0; v < n; v++)
            sum[v] += u[l] * ((const vector *)(F + l * room->stride))[v];
    for (int v = 0; v < n; v++)
        ((vector *)(row + at))[v] = sum[v];
}

/* Subtract u times `column` from the rows, and sum them times `weighted`. */
WITHIN void eliminate(const int n, ptrdiff_t at, const Room *room)
{
    const ptrdiff_t m = room->m, stride = room->stride;
    const double *column = room->column, *weighted = room->weighted;
    double *rows = room->rows + at;
    vector u[TILE], sum[TILE];
    for (int v = 0; v < n; v++) {
        u[v] = ((const vector *)(room->u + at))[v];
        sum[v] = (vector){0.0};
    }
    for (ptrdiff_t r = 0; r < m; r++, rows += stride) {
        const double a = column[r], b = weighted[r];
        for (int v = 0; v < n; v++) {
            const vector rest = ((vector *)rows)[v] - a * u[v];
            ((vector *)rows)[v] = rest;
            sum[v] += b * rest;
        }
    }
    for (int v = 0; v < n; v++)
        ((vector *)(room->sums + at))[v] = sum[v];
}

/* Count the row that was written after the others, whose numbers after column j are 0. */
WITHIN void join(Room *room, double weight, ptrdiff_t j)
{
    const double *row = room->rows + room->m * room->stride, a = weight * row[j];
    room->weights[room->m] = weight;
    room->column[room->m++] = row[j];
    for (ptrdiff_t i = 0; i <= j; i++)
        room->sums[i] += a * row[i];
}

/* P <- F P F^T / discount + diag(q) + G^T G: a sum of outer products, factored by Gram-Schmidt from
   the last column (Thornton). Rows join at the last column in which they are not 0. */
WITHIN void predict(Room *room, double *factor, double discount, const double *q, const double *G)
{
    const ptrdiff_t p = room->p, stride = room->stride;
    ptrdiff_t left = p; /* rows of the factor that have not joined */
    memset(room->sums, 0, (size_t)p * sizeof(double));
    room->m = 0;
    for (ptrdiff_t k = 0; G && k < p; k++) {
        memcpy(room->rows + k * stride, G + k * p, (size_t)p * sizeof(double));
        join(room, 1.0, p - 1);
    }
    for (ptrdiff_t j = p - 1; j >= 0; j--) {
        double *D = factor + j * p + j;
        while (left > (room->upper ? j : 0)) {
            const double *u = factor + --left * p;
            double *row = room->rows + room->m * stride;
            if (room->moved) {
                TILES(room->upper ? j + 1 : p, move, room, u, left, row)
            } else {
                memcpy(row, u, (size_t)j * sizeof(double));
                row[j] = 1.0;
            }
            join(room, fmin(u[left] / discount, LARGEST), j);
        }
        if (q[j] > 0.0) {
            double *row = room->rows + room->m * stride;
            memset(row, 0, (size_t)j * sizeof(double));
            row[j] = 1.0;
            join(room, q[j], j);
        }
        *D = room->sums[j];
        if (j == 0)
            break;
        const double scale = *D > 0.0 ? 1.0 / *D : 0.0;
        for (ptrdiff_t i = 0; i < j; i += WIDE)
            *(vector *)(room->u + i) = scale * *(vector *)(room->sums + i);
        memcpy(D - j, room->u, (size_t)j * sizeof(double));
        double *restrict column = room->column, *restrict next = room->next;
        double *restrict weighted = room->weighted;
        const double *restrict weights = room->weights, *row = room->rows + j - 1;
        for (ptrdiff_t r = 0, m = room->m; r < m; r++, row += stride) {
            next[r] = *row - column[r] * room->u[j - 1];
            weighted[r] = weights[r] * next[r];
        }
        TILES(j, eliminate, room)
        room->column = next;
        room->next = column;
    }
}

/* P <- P - P x x^T P / S with S = x^T P x + r; writes b = P x and returns S (Bierman). */
WITHIN double correct(double *factor, double *b, ptrdiff_t p, const double *x, double r)
{
    double S = r;
    for (ptrdiff_t j = 0; j < p; j++) {
        double *u = factor + j * p, f = x[j];
        for (ptrdiff_t i = 0; i < j; i++)
            f += u[i] * x[i];
        const double v = u[j] * f, all = S + f * v, by = f / S;
        u[j] *= S / all;
        for (ptrdiff_t i = 0; i < j; i++) {
            const double was = u[i];
            u[i] -= by * b[i];
            b[i] += v * was;
        }
        b[j] = v;
        S = all;
    }
    return S;
}

/* Learn n rows in `count` filters, where F is given as its transpose. W (count, c, p), the factors
   (count, p, p) and the sums of squared normalised innovations (count, c) are updated in place. A
   row whose first target is nan has no targets. Writes the predictions (count, n, c) before each
   row. Returns whether all numbers are finite. */
EVERY_MACHINE static int filter(ptrdiff_t count, ptrdiff_t n, ptrdiff_t p, ptrdiff_t c,
                                double discount, void *const *at, Room *room)
{
    const double *X = at[0], *Y = at[1], *r = at[2], *q = at[3], *G = at[4], *F = at[5];
    double *W = at[6], *factor = at[7], *squares = at[8], *predictions = at[9], sum = 0.0;
    double *a = room->u;
    room->moved = F != NULL;
    room->upper = 1;
    for (ptrdiff_t k = 0; F && k < p; k++) {
        memcpy(room->F + k * room->stride, F + k * p, (size_t)p * sizeof(double));
        for (ptrdiff_t j = k + 1; room->upper && j < p; j++)
            room->upper = F[k * p + j] == 0.0;
    }
    for (ptrdiff_t e = 0; e < count; e++, q += p, W += c * p, factor += p * p, squares += c) {
        int moves = F || G;
        for (ptrdiff_t j = 0; j < p; j++)
            moves |= q[j] > 0.0;
        for (ptrdiff_t i = 0; i < n; i++, predictions += c) {
            const double *x = X + i * p, *y = Y + i * c;
            for (ptrdiff_t k = 0; F && k < c; k++) {
                memset(a, 0, (size_t)p * sizeof(double));
                for (ptrdiff_t l = 0; l < p; l++)
                    for (ptrdiff_t j = 0; j < p; j++)
                        a[j] += room->F[l * room->stride + j] * W[k * p + l];
                memcpy(W + k * p, a, (size_t)p * sizeof(double));
            }
            if (moves)
                predict(room, factor, discount, q, G);
            for (ptrdiff_t j = 0; !moves && discount != 1.0 && j < p; j++)
                factor[j * p + j] = fmin(factor[j * p + j] / discount, LARGEST);
            for (ptrdiff_t k = 0; k < c; k++) {
                predictions[k] = 0.0;
                for (ptrdiff_t j = 0; j < p; j++)
                    predictions[k] += W[k * p + j] * x[j];
                sum += 0.0 * predictions[k]; /* nan unless finite */
            }
            if (isnan(y[0]))
                continue;
            const double S = correct(factor, a, p, x, r[i]);
            for (ptrdiff_t k = 0; k < c; k++) {
                const double error = y[k] - predictions[k];
                squares[k] += error * error / S;
                for (ptrdiff_t j = 0; j < p; j++)
                    W[k * p + j] += a[j] * (error / S);
            }
        }
        for (ptrdiff_t k = 0; k < c; k++)
            sum += 0.0 * squares[k];
        for (ptrdiff_t j = 0; j < c * p; j++)
            sum += 0.0 * W[j];
        for (ptrdiff_t j = 0; j < p * p; j++)
            sum += 0.0 * factor[j];
    }
    return sum == 0.0;
}

PyObject *kalman(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_ssize_t count, n, p, c;
    int finite = 0;
    double discount;
    (void)module;
    if (!PyArg_ParseTuple(args, "nnnndOOOOOOOOOO:kalman", &count, &n, &p, &c, &discount,
                          &a.given[0], &a.given[1], &a.given[2], &a.given[3], &a.given[4],
                          &a.given[5], &a.given[6], &a.given[7], &a.given[8], &a.given[9]))
        return NULL;
    const Py_ssize_t square = numbers_in(p, p), outputs = numbers_in(n, c);
    const Py_ssize_t weights = numbers_in(c, p), all = numbers_in(count, c);
    const Py_ssize_t sizes[] = {numbers_in(n, p), outputs, n, numbers_in(count, p), square, square,
                                numbers_in(count, weights), numbers_in(count, square), all,
                                numbers_in(count, outputs)};
    const int written = 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9;
    const int good = acquire_arrays(&a, 10, "dddddddddd", sizes, written, 1 << 4 | 1 << 5);
    void *work = NULL;
    if (good) {
        Room room = {.p = p, .stride = edge(p + WIDE - 1)};
        double **const parts[] = {&room.F,    &room.rows,     &room.weights, &room.column,
                                  &room.next, &room.weighted, &room.u,       &room.sums};
        const size_t one = (size_t)room.stride, most = (size_t)p * (a.at[4] ? 3 : 2);
        const size_t needed[] = {one * (a.at[5] ? (size_t)p : 0), one * most, most, most, most,
                                 most, one, one};
        work = room_for(parts, needed, 8, 0);
        if (work) {
            Py_BEGIN_ALLOW_THREADS
            const unsigned mode = flush_subnormals();
            finite = filter(count, n, p, c, discount, a.at, &room);
            restore_mode(mode);
            Py_END_ALLOW_THREADS
        } else
            PyErr_NoMemory();
    }
    free(work);
    release_arrays(&a);
    return work ? PyBool_FromLong(finite) : NULL;
}
