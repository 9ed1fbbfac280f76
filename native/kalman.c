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

/* P <- P + c a a^T for a vector whose elements after `last` are 0; a is overwritten (Agee-Turner). */
WITHIN void add_outer(double *factor, ptrdiff_t p, double c, double *a, ptrdiff_t last)
{
    for (ptrdiff_t j = last; j >= 0; j--) {
        double *u = factor + j * p;
        const double s = a[j], all = u[j] + c * s * s;
        if (s == 0.0 || all == 0.0)
            continue;
        const double share = c * s / all;
        c *= u[j] / all;
        u[j] = all;
        for (ptrdiff_t i = 0; i < j; i++) {
            a[i] -= s * u[i];
            u[i] += share * a[i];
        }
    }
}

/* F is given as its transpose. P <- F P F^T / discount + diag(q) + G^T G; `old` is work space for (p, p) numbers. */
WITHIN void predict(double *factor, double *old, double *a, ptrdiff_t p, double discount,
                    const double *q, const double *G, const double *F)
{
    if (F) {
        memcpy(old, factor, (size_t)(p * p) * sizeof(double));
        memset(factor, 0, (size_t)(p * p) * sizeof(double));
        for (ptrdiff_t j = 0; j < p; j++) {
            const double *u = old + j * p;
            memcpy(a, F + j * p, (size_t)p * sizeof(double));
            for (ptrdiff_t k = 0; k < j; k++)
                for (ptrdiff_t i = 0; i < p; i++)
                    a[i] += F[k * p + i] * u[k];
            add_outer(factor, p, fmin(u[j] / discount, LARGEST), a, p - 1);
        }
    } else if (discount != 1.0) {
        for (ptrdiff_t j = 0; j < p; j++)
            factor[j * p + j] = fmin(factor[j * p + j] / discount, LARGEST);
    }
    for (ptrdiff_t j = 0; j < p; j++)
        if (q[j] > 0.0) {
            memset(a, 0, (size_t)p * sizeof(double));
            a[j] = 1.0;
            add_outer(factor, p, q[j], a, j);
        }
    for (ptrdiff_t j = 0; G && j < p; j++) {
        memcpy(a, G + j * p, (size_t)p * sizeof(double));
        add_outer(factor, p, 1.0, a, p - 1);
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

/* Learn n rows; W (c, p) and factor are updated in place. A row whose first target is nan has no
   targets. Writes the predictions (n, c) before each row and the variances S (n). Returns whether
   all numbers are finite. */
EVERY_MACHINE static int filter(ptrdiff_t n, ptrdiff_t p, ptrdiff_t c, double discount,
                                 void *const *at, double *old, double *a)
{
    const double *X = at[0], *Y = at[1], *r = at[2], *q = at[3], *G = at[4], *F = at[5];
    double *W = at[6], *factor = at[7], *predictions = at[8], *S = at[9], sum = 0.0;
    for (ptrdiff_t i = 0; i < n; i++, X += p, Y += c, predictions += c) {
        for (ptrdiff_t k = 0; F && k < c; k++) {
            memset(a, 0, (size_t)p * sizeof(double));
            for (ptrdiff_t l = 0; l < p; l++)
                for (ptrdiff_t j = 0; j < p; j++)
                    a[j] += F[l * p + j] * W[k * p + l];
            memcpy(W + k * p, a, (size_t)p * sizeof(double));
        }
        predict(factor, old, a, p, discount, q, G, F);
        for (ptrdiff_t k = 0; k < c; k++) {
            predictions[k] = 0.0;
            for (ptrdiff_t j = 0; j < p; j++)
                predictions[k] += W[k * p + j] * X[j];
            sum += 0.0 * predictions[k];
        }
        S[i] = NAN;
        if (isnan(Y[0]))
            continue;
        S[i] = correct(factor, a, p, X, r[i]);
        sum += 0.0 * S[i];
        for (ptrdiff_t k = 0; k < c; k++)
            for (ptrdiff_t j = 0; j < p; j++)
                W[k * p + j] += a[j] * ((Y[k] - predictions[k]) / S[i]);
    }
    for (ptrdiff_t j = 0; j < c * p; j++)
        sum += 0.0 * W[j]; /* nan unless finite */
    for (ptrdiff_t j = 0; j < p * p; j++)
        sum += 0.0 * factor[j];
    return sum == 0.0;
}

PyObject *kalman(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_ssize_t n, p, c;
    int finite = 0;
    double discount;
    (void)module;
    if (!PyArg_ParseTuple(args, "nnndOOOOOOOOOO:kalman", &n, &p, &c, &discount, &a.given[0],
                          &a.given[1], &a.given[2], &a.given[3], &a.given[4], &a.given[5],
                          &a.given[6], &a.given[7], &a.given[8], &a.given[9]))
        return NULL;
    const Py_ssize_t square = numbers_in(p, p), outputs = numbers_in(n, c);
    const Py_ssize_t sizes[] = {numbers_in(n, p), outputs, n,      p,       square,
                                square, numbers_in(c, p), square, outputs, n};
    const int written = 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9;
    int good = acquire_arrays(&a, 10, "dddddddddd", sizes, written, 1 << 4 | 1 << 5);
    double *work = good ? malloc((size_t)(p * p + p + 1) * sizeof(double)) : NULL;
    if (work) {
        Py_BEGIN_ALLOW_THREADS
        const unsigned mode = flush_subnormals();
        finite = filter(n, p, c, discount, a.at, work, work + p * p);
        restore_mode(mode);
        Py_END_ALLOW_THREADS
    } else if (good) {
        PyErr_NoMemory();
        good = 0;
    }
    free(work);
    release_arrays(&a);
    return good ? PyBool_FromLong(finite) : NULL;
}
