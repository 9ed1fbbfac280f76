/* Python's buffers as doubles. */
#ifndef ONEPASS_BUFFERS_H
#define ONEPASS_BUFFERS_H

#include <pyconfig.h> /* defines Py_GIL_DISABLED */
#if !defined(Py_LIMITED_API) && !defined(Py_GIL_DISABLED) /* free-threaded: no stable ABI */
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* n * m; -1 on overflow or negative sizes. */
Py_ssize_t numbers_in(Py_ssize_t n, Py_ssize_t m);

/* The type of the numbers of a buffer in native byte order, as in Python's module struct; 0 for
   other buffers. */
char type_of(const Py_buffer *view);

/* Convert n numbers, `stride` bytes apart and of any alignment, to doubles. */
typedef void Convert(const char *from, Py_ssize_t stride, Py_ssize_t n, double *to);

/* The conversion of the numbers of a buffer; NULL if there is none. */
Convert *conversion_of(const Py_buffer *view);

/* The `count` contiguous, aligned numbers of an object, of a type d, i or ?. Returns NULL with an
   error if the object has another size or type. */
void *numbers_of(PyObject *given, const char *type, Py_ssize_t count, int writable,
                 Py_buffer *view);

enum { ARRAYS = 10 }; /* maximum number of arrays per call */

/* The arrays of a call, and their buffers. */
typedef struct {
    PyObject *given[ARRAYS];
    Py_buffer view[ARRAYS];
    void *at[ARRAYS];
    int acquired;
} Arrays;

/* Open the buffers of the arrays; returns 0 with an error if a type or size is wrong. Each bit of
   `written` marks an array that is written to, each bit of `optional` one that may be None. The
   caller must call `release_arrays` in either case. */
int acquire_arrays(Arrays *arrays, int count, const char *types, const Py_ssize_t *sizes,
                   int written, int optional);
void release_arrays(Arrays *arrays);

/* Types, to be added to a module. */
extern PyType_Spec format_spec, single_spec, linear_spec, kernel_spec;

/* Functions of least squares, to be added to a module. */
extern PyMethodDef least_squares_functions[];

/* Functions of columns, to be added to a module. */
PyObject *columns_into(PyObject *module, PyObject *args);
PyObject *columns_without(PyObject *module, PyObject *args);
PyObject *columns_lengths(PyObject *module, PyObject *args);

/* Other functions, to be added to a module. */
PyObject *kalman(PyObject *module, PyObject *args);
PyObject *class_coefficients(PyObject *module, PyObject *args);
PyObject *class_factor(PyObject *module, PyObject *args);
PyObject *class_learn(PyObject *module, PyObject *args);
PyObject *class_linear_scores(PyObject *module, PyObject *args);
PyObject *class_quadratic_scores(PyObject *module, PyObject *args);
PyObject *calibrated(PyObject *module, PyObject *args);
PyObject *forest_learned(PyObject *module, PyObject *args);
PyObject *forest_predicted(PyObject *module, PyObject *args);
PyObject *forest_started(PyObject *module, PyObject *given);
PyObject *secular(PyObject *module, PyObject *args);
PyObject *named_row(PyObject *module, PyObject *args);
PyObject *encode_row(PyObject *module, PyObject *args);
PyObject *scale_row(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *impute_row(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *transpose(PyObject *module, PyObject *args);

#endif
