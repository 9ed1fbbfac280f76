/* The scale and offsets of a classifier's scores. */
#include "calibration.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { HEAD = 8, SPACING = 16 };
static const double SLOWEST = 2e-3, RIDGE = 1e-2, OF_CLASS = 10.0, FARTHEST = 50.0, TIE = 1e-10, LEAST = -1e300;
static const double SMALL = 1e-150, LARGE = 1e150;

Py_ssize_t next_calibrated(Py_ssize_t i)
{
    Py_ssize_t step = 1;
    while (step < SPACING && step <= i >> HEAD)
        step <<= 1;
    const Py_ssize_t interval = i / step;
    const uint64_t drawn = ((uint64_t)interval * 0x9E3779B97F4A7C15u >> 40) % (uint64_t)step;
    const Py_ssize_t row = interval * step + (Py_ssize_t)drawn;
    return row >= i ? row : next_calibrated((interval + 1) * step);
}

static double within_one(double step)
{
    return fmin(fmax(step, -1.0), 1.0);
}

void calibrate_state(double *state, ptrdiff_t c, const double *scores, ptrdiff_t y, double weight)
{
    double *const head = state;
    double *const of = state ? state + CLASSES_AT : NULL; /* a and h of each class */
    double mean = 0.0, squares = 0.0, size = 0.0;
    ptrdiff_t known = 0;
    for (ptrdiff_t k = 0; k < c; k++)
        if (scores[k] > LEAST) {
            known++;
            mean += scores[k];
            size = fmax(size, fabs(scores[k]));
        }
    if (!state || known < 2 || !(scores[y] > LEAST))
        return;
    mean /= (double)known;
    for (ptrdiff_t k = 0; k < c; k++)
        if (scores[k] > LEAST)
            squares += (scores[k] - mean) * (scores[k] - mean);
    const double s = sqrt(squares / (double)known), n = head[3];
    if (!(s > fmax(SMALL, TIE * size) && s < LARGE)) /* a tie up to rounding */
        return;
    if (n == 0.0)
        head[0] = -log(s);
    head[2] += (weight - head[2]) / (n + 1.0);
    const double omega = weight / head[2];
    const double keep = 1.0 - fmin(omega * fmax(3.0 / (n + 4.0), SLOWEST), 0.5);
    const double scale = fmin(exp(head[0]) * s, FARTHEST) / s, epsilon = 1.0 / (n + 3.0);
    double top = -INFINITY, total = 0.0, m = 0.0, second = 0.0, slope = 0.0, offsets = 0.0;
    for (ptrdiff_t k = 0; k < c; k++)
        if (scores[k] > LEAST)
            top = fmax(top, scale * (scores[k] - mean) + of[2 * k]);
    for (ptrdiff_t k = 0; k < c; k++)
        if (scores[k] > LEAST)
            total += exp(scale * (scores[k] - mean) + of[2 * k] - top);
    for (ptrdiff_t k = 0; k < c; k++)
        if (scores[k] > LEAST) {
            double *const a = of + 2 * k, *const h = a + 1, v = scale * (scores[k] - mean);
            const double p = exp(v + *a - top) / total;
            const double target = epsilon / (double)known + (k == y ? 1.0 - epsilon : 0.0);
            const double g = omega * (target - p);
            m += p * v;
            second += p * v * v;
            slope += g * v;
            *h = keep * *h + omega * p * (1.0 - p);
            *a += within_one(g / (2.0 * (*h + OF_CLASS)));
            offsets += *a;
        }
    for (ptrdiff_t k = 0; k < c; k++)
        if (scores[k] > LEAST)
            of[2 * k] -= offsets / (double)known;
    head[1] = keep * head[1] + omega * (second - m * m);
    head[0] += within_one(slope / (head[1] + RIDGE));
    head[3] = n + 1.0;
}

void calibrate(Calibration *calibration, ptrdiff_t c, const double *scores, ptrdiff_t y,
               double weight)
{
    calibration->next = next_calibrated(calibration->row);
    calibrate_state(calibration_of(calibration, c), c, scores, y, weight);
}

void calibrate_errors(double *state, ptrdiff_t c, const double *targets, double *errors,
                      double weight)
{
    ptrdiff_t y = 0;
    for (ptrdiff_t k = 0; k < c; k++) {
        errors[k] = targets[k] - errors[k];
        y = targets[k] > 0.0 ? k : y;
    }
    calibrate_state(state, c, errors, y, weight);
}

PyObject *calibration_get(PyObject *self, void *offset)
{
    const Calibration *at = (Calibration *)((char *)self + (size_t)offset);
    if (!at->state)
        Py_RETURN_NONE;
    return Py_BuildValue("(ny#)", at->row, (const char *)at->state,
                         at->size * (Py_ssize_t)sizeof(double));
}

int calibration_copy(Calibration *to, const Calibration *from)
{
    *to = *from;
    if (!from->state)
        return 1;
    const size_t bytes = (size_t)from->size * sizeof(double);
    to->state = PyMem_Malloc(bytes);
    if (to->state)
        memcpy(to->state, from->state, bytes);
    else
        PyErr_NoMemory();
    return to->state != NULL;
}

int calibration_set(PyObject *self, PyObject *value, void *offset)
{
    Calibration *at = (Calibration *)((char *)self + (size_t)offset), set, copy;
    PyObject *given;
    if (!value || !PyTuple_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "calibration: expected a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(value, "nnO:calibration", &set.row, &set.size, &given))
        return -1;
    Py_buffer view;
    set.next = next_calibrated(set.row);
    set.state = numbers_of(given, "d", set.size, 0, &view);
    const int good = set.state && calibration_copy(&copy, &set);
    PyBuffer_Release(&view);
    if (!good)
        return -1;
    PyMem_Free(at->state);
    *at = copy;
    return 0;
}

/* calibrate(n, c, state, scores, labels, weights, fitted). */
PyObject *calibrated(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_ssize_t n, c;
    (void)module;
    if (!PyArg_ParseTuple(args, "nnOOOOO:calibrate", &n, &c, &a.given[0], &a.given[1], &a.given[2],
                          &a.given[3], &a.given[4]))
        return NULL;
    const Py_ssize_t sizes[] = {numbers_in(c, 2) + CLASSES_AT, numbers_in(n, c), n, n,
                                numbers_in(n, c + 1)};
    int good = acquire_arrays(&a, 5, "ddddd", sizes, 1 | 1 << 4, 0);
    double *state = a.at[0], *scores = a.at[1], *labels = a.at[2], *weights = a.at[3];
    for (Py_ssize_t i = 0; good && i < n; i++)
        if (!(labels[i] >= 0.0 && labels[i] < (double)c)) {
            PyErr_Format(PyExc_ValueError, "calibrate: expected classes below %zd", c);
            good = 0;
        }
    for (Py_ssize_t i = 0; good && i < n; i++) {
        double *fitted = (double *)a.at[4] + i * (c + 1);
        calibrate_state(state, c, scores + i * c, (ptrdiff_t)labels[i], weights[i]);
        fitted[0] = exp(state[0]);
        for (Py_ssize_t k = 0; k < c; k++)
            fitted[1 + k] = state[CLASSES_AT + 2 * k];
    }
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}
