/* The scale and offsets of a classifier's scores, described in
   onepass/linalg/calibration.py. */
#ifndef ONEPASS_CALIBRATION_H
#define ONEPASS_CALIBRATION_H

#include "buffers.h"

#include <stddef.h>

enum { CLASSES_AT = 4 }; /* index in a state of the first class, after lambda, H, w, N */

typedef struct {
    Py_ssize_t row;  /* the index of the next row */
    Py_ssize_t next; /* the index of the next row that is used */
    Py_ssize_t size; /* of the state */
    double *state;   /* NULL if there is none */
} Calibration;

/* Count a row; returns whether it is used. */
static inline int calibration_due(Calibration *calibration)
{
    return calibration->row++ == calibration->next && calibration->state;
}

/* The state of c classes; NULL if there is none. */
static inline double *calibration_of(const Calibration *calibration, ptrdiff_t c)
{
    return calibration->size == CLASSES_AT + 2 * c ? calibration->state : NULL;
}

/* Update a state or NULL with the scores (c) of a row of class y and its weight. */
void calibrate_state(double *state, ptrdiff_t c, const double *scores, ptrdiff_t y, double weight);
void calibrate(Calibration *calibration, ptrdiff_t c, const double *scores, ptrdiff_t y,
               double weight);

/* The index of the first row at or after row i that is used. */
Py_ssize_t next_calibrated(Py_ssize_t i);

/* Update a state of least squares or NULL, from the targets (c) and the errors (c), which are
   overwritten. */
void calibrate_errors(double *state, ptrdiff_t c, const double *targets, double *errors,
                      double weight);

/* The attribute `calibration`, at an offset in an object: (row, state), or None. */
PyObject *calibration_get(PyObject *self, void *offset);
int calibration_set(PyObject *self, PyObject *value, void *offset);

/* Make a copy; returns 0 with an error on failure. */
int calibration_copy(Calibration *to, const Calibration *from);

#endif
