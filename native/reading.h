/* A row, an answer or a label as Python gives it, where it is plain; others are for others. */
#ifndef ONEPASS_READING_H
#define ONEPASS_READING_H

#include "buffers.h"
#include "rows.h"

typedef struct {
    Py_ssize_t d;     /* features */
    PyObject *array;  /* the type of arrays that are read as rows */
    PyObject *names;  /* of features, a tuple; or None */
    PyObject *number; /* the type of answers; or None where they are labels */
    PyObject *labels; /* answers that may be given, a tuple; or None */
    PyObject *places; /* label -> its place in labels, a dict; or None */
} Reading;

/* Whether the parts are of the kinds that they must be; then they are held. */
int reading_open(Reading *reading, Py_ssize_t d, PyObject *const parts[5]);
void reading_close(Reading *reading);

/* An array of floats or doubles, or a dict of plain numbers under the known names, none of them
   infinite or huge; 0 where it is neither. */
int read_row(const Reading *reading, PyObject *given, double *row);

/* A number as a double that is not huge; NAN where it is none, without an error. */
double read_number(PyObject *given);

/* The place of a label; -1 where it is unknown, without an error. */
Py_ssize_t read_label(const Reading *reading, PyObject *given);

/* An answer that is a number, or the label at a place. */
PyObject *number_said(const Reading *reading, double value);
PyObject *label_said(const Reading *reading, Py_ssize_t place);

#endif
