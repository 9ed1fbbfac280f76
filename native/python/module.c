/* The module onepass._compiled, documented in onepass/native.py. */
#include "buffers.h"

#include "descent.h"
#include "machine.h"

enum { VERSION = 14 }; /* of the functions and their arguments; checked by onepass/native.py */

static PyObject *descended(PyObject *module, PyObject *args)
{
    Arrays a;
    Linear model;
    Py_ssize_t n;
    int loss;
    double parameter;
    (void)module;
    if (!PyArg_ParseTuple(args, "nnndidOOOOOOOOOO:descend", &n, &model.d, &model.c, &model.unit,
                          &loss, &parameter, &a.given[0], &a.given[1], &a.given[2], &a.given[3],
                          &a.given[4], &a.given[5], &a.given[6], &a.given[7], &a.given[8],
                          &a.given[9]))
        return NULL;
    const Py_ssize_t d = model.d, c = model.c;
    const Py_ssize_t outputs = numbers_in(n, c);
    const Py_ssize_t sizes[] = {numbers_in(n, d), outputs, n, n, n, n, numbers_in(c, d), c,
                                numbers_in(c, STATISTICS), outputs};
    const int written = 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9;
    const int optional = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 8;
    const int good = acquire_arrays(&a, 10, "dddddddddd", sizes, written, optional);
    if (good) {
        const Pace pace = {a.at[2], a.at[3], a.at[4], a.at[5]};
        model.W = a.at[6], model.b = a.at[7], model.statistics = a.at[8];
        Py_BEGIN_ALLOW_THREADS
        const unsigned mode = flush_subnormals();
        descend(&model, loss, parameter, n, a.at[0], a.at[1], &pace, 0.0, a.at[9]);
        restore_mode(mode);
        Py_END_ALLOW_THREADS
    }
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *corrected(PyObject *module, PyObject *args)
{
    Arrays a;
    Linear model;
    Py_ssize_t n, mistakes = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "nnndOOOOOOO:correct", &n, &model.d, &model.c, &model.unit,
                          &a.given[0], &a.given[1], &a.given[2], &a.given[3], &a.given[4],
                          &a.given[5], &a.given[6]))
        return NULL;
    const Py_ssize_t d = model.d, c = model.c;
    const Py_ssize_t outputs = numbers_in(n, c);
    const Py_ssize_t sizes[] = {numbers_in(n, d), n, n, outputs, numbers_in(c, d), c, outputs};
    const int good = acquire_arrays(&a, 7, "ddd?ddd", sizes, 1 << 4 | 1 << 5 | 1 << 6, 1 << 3);
    if (good) {
        model.W = a.at[4], model.b = a.at[5];
        Py_BEGIN_ALLOW_THREADS
        const unsigned mode = flush_subnormals();
        mistakes = correct(&model, n, a.at[0], a.at[1], a.at[2], a.at[3], a.at[6]);
        restore_mode(mode);
        Py_END_ALLOW_THREADS
    }
    release_arrays(&a);
    return good ? PyLong_FromSsize_t(mistakes) : NULL;
}

static PyMethodDef functions[] = {
    {"descend", descended, METH_VARARGS,
     "descend(n, d, c, unit, loss, parameter, X, Y, rate, limit, keep, damping, W, b, "
     "statistics, predictions)"},
    {"correct", corrected, METH_VARARGS,
     "correct(n, d, c, unit, X, y, moves, known, W, b, predictions): return the mistakes."},
    {"kalman", kalman, METH_VARARGS,
     "kalman(k, n, p, c, discount, X, Y, noise, q, G, F, W, factors, squares, predictions): "
     "return whether finite."},
    {"calibrate", calibrated, METH_VARARGS,
     "calibrate(c, state, scores, y): update the state of a calibration."},
    {"class_learn", class_learn, METH_VARARGS,
     "class_learn(dsyrk, k, c, d, vector, n, X, labels, weights, calibration, scores): return "
     "success."},
    {"class_coefficients", class_coefficients, METH_VARARGS,
     "class_coefficients(k, c, d, vector, cosine, share, variance, shares, coefficients): return "
     "success."},
    {"class_linear_scores", class_linear_scores, METH_VARARGS,
     "class_linear_scores(c, d, coefficients, n, X, scores)."},
    {"class_factor", class_factor, METH_VARARGS,
     "class_factor(d, sums, factor, add, U): return success."},
    {"class_quadratic_scores", class_quadratic_scores, METH_VARARGS,
     "class_quadratic_scores(c, d, means, factors, shares, n, X, scores)."},
    {"forest_learn", forest_learned, METH_VARARGS,
     "forest_learn(vector, n, X, Y, weights, found): return the number of rows learned."},
    {"forest_predict", forest_predicted, METH_VARARGS, "forest_predict(vector, n, X, found)."},
    {"forest_start", forest_started, METH_O, "forest_start(vector)."},
    {"into", columns_into, METH_VARARGS,
     "into(type, q, p, first, last, rows, g, C): return g . g."},
    {"without", columns_without, METH_VARARGS,
     "without(type, q, p, first, last, rows, g, c, d, rest, lifted, again): return rest . rest."},
    {"lengths", columns_lengths, METH_VARARGS, "lengths(type, q, p, first, last, rows, squares)."},
    {"secular", secular, METH_VARARGS,
     "secular(dlasd4, n, d, z, vectors, roots, work): return success."},
    {"transpose", transpose, METH_VARARGS, "transpose(n, columns, rows): return whether finite."},
    {"named_row", named_row, METH_VARARGS, "named_row(x, names, row): return success."},
    {"encode_row", encode_row, METH_VARARGS,
     "encode_row(x, columns, number, text, width, row): return success."},
    {"scale_row", (PyCFunction)(void (*)(void))scale_row, METH_FASTCALL,
     "scale_row(x, names, fixed, centred, counts, origin, offset, squares, row, new_offset, "
     "new_squares): "
     "return success."},
    {"impute_row", (PyCFunction)(void (*)(void))impute_row, METH_FASTCALL,
     "impute_row(x, names, strategy, indicate, fills, counts, flags, row, new_fills, new_counts): "
     "return success."},
    {NULL, NULL, 0, NULL},
};

static int add(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    const int wrong = type ? PyModule_AddObjectRef(module, name, type) : -1;
    Py_XDECREF(type);
    return wrong;
}

static int fill(PyObject *module)
{
    const int wrong = add(module, "Format", &format_spec) < 0 ||
                      add(module, "Single", &single_spec) < 0 ||
                      add(module, "Linear", &linear_spec) < 0 ||
                      PyModule_AddFunctions(module, least_squares_functions) < 0 ||
                      add(module, "Kernel", &kernel_spec) < 0 ||
                      PyModule_AddIntConstant(module, "VERSION", VERSION) < 0;
    return wrong ? -1 : 0;
}

static PyModuleDef_Slot steps[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_compiled", "Loops over rows.", 0, functions, steps, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compiled(void)
{
    return PyModuleDef_Init(&definition);
}
