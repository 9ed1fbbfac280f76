/* The module onepass._compiled; onepass/compiled.py says what it holds. */
#include "buffers.h"

#include "descent.h"

enum { MOST = 8 }; /* arrays of a call */

/* What a call is given: arrays that may be None, and where their numbers are. */
typedef struct {
    PyObject *given[MOST];
    Py_buffer view[MOST];
    void *at[MOST];
    int held;
} Arrays;

static int hold(Arrays *arrays, int count, const char *types, const Py_ssize_t *sizes, int written)
{
    for (arrays->held = 0; arrays->held < count; arrays->held++) {
        const int i = arrays->held;
        const char type[] = {types[i], 0};
        arrays->at[i] = NULL;
        if (arrays->given[i] == Py_None)
            continue;
        const int writable = written >> i & 1;
        arrays->at[i] = numbers_of(arrays->given[i], type, sizes[i], writable, &arrays->view[i]);
        if (!arrays->at[i])
            return 0;
    }
    return 1;
}

static void let_go(Arrays *arrays)
{
    for (int i = 0; i < arrays->held; i++)
        if (arrays->at[i])
            PyBuffer_Release(&arrays->view[i]);
}

static PyObject *descended(PyObject *module, PyObject *args)
{
    Arrays a;
    Stream s;
    int loss;
    double parameter;
    (void)module;
    if (!PyArg_ParseTuple(args, "nnndidOOOOOOOO:descend", &s.n, &s.d, &s.c, &s.unit, &loss,
                          &parameter, &a.given[0], &a.given[1], &a.given[2], &a.given[3],
                          &a.given[4], &a.given[5], &a.given[6], &a.given[7]))
        return NULL;
    const Py_ssize_t sizes[] = {s.n * s.d, s.n * s.c, s.n, s.n, s.n, s.c * s.d, s.c, s.n * s.c};
    const int good = hold(&a, 8, "dddddddd", sizes, 1 << 5 | 1 << 6 | 1 << 7);
    if (good) {
        s.X = a.at[0], s.Y = a.at[1], s.W = a.at[5], s.b = a.at[6], s.said = a.at[7];
        Py_BEGIN_ALLOW_THREADS
        descend(&s, loss, parameter, a.at[2], a.at[3], a.at[4]);
        Py_END_ALLOW_THREADS
    }
    let_go(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *corrected(PyObject *module, PyObject *args)
{
    Arrays a;
    Stream s;
    Py_ssize_t mistakes = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "nnndOOOOOOO:correct", &s.n, &s.d, &s.c, &s.unit, &a.given[0],
                          &a.given[1], &a.given[2], &a.given[3], &a.given[4], &a.given[5],
                          &a.given[6]))
        return NULL;
    const Py_ssize_t sizes[] = {s.n * s.d, s.n, s.n, s.n * s.c, s.c * s.d, s.c, s.n * s.c};
    const int good = hold(&a, 7, "ddd?ddd", sizes, 1 << 4 | 1 << 5 | 1 << 6);
    if (good) {
        s.X = a.at[0], s.Y = a.at[1], s.W = a.at[4], s.b = a.at[5], s.said = a.at[6];
        Py_BEGIN_ALLOW_THREADS
        mistakes = correct(&s, a.at[2], a.at[3]);
        Py_END_ALLOW_THREADS
    }
    let_go(&a);
    return good ? PyLong_FromSsize_t(mistakes) : NULL;
}

static PyMethodDef functions[] = {
    {"descend", descended, METH_VARARGS,
     "descend(n, d, c, unit, loss, parameter, X, Y, rate, limit, keep, W, b, said)"},
    {"correct", corrected, METH_VARARGS,
     "correct(n, d, c, unit, X, y, moves, known, W, b, said): the mistakes."},
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &rows_spec, NULL);
    const int wrong = type ? PyModule_AddObjectRef(module, "Rows", type) : -1;
    Py_XDECREF(type);
    return wrong;
}

static PyModuleDef_Slot steps[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_compiled", "Loops over rows.", 0, functions, steps, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compiled(void)
{
    return PyModuleDef_Init(&definition);
}
