/* Conversion of plain rows, targets and labels from Python. */
#include "reading.h"

#include <math.h>
#include <string.h>

int reading_open(Reading *reading, Py_ssize_t d, Py_ssize_t c, PyObject *format)
{
    PyObject *parts[6];
    reading->d = d;
    reading->c = c;
    if (format == Py_None)
        return 1;
    if (!PyTuple_Check(format) || PyTuple_Size(format) != 6) {
        PyErr_Format(PyExc_TypeError, "expected the format of rows, a tuple of six parts");
        return 0;
    }
    for (int i = 0; i < 6; i++)
        parts[i] = PyTuple_GetItem(format, i);
    PyObject *names = parts[2], *labels = parts[4], *places = parts[5];
    const int named = names == Py_None || (PyTuple_Check(names) && PyTuple_Size(names) == d);
    const int classes = PyTuple_Check(labels) && PyDict_Check(places) && PyTuple_Size(labels) > 0 &&
                        PyTuple_Size(labels) == PyDict_Size(places);
    if (!PyFrozenSet_Check(parts[1]) || !named || (classes && PyTuple_Size(labels) != c) ||
        !(classes || (labels == Py_None && places == Py_None))) {
        PyErr_Format(PyExc_ValueError,
                     "expected one name for each feature, and one label for each output");
        return 0;
    }
    reading->array = Py_NewRef(parts[0]);
    reading->scalars = Py_NewRef(parts[1]);
    reading->names = Py_NewRef(names);
    reading->number = Py_NewRef(parts[3]);
    reading->labels = Py_NewRef(labels);
    reading->places = Py_NewRef(places);
    return 1;
}

void reading_copy(Reading *to, const Reading *from)
{
    *to = *from;
    Py_XINCREF(to->array);
    Py_XINCREF(to->scalars);
    Py_XINCREF(to->names);
    Py_XINCREF(to->number);
    Py_XINCREF(to->labels);
    Py_XINCREF(to->places);
}

void reading_close(Reading *reading)
{
    Py_CLEAR(reading->array);
    Py_CLEAR(reading->scalars);
    Py_CLEAR(reading->names);
    Py_CLEAR(reading->number);
    Py_CLEAR(reading->labels);
    Py_CLEAR(reading->places);
}

/* Convert a number of an accepted type; NAN for all others. `scalars` may be NULL. */
static double plain_number(PyObject *scalars, PyObject *given)
{
    double value = NAN;
    if (PyFloat_Check(given))
        value = PyFloat_AsDouble(given);
    else if (PyLong_CheckExact(given))
        value = PyLong_AsDouble(given);
    else if (scalars) {
        Py_INCREF(given); /* comparing types may run code that removes it from a list */
        if (PySet_Contains(scalars, (PyObject *)Py_TYPE(given)) == 1)
            value = PyFloat_AsDouble(given);
        Py_DECREF(given);
    }
    if (PyErr_Occurred()) { /* overflow: the returned value is -1 */
        PyErr_Clear();
        value = NAN;
    }
    return fabs(value) <= LARGEST ? value : NAN;
}

double read_number(const Reading *reading, PyObject *given)
{
    return plain_number(reading->scalars, given);
}

/* Convert `count` numbers of C type TYPE, `stride` bytes apart. */
#define CONVERT(code, TYPE)                                                                        \
    case code:                                                                                     \
        for (Py_ssize_t j = 0; j < count; j++, at += stride) {                                     \
            TYPE value;                                                                            \
            memcpy(&value, at, sizeof value);                                                      \
            to[j] = (double)value;                                                                 \
        }                                                                                          \
        break;

/* Convert numbers in native byte order; returns 0 if the type is another one. */
static int convert(const char *type, const char *at, Py_ssize_t count, Py_ssize_t stride,
                   double *to)
{
    if (type[0] == 0 || type[1] != 0)
        return 0;
    switch (type[0]) {
        CONVERT('d', double)
        CONVERT('f', float)
        CONVERT('b', signed char)
        CONVERT('B', unsigned char)
        CONVERT('h', short)
        CONVERT('H', unsigned short)
        CONVERT('i', int)
        CONVERT('I', unsigned int)
        CONVERT('l', long)
        CONVERT('L', unsigned long)
        CONVERT('q', long long)
        CONVERT('Q', unsigned long long)
    default:
        return 0;
    }
    return 1;
}

static int read_array(PyObject *given, Py_ssize_t count, double *to)
{
    Py_buffer view;
    if (PyObject_GetBuffer(given, &view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        return 0;
    }
    int good = view.ndim == 1 && view.shape[0] == count &&
               convert(view.format, view.buf, count, view.strides[0], to);
    PyBuffer_Release(&view);
    for (Py_ssize_t j = 0; good && j < count; j++)
        good = fabs(to[j]) <= LARGEST;
    return good;
}

/* Read an array, list or tuple of numbers; returns 0 for any other object. */
static int read_values(const Reading *reading, PyObject *given, Py_ssize_t count, double *to)
{
    if ((PyObject *)Py_TYPE(given) == reading->array)
        return read_array(given, count, to);
    const int list = PyList_CheckExact(given);
    if (!(list ? PyList_Size(given) == count
               : PyTuple_CheckExact(given) && PyTuple_Size(given) == count))
        return 0;
    for (Py_ssize_t j = 0; j < count; j++) {
        to[j] = read_number(reading, list ? PyList_GetItem(given, j) : PyTuple_GetItem(given, j));
        if (isnan(to[j]))
            return 0;
    }
    return 1;
}

int read_row(const Reading *reading, PyObject *given, double *row)
{
    if (!reading->array)
        return 0;
    if (!PyDict_CheckExact(given))
        return read_values(reading, given, reading->d, row);
    if (reading->names == Py_None || PyDict_Size(given) != reading->d)
        return 0;
    for (Py_ssize_t j = 0; j < reading->d; j++) {
        PyObject *value = PyDict_GetItemWithError(given, PyTuple_GetItem(reading->names, j));
        if (!value) {
            PyErr_Clear();
            return 0;
        }
        row[j] = read_number(reading, value);
        if (isnan(row[j]))
            return 0;
    }
    return 1;
}

int read_targets(const Reading *reading, PyObject *given, double *targets)
{
    if (!PyType_Check(reading->number))
        return read_values(reading, given, reading->c, targets);
    targets[0] = read_number(reading, given);
    return reading->c == 1 && !isnan(targets[0]);
}

PyObject *named_row(PyObject *module, PyObject *args)
{
    PyObject *x, *names, *out;
    Py_buffer view;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO:named_row", &x, &names, &out))
        return NULL;
    if (!PyDict_CheckExact(x) || !PyList_CheckExact(names) || PyDict_Size(x) != PyList_Size(names))
        Py_RETURN_FALSE;
    const Py_ssize_t d = PyList_Size(names);
    double *row = numbers_of(out, "d", d, 1, &view);
    if (!row)
        return NULL;
    Py_ssize_t j = 0;
    for (; j < d; j++) {
        PyObject *value = PyDict_GetItemWithError(x, PyList_GetItem(names, j));
        row[j] = value ? plain_number(NULL, value) : NAN;
        if (isnan(row[j]))
            break;
    }
    PyErr_Clear();
    PyBuffer_Release(&view);
    return PyBool_FromLong(j == d);
}

Py_ssize_t read_label(const Reading *reading, PyObject *given)
{
    const int plain =
        PyLong_CheckExact(given) || PyUnicode_CheckExact(given) || PyBool_Check(given);
    PyObject *place = NULL;
    if (plain || Py_TYPE(given) == Py_TYPE(PyTuple_GetItem(reading->labels, 0)))
        place = PyDict_GetItemWithError(reading->places, given);
    const Py_ssize_t found = place ? PyLong_AsSsize_t(place) : -1;
    if (PyErr_Occurred())
        PyErr_Clear();
    return found < PyTuple_Size(reading->labels) ? found : -1;
}

PyObject *number_object(const Reading *reading, const double *scores)
{
    const int single = PyType_Check(reading->number);
    PyObject *given = single ? PyFloat_FromDouble(scores[0]) : PyLong_FromSsize_t(reading->c);
    PyObject *made =
        given ? PyObject_CallFunctionObjArgs(reading->number, given, NULL) : NULL;
    Py_XDECREF(given);
    if (single || !made)
        return made;
    Py_buffer view;
    double *to = numbers_of(made, "d", reading->c, 1, &view);
    if (!to) {
        Py_DECREF(made);
        return NULL;
    }
    memcpy(to, scores, reading->c * sizeof *to);
    PyBuffer_Release(&view);
    return made;
}

PyObject *label_object(const Reading *reading, Py_ssize_t place)
{
    return Py_NewRef(PyTuple_GetItem(reading->labels, place));
}

PyObject *prediction_object(const Reading *reading, const double *scores)
{
    Py_ssize_t best = 0;
    if (reading->labels == Py_None)
        return number_object(reading, scores);
    for (Py_ssize_t k = 1; k < reading->c; k++)
        best = scores[k] >= scores[best] ? k : best;
    return label_object(reading, best);
}

int read_example(const Reading *reading, PyObject *const *args, double *row, double *targets,
                 double *weight)
{
    *weight = read_number(reading, args[2]);
    if (!(*weight > 0.0) || !read_row(reading, args[0], row))
        return 0;
    if (reading->labels == Py_None)
        return read_targets(reading, args[1], targets);
    const Py_ssize_t place = read_label(reading, args[1]);
    memset(targets, 0, reading->c * sizeof *targets);
    if (place >= 0)
        targets[place] = 1.0;
    return place >= 0;
}
