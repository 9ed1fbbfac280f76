/* Conversion of plain rows, targets and labels from Python; all other objects are handled in
   Python. */
#ifndef ONEPASS_READING_H
#define ONEPASS_READING_H

#include "buffers.h"
#include "rows.h"

/* How rows and targets are read and predictions are returned; all objects are NULL if every row is
   handled in Python. */
typedef struct {
    Py_ssize_t d, c;   /* features, outputs */
    PyObject *array;   /* the accepted array type */
    PyObject *scalars; /* a frozenset of the accepted types of NumPy scalars */
    PyObject *names;   /* the names of the features, a tuple; or None */
    PyObject *number;  /* the type of one numeric prediction; or, for targets that are vectors, the
                          function that creates an array of c doubles; None for labels */
    PyObject *labels;  /* the labels, a tuple; or None */
    PyObject *places;  /* a dict from labels to their indices in `labels`; or None */
} Reading;

/* Set the parts from a tuple (array, scalars, names, number, labels, places), or from None; returns
   0 with an error if a part has the wrong type, or if there is not one label for each output. */
int reading_open(Reading *reading, Py_ssize_t d, Py_ssize_t c, PyObject *format);
void reading_copy(Reading *to, const Reading *from);
void reading_close(Reading *reading);

/* Read an array, list or tuple of d numbers, or a dict of plain numbers with the given names.
   Returns 0 for any other object, and if a number is not finite or is huge. */
int read_row(const Reading *reading, PyObject *given, double *row);

/* Convert a number to a double; NAN without an error if the object is no number or is huge. */
double read_number(const Reading *reading, PyObject *given);

/* Read numeric targets (c); returns 0 without an error if Python must handle them. */
int read_targets(const Reading *reading, PyObject *given, double *targets);

/* Read x, y and weight of a row of least squares, where the target of a label is 1 for its output.
   Returns 0 without an error if Python must handle them. */
int read_example(const Reading *reading, PyObject *const *args, double *row, double *targets,
                 double *weight);

/* The index of a label; -1 without an error if the label is unknown. */
Py_ssize_t read_label(const Reading *reading, PyObject *given);

/* The numeric prediction for scores (c), or the label with an index, as a Python object. */
PyObject *number_object(const Reading *reading, const double *scores);
PyObject *label_object(const Reading *reading, Py_ssize_t place);

/* `number_object`, or the label with the largest score, the last one of a tie. */
PyObject *prediction_object(const Reading *reading, const double *scores);

#endif
