/* Python bindings of columns.c, for onepass/linalg/projection.py. */
#include "buffers.h"

#include "columns.h"

static int inside(const Extent *e)
{
    if (e->q >= 0 && e->p >= 0 && e->first >= 0 && e->first <= e->last && e->last <= e->p)
        return 1;
    PyErr_SetString(PyExc_ValueError, "expected sizes with 0 <= first <= last <= p");
    return 0;
}

PyObject *columns_into(PyObject *module, PyObject *args)
{
    Extent e;
    Arrays a;
    const char *type;
    double squares = 0.0;
    (void)module;
    if (!PyArg_ParseTuple(args, "snnnnOOO:into", &type, &e.q, &e.p, &e.first, &e.last, &a.given[0],
                          &a.given[1], &a.given[2]) ||
        !inside(&e))
        return NULL;
    const Py_ssize_t sizes[] = {numbers_in(e.q, e.p), e.p, e.q};
    const int wide = type[0] == 'd';
    const int good = acquire_arrays(&a, 3, wide ? "ddd" : "ffd", sizes, 1 << 2, 0);
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        squares = wide ? into_doubles(&e, a.at[0], a.at[1], a.at[2])
                       : into_floats(&e, a.at[0], a.at[1], a.at[2]);
        Py_END_ALLOW_THREADS
    }
    release_arrays(&a);
    return good ? PyFloat_FromDouble(squares) : NULL;
}

PyObject *columns_without(PyObject *module, PyObject *args)
{
    Extent e;
    Arrays a;
    const char *type;
    double squares = 0.0;
    (void)module;
    if (!PyArg_ParseTuple(args, "snnnnOOOOOOO:without", &type, &e.q, &e.p, &e.first, &e.last,
                          &a.given[0], &a.given[1], &a.given[2], &a.given[3], &a.given[4],
                          &a.given[5], &a.given[6]) ||
        !inside(&e))
        return NULL;
    const Py_ssize_t sizes[] = {numbers_in(e.q, e.p), e.p, e.q, e.q, e.p, e.p, e.q};
    const int wide = type[0] == 'd', written = 1 << 4 | 1 << 5 | 1 << 6;
    const int both = a.given[3] != Py_None || a.given[5] != Py_None; /* d and lifted are required */
    const int optional = 1 << 6 | (both ? 0 : 1 << 3 | 1 << 5);
    const int good = acquire_arrays(&a, 7, wide ? "ddddddd" : "ffffffd", sizes, written, optional);
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        squares = wide ? without_doubles(&e, a.at[0], a.at[1], a.at[2], a.at[3], a.at[4], a.at[5],
                                         a.at[6])
                       : without_floats(&e, a.at[0], a.at[1], a.at[2], a.at[3], a.at[4], a.at[5],
                                        a.at[6]);
        Py_END_ALLOW_THREADS
    }
    release_arrays(&a);
    return good ? PyFloat_FromDouble(squares) : NULL;
}

PyObject *columns_lengths(PyObject *module, PyObject *args)
{
    Extent e;
    Arrays a;
    const char *type;
    (void)module;
    if (!PyArg_ParseTuple(args, "snnnnOO:lengths", &type, &e.q, &e.p, &e.first, &e.last,
                          &a.given[0], &a.given[1]) ||
        !inside(&e))
        return NULL;
    const Py_ssize_t sizes[] = {numbers_in(e.q, e.p), e.q};
    const int wide = type[0] == 'd';
    const int good = acquire_arrays(&a, 2, wide ? "dd" : "fd", sizes, 1 << 1, 0);
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        if (wide)
            lengths_doubles(&e, a.at[0], a.at[1]);
        else
            lengths_floats(&e, a.at[0], a.at[1]);
        Py_END_ALLOW_THREADS
    }
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}
