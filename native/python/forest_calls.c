/* Functions of native/core/forest.h for Python, documented in onepass/native.py. */
#include "buffers.h"

#include <math.h>

#include "../core/forest.h"
#include "machine.h"

/* The numbers of a forest; NULL with an error for other objects. */
static double *forest_vector(PyObject *given, int writable, Py_buffer *view)
{
    const int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(given, view, flags) < 0)
        return NULL;
    double *vector = view->buf;
    const Py_ssize_t count = view->len / (Py_ssize_t)sizeof *vector;
    if (view->itemsize == sizeof *vector && count >= FOREST_HEAD && forest_size(vector) == count)
        return vector;
    PyErr_Format(PyExc_ValueError, "expected the vector of a forest");
    PyBuffer_Release(view);
    return NULL;
}

/* forest_start(vector) */
PyObject *forest_started(PyObject *module, PyObject *given)
{
    Py_buffer view;
    (void)module;
    double *vector = forest_vector(given, 1, &view);
    if (!vector)
        return NULL;
    forest_start(vector);
    PyBuffer_Release(&view);
    return Py_NewRef(Py_None);
}

/* forest_learn(vector, n, X, Y, weights, found) */
PyObject *forest_learned(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_buffer view;
    PyObject *given;
    Py_ssize_t n, learned = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnOOOO:forest_learn", &given, &n, &a.given[0], &a.given[1],
                          &a.given[2], &a.given[3]))
        return NULL;
    double *vector = forest_vector(given, 1, &view);
    if (!vector)
        return NULL;
    const Py_ssize_t c = vector[FOREST_OUTPUTS], C = vector[FOREST_CLASSES];
    const Py_ssize_t sizes[] = {numbers_in(n, (Py_ssize_t)vector[FOREST_FEATURES]),
                                numbers_in(n, c ? c : 1), n, numbers_in(n, C + c)};
    const int good = acquire_arrays(&a, 4, "dddd", sizes, 1 << 3, 0);
    if (good) {
        PyThreadState *state = n > 1 ? PyEval_SaveThread() : NULL;
        const unsigned mode = flush_subnormals();
        learned = forest_learn(vector, n, a.at[0], a.at[1], a.at[2], a.at[3]);
        restore_mode(mode);
        if (state)
            PyEval_RestoreThread(state);
    }
    release_arrays(&a);
    PyBuffer_Release(&view);
    if (good && learned == -2)
        return PyErr_Format(PyExc_OverflowError, "forest_learn: expected smaller numbers");
    return !good ? NULL : learned < 0 ? PyErr_NoMemory() : PyLong_FromSsize_t(learned);
}

/* forest_predict(vector, n, X, found) */
PyObject *forest_predicted(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_buffer view;
    PyObject *given;
    Py_ssize_t n;
    int predicted = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnOO:forest_predict", &given, &n, &a.given[0], &a.given[1]))
        return NULL;
    double *vector = forest_vector(given, 0, &view);
    if (!vector)
        return NULL;
    const Py_ssize_t outputs = vector[FOREST_OUTPUTS] + vector[FOREST_CLASSES];
    const Py_ssize_t sizes[] = {numbers_in(n, (Py_ssize_t)vector[FOREST_FEATURES]),
                                numbers_in(n, outputs)};
    const int good = acquire_arrays(&a, 2, "dd", sizes, 1 << 1, 0);
    if (good) {
        PyThreadState *state = n > 1 ? PyEval_SaveThread() : NULL;
        const unsigned mode = flush_subnormals();
        predicted = forest_predict(vector, n, a.at[0], a.at[1]);
        restore_mode(mode);
        if (state)
            PyEval_RestoreThread(state);
    }
    release_arrays(&a);
    PyBuffer_Release(&view);
    return !good ? NULL : predicted ? Py_NewRef(Py_None) : PyErr_NoMemory();
}
