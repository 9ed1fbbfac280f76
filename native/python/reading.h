/* Conversion of plain rows, targets and labels from Python; all other objects are handled in
   Python. */
#ifndef ONEPASS_READING_H
#define ONEPASS_READING_H

#include "buffers.h"

#include <float.h>

static const double LARGEST = 1e60;        /* rows with larger numbers are handled in Python */
static const double UNSEEN = -DBL_MAX / 4; /* the score of a class without rows */

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

/* Convert a number of Python or of the types `scalars`, which may be NULL; infinite for all other
   objects. */
double plain_number(PyObject *scalars, PyObject *given);

/* Read an array of numbers of one of these types; returns 0 for any other object. */
int read_array(PyObject *given, const char *types, Py_ssize_t count, double *to);

/* Read a mapping with exactly these names, a list or tuple; returns 0 for any other object. Values
   are converted by `plain_number`; None is nan. */
int read_named(PyObject *scalars, PyObject *given, PyObject *names, Py_ssize_t d, double *row);

/* Read an array, list or tuple of d numbers, or a mapping of numbers with the given names. Returns 0
   for any other object, and if a number is not finite or is huge. */
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

/* A dict from labels to their probabilities, the softmax of the scores (c), with the scale and
   offsets of the state of a calibration or NULL; None if these are too large, or if there are no
   labels. */
PyObject *probabilities_object(const Reading *reading, const double *scores, const double *state);

/* `number_object`, or the label with the largest score, the last one of a tie. */
PyObject *prediction_object(const Reading *reading, const double *scores);

#endif
