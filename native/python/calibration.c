/* The temperature of a classifier's scores. */
#include "calibration.h"

#include <float.h>
#include <math.h>

enum { HEAD = 7, SPACING = 512 };
static const double SLOWEST = 1e-3, RIDGE = 1e-2, LEAST = -1e300, SMALL = 1e-150, LARGE = 1e150;
static const double LARGEST = 1e100;

Py_ssize_t next_calibrated(Py_ssize_t i)
{
    Py_ssize_t step = 1;
    while (step < SPACING && step <= i >> HEAD)
        step <<= 1;
    return (i + step - 1) / step * step;
}

/* One Newton step of the state. */
static void calibrate_state(double *state, ptrdiff_t c, const double *scores, ptrdiff_t y)
{
    double mean = 0.0, squares = 0.0, top = -INFINITY, total = 0.0, m = 0.0, second = 0.0, size = 0.0;
    ptrdiff_t known = 0;
    for (ptrdiff_t k = 0; k < c; k++)
        if (scores[k] > LEAST) {
            known++;
            mean += scores[k];
            top = scores[k] > top ? scores[k] : top;
            size = fmax(size, fabs(scores[k]));
        }
    if (known < 2 || !(scores[y] > LEAST))
        return;
    mean /= (double)known;
    for (ptrdiff_t k = 0; k < c; k++)
        if (scores[k] > LEAST)
            squares += (scores[k] - mean) * (scores[k] - mean);
    const double s = sqrt(squares / (double)known), n = state[2] + 3.0;
    if (!(s > fmax(SMALL, 8.0 * DBL_EPSILON * size) && s < LARGE)) /* a tie up to rounding */
        return;
    const double r = fmax(2.0 / n, SLOWEST);
    state[3] += (log(s) - state[3]) * (state[2] ? r : 1.0);
    const double beta = exp(state[0] - state[3]);
    if (!(beta * s < LARGEST))
        return;
    for (ptrdiff_t k = 0; k < c; k++)
        if (scores[k] > LEAST) {
            const double u = beta * (scores[k] - mean), p = exp(beta * (scores[k] - top));
            total += p;
            m += p * u;
            second += p * u * u;
        }
    m /= total;
    state[1] = (1.0 - r) * state[1] + second / total - m * m;
    const double u = beta * (scores[y] - mean);
    state[0] -= fmin(fmax((m - (1.0 - 1.0 / n) * u) / (state[1] + RIDGE), -1.0), 1.0);
    state[2] += 1.0;
}

void calibrate(Calibration *calibration, ptrdiff_t c, const double *scores, ptrdiff_t y)
{
    calibration->next = next_calibrated(calibration->row);
    calibrate_state(calibration->state, c, scores, y);
}

void calibrate_errors(double *state, ptrdiff_t c, const double *targets, double *errors)
{
    ptrdiff_t y = 0;
    for (ptrdiff_t k = 0; k < c; k++) {
        errors[k] = targets[k] - errors[k];
        y = targets[k] > 0.0 ? k : y;
    }
    calibrate_state(state, c, errors, y);
}

double temperature_of(const Calibration *calibration)
{
    return exp(calibration->state[0] - calibration->state[3]);
}

PyObject *calibration_get(PyObject *self, void *offset)
{
    const Calibration *at = (Calibration *)((char *)self + (size_t)offset);
    const double *state = at->state;
    if (!at->classes)
        Py_RETURN_NONE;
    return Py_BuildValue("(ndddd)", at->row, state[0], state[1], state[2], state[3]);
}

int calibration_set(PyObject *self, PyObject *value, void *offset)
{
    Calibration *at = (Calibration *)((char *)self + (size_t)offset), set = {.classes = 1};
    double *state = set.state;
    if (!value || !PyTuple_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "calibration: expected a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(value, "ndddd:calibration", &set.row, &state[0], &state[1], &state[2],
                          &state[3]))
        return -1;
    set.next = next_calibrated(set.row);
    *at = set;
    return 0;
}

/* calibrate(state, scores, y): update a state (4) with the scores of a row of class y. */
PyObject *calibrated(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_ssize_t c, y;
    (void)module;
    if (!PyArg_ParseTuple(args, "nOOn:calibrate", &c, &a.given[0], &a.given[1], &y))
        return NULL;
    if (y < 0 || y >= c)
        return PyErr_Format(PyExc_ValueError, "calibrate: expected a class below %zd", c);
    const Py_ssize_t sizes[] = {4, c};
    const int good = acquire_arrays(&a, 2, "dd", sizes, 1, 0);
    if (good)
        calibrate_state(a.at[0], c, a.at[1], y);
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}
