/* Means and sums of squares of classes, and scores from them; onepass/learners/class_means.py and
   discriminant.py have the equations, onepass/native.py the functions. */
#include "buffers.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "calibration.h"
#include "machine.h"
#include "reading.h"

enum { SPAN = 128 }; /* rows that are scored together */

/* BLAS's dsyrk; an upper triangle in the order of C is a lower one of Fortran. */
typedef void Syrk(char *uplo, char *trans, int *n, int *k, double *alpha, double *a, int *lda,
                  double *beta, double *c, int *ldc);

/* Parts of a vector for c classes, d features and k covariances: the number of rows, those of each
   class (c), their weights (c), the first rows (c, d), the means relative to them (c, d), and the
   sums of squares (k, d, d), upper triangles. */
typedef struct {
    ptrdiff_t k, c, d;
    double *seen, *rows, *mass, *origins, *offsets, *sums;
} Moments;

/* The size of a vector; -1 if the numbers are negative or too large. */
static Py_ssize_t moments_size(Py_ssize_t k, Py_ssize_t c, Py_ssize_t d)
{
    if (c < 0 || d < 0 || c > INT_MAX / SPAN || d > INT_MAX / SPAN || (k != 0 && k != 1 && k != c))
        return -1;
    const Py_ssize_t means = numbers_in(2 * c, d + 1), sums = numbers_in(numbers_in(k, d), d);
    return means < 0 || sums < 0 || sums >= PY_SSIZE_T_MAX - means ? -1 : 1 + means + sums;
}

static Moments moments_of(double *vector, ptrdiff_t k, ptrdiff_t c, ptrdiff_t d)
{
    double *rows = vector + 1, *origins = rows + 2 * c, *offsets = origins + c * d;
    return (Moments){k, c, d, vector, rows, rows + c, origins, offsets, offsets + c * d};
}

/* Move the mean of class y by a row x of weight w, and write the row that is added to the sums. */
EVERY_MACHINE static void move_mean(const Moments *m, ptrdiff_t y, const double *x, double w,
                                    double *deviation)
{
    double *origin = m->origins + y * m->d, *offset = m->offsets + y * m->d;
    const double mass = m->mass[y], share = w / (mass + w), root = sqrt(share * mass);
    if (!(mass > 0.0))
        memcpy(origin, x, m->d * sizeof *x);
    for (ptrdiff_t j = 0; j < m->d; j++) {
        deviation[j] = (x[j] - origin[j]) - offset[j];
        offset[j] += share * deviation[j]; /* (1) */
        deviation[j] *= root;              /* (2) */
    }
    m->mass[y] = mass + w;
    m->rows[y] += 1.0;
    *m->seen += 1.0;
}

/* Learn rows one after the other; `work` is for n rows, `ends` for c + 1 indices. The rows that are
   added to the sums are grouped by covariance. */
static void learn(Syrk *syrk, const Moments *m, Py_ssize_t n, const double *X,
                  const double *labels, const double *weights, double *work, Py_ssize_t *ends)
{
    const int each = m->k > 1;
    const ptrdiff_t d = m->d;
    memset(ends, 0, (m->c + 1) * sizeof *ends);
    for (Py_ssize_t i = 0; i < n; i++)
        ends[each ? (Py_ssize_t)labels[i] + 1 : 1]++;
    for (ptrdiff_t k = 0; k < m->c; k++)
        ends[k + 1] += ends[k]; /* ends[k] is the start of k, and then moves to its end */
    for (Py_ssize_t i = 0; i < n; i++) {
        const ptrdiff_t y = (ptrdiff_t)labels[i];
        move_mean(m, y, X + i * d, weights[i], work + ends[each ? y : 0]++ * d);
    }
    Py_ssize_t start = 0;
    for (ptrdiff_t k = 0; k < m->k; start = ends[k++]) {
        int size = (int)d, count = (int)(ends[k] - start);
        double one = 1.0;
        if (count)
            syrk("L", "N", &size, &count, &one, work + start * d, &size, &one, m->sums + k * d * d,
                 &size);
    }
}

/* class_learn(syrk, k, c, d, vector, n, X, labels, weights, calibration, scores) */
PyObject *class_learn(PyObject *module, PyObject *args)
{
    Arrays a;
    PyObject *capsule;
    Py_ssize_t n, k, c, d;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnnnOnOOOOO:class_learn", &capsule, &k, &c, &d, &a.given[0], &n,
                          &a.given[1], &a.given[2], &a.given[3], &a.given[4], &a.given[5]))
        return NULL;
    if (!PyCapsule_CheckExact(capsule))
        return PyErr_Format(PyExc_TypeError, "class_learn: expected BLAS's dsyrk in a capsule");
    Syrk *syrk = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    const Py_ssize_t numbers = n > INT_MAX / 2 ? -1 : numbers_in(n, d);
    const Py_ssize_t sizes[] = {moments_size(k, c, d),         numbers, n, n,
                                numbers_in(c, 2) + CLASSES_AT, numbers_in(n, c)};
    int good = acquire_arrays(&a, 6, "dddddd", sizes, 1 << 4, 3 << 4);
    const int writable = good && !a.view[0].readonly;
    const double *labels = good ? a.at[2] : NULL, *weights = good ? a.at[3] : NULL;
    for (Py_ssize_t i = 0; good && i < n; i++)
        if (!(labels[i] >= 0.0 && labels[i] < (double)c)) {
            PyErr_Format(PyExc_ValueError, "class_learn: expected classes below %zd", c);
            good = 0;
        }
    double *work = good ? PyMem_Malloc((numbers + 1 + c + 1) * sizeof *work) : NULL;
    if (good && !work)
        good = PyErr_NoMemory() != NULL;
    if (good && writable) {
        const Moments m = moments_of(a.at[0], k, c, d);
        PyThreadState *state = n > 1 ? PyEval_SaveThread() : NULL;
        learn(syrk, &m, n, a.at[1], labels, weights, work, (Py_ssize_t *)(work + numbers + 1));
        for (Py_ssize_t i = 0; a.at[4] && a.at[5] && i < n; i++)
            calibrate_state(a.at[4], c, (double *)a.at[5] + i * c, (ptrdiff_t)labels[i], weights[i]);
        if (state)
            PyEval_RestoreThread(state);
    }
    PyMem_Free(work);
    release_arrays(&a);
    return good ? PyBool_FromLong(writable) : NULL;
}

/* The length of a row of d numbers and one more, in whole vectors. */
static Py_ssize_t stride_of(Py_ssize_t d)
{
    return edge(d + WIDE);
}

#define at(numbers) (*(loose *)(numbers))

/* Subtract the rows of a panel, times the factors f (8), from w, in the columns from `start` on. */
WITHIN void subtract(double *w, const double *f, const double *panel, ptrdiff_t start,
                     ptrdiff_t stride)
{
    for (ptrdiff_t j = start; j < stride; j += WIDE) {
        vector v = at(w + j);
#pragma GCC unroll 8
        for (int p = 0; p < WIDE; p++)
            v -= f[p] * at(panel + p * stride + j);
        at(w + j) = v;
    }
}

/* Write the matrix factor * sums + add * I, to be factorised as U^T U, to U (stride + 1, stride), and
   its diagonal as the last row; other rows and columns from d on are 0. */
static void shrink(ptrdiff_t d, const double *sums, double factor, double add, double *U)
{
    const ptrdiff_t stride = stride_of(d);
    memset(U, 0, (stride + 1) * stride * sizeof *U);
    for (ptrdiff_t i = 0; i < d; i++) {
        for (ptrdiff_t j = i; j < d; j++)
            U[i * stride + j] = factor * sums[i * d + j];
        U[i * stride + i] += add;
        U[stride * stride + i] = U[i * stride + i];
    }
}

/* Factorise what `shrink` wrote, in panels of 8 rows; numbers left of the diagonal are undefined.
   Then the last row is 1 / the diagonal of U, and half of the log determinant. Returns 0 if the
   matrix is numerically singular. */
EVERY_MACHINE static int factorise(ptrdiff_t d, double *U)
{
    const ptrdiff_t stride = stride_of(d);
    double *diagonal = U + stride * stride;
    const double least = (double)d * DBL_EPSILON;
    double half = 0.0;
    for (ptrdiff_t start = 0; start < d; start += WIDE) {
        const ptrdiff_t end = start + WIDE < d ? start + WIDE : d;
        for (ptrdiff_t k = start; k < end; k++) {
            double *pivot = U + k * stride;
            const double root = sqrt(pivot[k]), inverse = 1.0 / root;
            if (!(pivot[k] > least * diagonal[k]))
                return 0;
            diagonal[k] = inverse;
            half += log(root);
            for (ptrdiff_t j = start; j < stride; j += WIDE)
                at(pivot + j) *= inverse;
            for (ptrdiff_t i = k + 1; i < end; i++) {
                const double f = pivot[i];
                for (ptrdiff_t j = start; j < stride; j += WIDE)
                    at(U + i * stride + j) -= f * at(pivot + j);
            }
        }
        for (ptrdiff_t i = end; i < d; i++) {
            double f[WIDE];
            for (int p = 0; p < WIDE; p++)
                f[p] = U[(start + p) * stride + i];
            subtract(U + i * stride, f, U + start * stride, edge(i), stride);
        }
    }
    diagonal[d] = half;
    return 1;
}

/* Replace n rows w (stride each, 0 from d on) by U^-T w. */
WITHIN void eliminate(ptrdiff_t d, const double *U, ptrdiff_t n, double *rows)
{
    const ptrdiff_t stride = stride_of(d);
    for (ptrdiff_t start = 0; start < d; start += WIDE) {
        const double *panel = U + start * stride, *inverse = U + stride * stride + start;
        for (ptrdiff_t i = 0; i < n; i++) {
            double *w = rows + i * stride, f[WIDE];
            memcpy(f, w + start, sizeof f);
#pragma GCC unroll 8
            for (int k = 0; k < WIDE; k++) {
                f[k] *= inverse[k];
#pragma GCC unroll 8
                for (int j = k + 1; j < WIDE; j++)
                    f[j] -= f[k] * panel[k * stride + start + j];
            }
            memcpy(w + start, f, sizeof f);
            subtract(w, f, panel, start + WIDE, stride);
        }
    }
}

/* Replace n rows w by U^-1 w. */
WITHIN void substitute(ptrdiff_t d, const double *U, ptrdiff_t n, double *rows)
{
    const ptrdiff_t stride = stride_of(d);
    for (ptrdiff_t start = edge(d - 1); start >= 0; start -= WIDE) {
        const double *panel = U + start * stride, *inverse = U + stride * stride + start;
        for (ptrdiff_t i = 0; i < n; i++) {
            double *w = rows + i * stride, f[WIDE];
            vector sums[WIDE] = {{0.0}};
            memcpy(f, w + start, sizeof f);
            for (ptrdiff_t j = start + WIDE; j < stride; j += WIDE)
#pragma GCC unroll 8
                for (int p = 0; p < WIDE; p++)
                    sums[p] += at(panel + p * stride + j) * at(w + j);
#pragma GCC unroll 8
            for (int k = WIDE - 1; k >= 0; k--) {
                const vector v = sums[k];
                f[k] -= ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
#pragma GCC unroll 8
                for (int j = k + 1; j < WIDE; j++)
                    f[k] -= panel[k * stride + start + j] * f[j];
                f[k] *= inverse[k];
            }
            memcpy(w + start, f, sizeof f);
        }
    }
}

#undef at

/* Whether a computation with a factor is long, so that other threads of Python may run. */
static PyThreadState *release_if_long(ptrdiff_t d, ptrdiff_t n)
{
    return (double)d * (double)d * (double)(d + n) > 4e6 ? PyEval_SaveThread() : NULL;
}

/* class_factor(d, sums, factor, add, U) */
PyObject *class_factor(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_ssize_t d;
    double factor, add;
    int regular = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "nOddO:class_factor", &d, &a.given[0], &factor, &add, &a.given[1]))
        return NULL;
    const Py_ssize_t sizes[] = {numbers_in(d, d), numbers_in(stride_of(d) + 1, stride_of(d))};
    const int good = acquire_arrays(&a, 2, "dd", sizes, 1 << 1, 0);
    if (good) {
        shrink(d, a.at[0], factor, add, a.at[1]);
        PyThreadState *state = release_if_long(d, 0);
        regular = factorise(d, a.at[1]);
        if (state)
            PyEval_RestoreThread(state);
    }
    release_arrays(&a);
    return good ? PyBool_FromLong(regular) : NULL;
}

/* Divide a row by its length, unless it is 0; without overflow. */
static void set_unit(double *row, ptrdiff_t d)
{
    double largest = 0.0;
    for (ptrdiff_t j = 0; j < d; j++)
        largest = fmax(largest, fabs(row[j]));
    for (ptrdiff_t j = 0; j < d && largest > 0.0; j++)
        row[j] /= largest;
    const double length = sqrt(product(row, row, d));
    for (ptrdiff_t j = 0; j < d && largest > 0.0; j++)
        row[j] /= length;
}

/* Write the means of the classes with rows, less their mean, to `coefficients`, or of length 1 if
   `cosine`; and log priors b, UNSEEN for classes without rows. */
EVERY_MACHINE static void start_coefficients(const Moments *m, int cosine, const double *shares,
                                             double *coefficients)
{
    const ptrdiff_t c = m->c, d = m->d, stride = stride_of(d);
    double *origin = coefficients, *centre = origin + stride, *W = centre + stride;
    ptrdiff_t seen = 0;
    double total = 0.0;
    memset(coefficients, 0, (c + 2) * stride * sizeof *coefficients);
    for (ptrdiff_t k = 0; k < c; k++) {
        const double *first = m->origins + k * d, *offset = m->offsets + k * d;
        total += shares ? shares[k] : 0.0;
        if (!(m->mass[k] > 0.0))
            continue;
        if (!seen++ && !cosine)
            memcpy(origin, first, d * sizeof *origin);
        for (ptrdiff_t j = 0; j < d; j++) {
            W[k * stride + j] = (first[j] - origin[j]) + offset[j];
            centre[j] += W[k * stride + j];
        }
    }
    for (ptrdiff_t j = 0; j < d; j++)
        centre[j] = cosine || !seen ? 0.0 : centre[j] / (double)seen;
    for (ptrdiff_t k = 0; k < c; k++) {
        double *w = W + k * stride;
        const int known = m->mass[k] > 0.0;
        for (ptrdiff_t j = 0; j < d && known; j++)
            w[j] -= centre[j];
        if (cosine)
            set_unit(w, d);
        w[d] = !known ? UNSEEN : shares ? log(shares[k] / total) : 0.0;
    }
    centre[d] = cosine;
}

/* Divide the means by U^T U if U is given, and subtract half of their squares from b; `work` is for
   c numbers. */
EVERY_MACHINE static void weigh(ptrdiff_t c, ptrdiff_t d, const double *U, double *W, double *work)
{
    const ptrdiff_t stride = stride_of(d);
    for (ptrdiff_t k = 0; k < c; k++) {
        work[k] = W[k * stride + d];
        W[k * stride + d] = 0.0;
    }
    if (U)
        eliminate(d, U, c, W);
    for (ptrdiff_t k = 0; k < c; k++)
        work[k] -= 0.5 * product(W + k * stride, W + k * stride, d);
    if (U)
        substitute(d, U, c, W);
    for (ptrdiff_t k = 0; k < c; k++)
        W[k * stride + d] = work[k];
}

/* Oracle approximating shrinkage of sums of n rows; `oas` in discriminant.py has the formula. */
EVERY_MACHINE static double oracle(ptrdiff_t d, double n, const double *sums)
{
    double size = 0.0, mean = 0.0, squares = 0.0;
    for (ptrdiff_t i = 0; i < d; i++)
        size = fmax(size, sums[i * d + i]);
    for (ptrdiff_t i = 0; i < d && size > 0.0; i++) {
        const double variance = sums[i * d + i] / size;
        double others = 0.0;
        for (ptrdiff_t j = i + 1; j < d; j++)
            others += (sums[i * d + j] / size) * (sums[i * d + j] / size);
        mean += variance / (double)d;
        squares += (variance * variance + 2.0 * others) / (double)(d * d);
    }
    const double spread = (n + 1.0) * (squares - mean * mean / (double)d);
    return spread > 0.0 ? fmin((squares + mean * mean) / spread, 1.0) : 1.0;
}

/* class_coefficients(k, c, d, vector, cosine, share, variance, shares, coefficients); the share is
   negative for oracle approximating shrinkage, and the variance for the mean variance. */
PyObject *class_coefficients(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_ssize_t k, c, d;
    int cosine, regular = 1;
    double share, variance, mass = 0.0, mean = 0.0, *work = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "nnnOpddOO:class_coefficients", &k, &c, &d, &a.given[0], &cosine,
                          &share, &variance, &a.given[1], &a.given[2]))
        return NULL;
    const Py_ssize_t stride = stride_of(d);
    const Py_ssize_t sizes[] = {moments_size(k, c, d), c, numbers_in(c + 2, stride)};
    int good = acquire_arrays(&a, 3, "ddd", sizes, 1 << 2, 1 << 1);
    if (good && !(work = PyMem_Malloc((c + (k > 0) * (stride + 1) * stride) * sizeof *work + 1)))
        good = PyErr_NoMemory() != NULL;
    if (good) {
        const Moments m = moments_of(a.at[0], k, c, d);
        double *U = k ? work + c : NULL;
        start_coefficients(&m, cosine, a.at[1], a.at[2]);
        for (ptrdiff_t i = 0; i < c; i++)
            mass += m.mass[i];
        for (ptrdiff_t i = 0; U && i < d; i++)
            mean += m.sums[i * d + i] / mass / (double)d;
        if (U && share < 0.0)
            share = oracle(d, mass, m.sums);
        if (U)
            shrink(d, m.sums, (1.0 - share) / mass, share * (variance < 0.0 ? mean : variance), U);
        PyThreadState *state = release_if_long(U ? d : 0, c);
        regular = !U || factorise(d, U);
        if (regular && !cosine)
            weigh(c, d, U, (double *)a.at[2] + 2 * stride, work);
        if (state)
            PyEval_RestoreThread(state);
    }
    PyMem_Free(work);
    release_arrays(&a);
    return good ? PyBool_FromLong(regular) : NULL;
}

/* Scores of n rows from coefficients; `row` has work for one row. */
EVERY_MACHINE static void score(ptrdiff_t c, ptrdiff_t d, const double *coefficients, ptrdiff_t n,
                                const double *X, double *scores, double *row)
{
    const ptrdiff_t stride = stride_of(d);
    const double *origin = coefficients, *centre = origin + stride, *W = centre + stride;
    for (ptrdiff_t i = 0; i < n; i++) {
        for (ptrdiff_t j = 0; j < d; j++)
            row[j] = (X[i * d + j] - origin[j]) - centre[j];
        if (centre[d] != 0.0)
            set_unit(row, d);
        for (ptrdiff_t k = 0; k < c; k++) {
            const double b = W[k * stride + d];
            scores[i * c + k] = b == UNSEEN ? b : product(W + k * stride, row, d) + b;
        }
    }
}

/* class_linear_scores(c, d, coefficients, n, X, scores) */
PyObject *class_linear_scores(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_ssize_t n, c, d;
    (void)module;
    if (!PyArg_ParseTuple(args, "nnOnOO:class_linear_scores", &c, &d, &a.given[0], &n, &a.given[1],
                          &a.given[2]))
        return NULL;
    const Py_ssize_t sizes[] = {numbers_in(c + 2, stride_of(d)), numbers_in(n, d),
                                numbers_in(n, c)};
    int good = acquire_arrays(&a, 3, "ddd", sizes, 1 << 2, 0);
    double *row = good ? PyMem_Malloc(stride_of(d) * sizeof *row) : NULL;
    if (row) {
        PyThreadState *state = n > SPAN ? PyEval_SaveThread() : NULL;
        score(c, d, a.at[0], n, a.at[1], a.at[2], row);
        if (state)
            PyEval_RestoreThread(state);
        PyMem_Free(row);
    } else if (good)
        PyErr_NoMemory();
    release_arrays(&a);
    return row ? Py_NewRef(Py_None) : NULL;
}

/* Scores -1/2 |U^-T (x - mean)|^2 + constant of n rows for one class; `work` is for SPAN rows. */
EVERY_MACHINE static void quadratic(const Moments *m, ptrdiff_t k, const double *U, double constant,
                                    ptrdiff_t n, const double *X, double *scores, double *work)
{
    const double *origin = m->origins + k * m->d, *offset = m->offsets + k * m->d;
    const ptrdiff_t d = m->d, stride = stride_of(d);
    for (ptrdiff_t i = 0; i < n; i += SPAN) {
        const ptrdiff_t count = n - i < SPAN ? n - i : SPAN;
        for (ptrdiff_t l = 0; l < count; l++)
            for (ptrdiff_t j = 0; j < stride; j++)
                work[l * stride + j] = j < d ? (X[(i + l) * d + j] - origin[j]) - offset[j] : 0.0;
        eliminate(d, U, count, work);
        for (ptrdiff_t l = 0; l < count; l++) {
            const double *z = work + l * stride;
            scores[(i + l) * m->c + k] = constant - 0.5 * product(z, z, d);
        }
    }
}

/* class_quadratic_scores(c, d, means, factors, shares, n, X, scores) */
PyObject *class_quadratic_scores(PyObject *module, PyObject *args)
{
    Arrays a;
    PyObject *factors;
    Py_ssize_t n, c, d;
    (void)module;
    if (!PyArg_ParseTuple(args, "nnOO!OnOO:class_quadratic_scores", &c, &d, &a.given[0],
                          &PyTuple_Type, &factors, &a.given[1], &n, &a.given[2], &a.given[3]))
        return NULL;
    const Py_ssize_t stride = stride_of(d);
    const Py_ssize_t sizes[] = {moments_size(0, c, d), c, numbers_in(n, d), numbers_in(n, c)};
    int good = acquire_arrays(&a, 4, "dddd", sizes, 1 << 3, 0);
    if (good && PyTuple_Size(factors) != c)
        good = PyErr_Format(PyExc_ValueError, "class_quadratic_scores: expected c factors") != NULL;
    double *work = good ? PyMem_Malloc((n < SPAN ? n : SPAN) * stride * sizeof *work + 1) : NULL;
    if (good && !work)
        good = PyErr_NoMemory() != NULL;
    if (good) {
        const Moments m = moments_of(a.at[0], 0, c, d);
        const double *shares = a.at[1];
        double total = 0.0, *scores = a.at[3];
        for (Py_ssize_t k = 0; k < c; k++)
            total += shares[k];
        for (Py_ssize_t k = 0; good && k < c; k++) {
            Py_buffer view;
            for (Py_ssize_t i = 0; !(m.mass[k] > 0.0) && i < n; i++)
                scores[i * c + k] = UNSEEN;
            if (!(m.mass[k] > 0.0))
                continue;
            PyObject *factor = PyTuple_GetItem(factors, k);
            const double *U = numbers_of(factor, "d", (stride + 1) * stride, 0, &view);
            good = U != NULL;
            if (!good)
                break;
            const double constant = log(shares[k] / total) - U[stride * stride + d];
            PyThreadState *state = n > 1 ? PyEval_SaveThread() : NULL;
            quadratic(&m, k, U, constant, n, a.at[2], scores, work);
            if (state)
                PyEval_RestoreThread(state);
            PyBuffer_Release(&view);
        }
    }
    PyMem_Free(work);
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}
