/* Conversion of plain rows, targets and labels from Python; others are left to Python. */
#ifndef ONEPASS_READING_H
#define ONEPASS_READING_H

#include "buffers.h"
#include "rows.h"

typedef struct {
    Py_ssize_t d;     /* features */
    PyObject *array;  /* the accepted array type */
    PyObject *names;  /* of features, a tuple; or None */
    PyObject *number; /* the type of predictions; None for labels */
    PyObject *labels; /* the labels, a tuple; or None */
    PyObject *places; /* label -> its place in labels, a dict; or None */
} Reading;

/* Whether the parts are of the kinds that they must be; then they are held. */
int reading_open(Reading *reading, Py_ssize_t d, PyObject *const parts[5]);
void reading_close(Reading *reading);

/* An array of floats or doubles, or a dict of plain numbers under the known names, none of them
   infinite or huge; 0 where it is neither. */
int read_row(const Reading *reading, PyObject *given, double *row);

/* A number as a double that is not huge; NAN otherwise, without an error. */
double read_number(PyObject *given);

/* The place of a label; -1 if it is unknown, without an error. */
Py_ssize_t read_label(const Reading *reading, PyObject *given);

/* A numeric prediction, or the label at a place. */
PyObject *number_said(const Reading *reading, double value);
PyObject *label_said(const Reading *reading, Py_ssize_t place);

#endif
