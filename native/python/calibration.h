/* The temperature of a classifier's scores, described in
   onepass/linalg/calibration.py. */
#ifndef ONEPASS_CALIBRATION_H
#define ONEPASS_CALIBRATION_H

#include "buffers.h"

#include <stddef.h>

typedef struct {
    Py_ssize_t row;  /* the index of the next row */
    Py_ssize_t next; /* the index of the next row that is used; no row if `classes` is 0 */
    double state[4]; /* theta, H, N, L */
    int classes;
} Calibration;

/* Count a row; returns whether it is used. */
static inline int calibration_due(Calibration *calibration)
{
    return calibration->row++ == calibration->next && calibration->classes;
}

/* Update the state with the scores (c) of a row of class y. */
void calibrate(Calibration *calibration, ptrdiff_t c, const double *scores, ptrdiff_t y);

/* The index of the first row at or after row i that is used. */
Py_ssize_t next_calibrated(Py_ssize_t i);

/* One Newton step of a state (4) of least squares, from the targets (c) and the errors (c), which are
   overwritten. */
void calibrate_errors(double *state, ptrdiff_t c, const double *targets, double *errors);

/* The temperature; 1 before the first row. */
double temperature_of(const Calibration *calibration);

/* The attribute `calibration`, at an offset in an object: (row, theta, H, N, L), or None. */
PyObject *calibration_get(PyObject *self, void *offset);
int calibration_set(PyObject *self, PyObject *value, void *offset);

#endif
