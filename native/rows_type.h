/* Objects of the type Rows as parts of other objects, which must not use them at the same time. */
#ifndef ONEPASS_ROWS_TYPE_H
#define ONEPASS_ROWS_TYPE_H

#include "buffers.h"
#include "rows.h"

/* The state of an object, whose size is added to `nbytes`; NULL with an error if it has another
   type. */
Rows *rows_of(PyObject *object, Py_ssize_t *nbytes);

/* A copy; NULL with an error on failure. */
PyObject *rows_twin(PyObject *object);

/* The current weights (d, c), followed by the offset (c): a prediction is (x - means) weights +
   offset. */
const double *rows_fitted(PyObject *object);

#endif
