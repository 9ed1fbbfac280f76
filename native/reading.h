/* Conversion of plain rows, targets and labels from Python; all other objects are handled in
   Python. */
#ifndef ONEPASS_READING_H
#define ONEPASS_READING_H

#include "buffers.h"
#include "rows.h"

typedef struct {
    Py_ssize_t d;     /* features */
    PyObject *array;  /* the accepted array type */
    PyObject *names;  /* the names of the features, a tuple; or None */
    PyObject *number; /* the type of numeric predictions; None for labels */
    PyObject *labels; /* the labels, a tuple; or None */
    PyObject *places; /* a dict from labels to their indices in `labels`; or None */
} Reading;

/* Set the parts, with new references; returns 0 if a part has the wrong type. */
int reading_open(Reading *reading, Py_ssize_t d, PyObject *const parts[5]);
void reading_close(Reading *reading);

/* Read an array of floats or doubles, or a dict of plain numbers with the given names. Returns 0
   for any other object, and if a number is not finite or is huge. */
int read_row(const Reading *reading, PyObject *given, double *row);

/* Convert a number to a double; NAN without an error if the object is no number or is huge. */
double read_number(PyObject *given);

/* The index of a label; -1 without an error if the label is unknown. */
Py_ssize_t read_label(const Reading *reading, PyObject *given);

/* A numeric prediction, or the label with an index, as a Python object. */
PyObject *number_object(const Reading *reading, double value);
PyObject *label_object(const Reading *reading, Py_ssize_t place);

#endif
