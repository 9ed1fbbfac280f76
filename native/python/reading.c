/* Conversion of plain rows, targets and labels from Python. */
#include "reading.h"

#include "calibration.h"

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

double plain_number(PyObject *scalars, PyObject *given)
{
    double value = INFINITY;
    if (PyFloat_Check(given))
        value = PyFloat_AsDouble(given);
    else if (PyLong_CheckExact(given) || PyBool_Check(given))
        value = PyLong_AsDouble(given);
    else if (scalars) {
        Py_INCREF(given); /* comparing types may run code that removes it from a list */
        if (PySet_Contains(scalars, (PyObject *)Py_TYPE(given)) == 1)
            value = PyFloat_AsDouble(given);
        Py_DECREF(given);
    }
    if (PyErr_Occurred()) { /* overflow: the returned value is -1 */
        PyErr_Clear();
        value = INFINITY;
    }
    return value;
}

double read_number(const Reading *reading, PyObject *given)
{
    const double value = plain_number(reading->scalars, given);
    return fabs(value) <= LARGEST ? value : NAN;
}

/* Whether all numbers are finite and none is huge. */
static int moderate(const double *numbers, Py_ssize_t count)
{
    for (Py_ssize_t j = 0; j < count; j++)
        if (!(fabs(numbers[j]) <= LARGEST))
            return 0;
    return 1;
}

int read_array(PyObject *given, const char *types, Py_ssize_t count, double *to)
{
    Py_buffer view;
    if (PyObject_GetBuffer(given, &view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        return 0;
    }
    Convert *convert = conversion_of(&view);
    const int good = view.ndim == 1 && view.shape[0] == count && convert &&
                     strchr(types, type_of(&view));
    if (good)
        convert(view.buf, view.strides[0], count, to);
    PyBuffer_Release(&view);
    return good;
}

/* A dict with the content of a mapping; NULL without an error for other objects. */
static PyObject *dict_of(PyObject *given)
{
    static PyObject *kind; /* collections.abc.Mapping */
    PyObject *from = Py_IS_TYPE(given, &PyDictProxy_Type) /* a copy is faster than PyDict_Update */
                         ? PyObject_CallMethod(given, "copy", NULL)
                         : Py_NewRef(given);
    if (from && PyDict_Check(from))
        return from;
    PyObject *module = kind ? NULL : PyImport_ImportModule("collections.abc");
    if (module)
        kind = PyObject_GetAttrString(module, "Mapping");
    const int mapping = from && kind && PyObject_IsInstance(from, kind) == 1;
    PyObject *dict = mapping ? PyDict_New() : NULL;
    if (dict && PyDict_Update(dict, from) < 0)
        Py_CLEAR(dict);
    Py_XDECREF(module);
    Py_XDECREF(from);
    PyErr_Clear();
    return dict;
}

int read_named(PyObject *scalars, PyObject *given, PyObject *names, Py_ssize_t d, double *row)
{
    const int list = PyList_Check(names);
    PyObject *dict = dict_of(given);
    int good = dict && PyDict_Size(dict) == d &&
               (list ? PyList_Size(names) : PyTuple_Check(names) ? PyTuple_Size(names) : -1) == d;
    for (Py_ssize_t j = 0; good && j < d; j++) {
        PyObject *name = list ? PyList_GetItem(names, j) : PyTuple_GetItem(names, j);
        PyObject *value = PyDict_GetItemWithError(dict, name);
        good = value != NULL;
        if (good)
            row[j] = value == Py_None ? NAN : plain_number(scalars, value);
    }
    Py_XDECREF(dict);
    PyErr_Clear();
    return good;
}

/* Read an array, list or tuple of numbers; returns 0 for any other object. */
static int read_values(const Reading *reading, PyObject *given, Py_ssize_t count, double *to)
{
    if ((PyObject *)Py_TYPE(given) == reading->array)
        return read_array(given, "?bBhHiIlLqQfd", count, to) && moderate(to, count);
    const int list = PyList_Check(given);
    if (!(list ? PyList_Size(given) == count
               : PyTuple_Check(given) && PyTuple_Size(given) == count))
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
    if (!PyDict_Check(given))
        if (read_values(reading, given, reading->d, row))
            return 1;
    return reading->names != Py_None &&
           read_named(reading->scalars, given, reading->names, reading->d, row) &&
           moderate(row, reading->d);
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
    const Py_ssize_t d = PyObject_Size(names);
    double *row = d < 0 ? NULL : numbers_of(out, "d", d, 1, &view);
    if (!row)
        return NULL;
    const int good = read_named(NULL, x, names, d, row) && moderate(row, d);
    PyBuffer_Release(&view);
    return PyBool_FromLong(good);
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

/* A score, scaled and with the offset of its class. */
static double fitted(double score, double scale, const double *state, Py_ssize_t k)
{
    return scale * score + (state ? state[CLASSES_AT + 2 * k] : 0.0);
}

PyObject *probabilities_object(const Reading *reading, const double *scores, const double *state)
{
    PyObject *label, *place;
    Py_ssize_t at = 0;
    const double scale = state ? exp(state[0]) : 1.0;
    double most = scores[0], top = -INFINITY, total = 0.0;
    for (Py_ssize_t k = 1; k < reading->c; k++)
        most = fmax(most, scores[k]);
    for (Py_ssize_t k = 0; k < reading->c; k++)
        top = fmax(top, fitted(scores[k] - most, scale, state, k));
    for (Py_ssize_t k = 0; k < reading->c; k++)
        total += exp(fitted(scores[k] - most, scale, state, k) - top);
    if (reading->labels == Py_None || isnan(total))
        Py_RETURN_NONE;
    PyObject *shares = PyDict_New();
    while (shares && PyDict_Next(reading->places, &at, &label, &place)) {
        const Py_ssize_t k = PyLong_AsSsize_t(place);
        const int good = k >= 0 && k < reading->c;
        PyObject *share =
            good ? PyFloat_FromDouble(exp(fitted(scores[k] - most, scale, state, k) - top) / total) : NULL;
        if (!share || PyDict_SetItem(shares, label, share) < 0)
            Py_CLEAR(shares);
        Py_XDECREF(share);
    }
    return shares || PyErr_Occurred()
               ? shares
               : PyErr_Format(PyExc_ValueError, "expected the index of an output for each label");
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
