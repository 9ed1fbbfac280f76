/* Conversion of plain rows, targets and labels from Python. */
#include "reading.h"

#include <math.h>
#include <string.h>

int reading_open(Reading *reading, Py_ssize_t d, PyObject *const parts[5])
{
    PyObject *names = parts[1], *labels = parts[3], *places = parts[4];
    const int named = names == Py_None || (PyTuple_Check(names) && PyTuple_Size(names) == d);
    const int classes = PyTuple_Check(labels) && PyDict_Check(places) && PyTuple_Size(labels) > 0 &&
                        PyTuple_Size(labels) == PyDict_Size(places);
    if (!named || !(classes || (labels == Py_None && places == Py_None)))
        return 0;
    reading->d = d;
    reading->array = Py_NewRef(parts[0]);
    reading->names = Py_NewRef(names);
    reading->number = Py_NewRef(parts[2]);
    reading->labels = Py_NewRef(labels);
    reading->places = Py_NewRef(places);
    return 1;
}

void reading_close(Reading *reading)
{
    Py_CLEAR(reading->array);
    Py_CLEAR(reading->names);
    Py_CLEAR(reading->number);
    Py_CLEAR(reading->labels);
    Py_CLEAR(reading->places);
}

double read_number(PyObject *given)
{
    double value = NAN;
    if (PyFloat_Check(given))
        value = PyFloat_AsDouble(given);
    else if (PyLong_CheckExact(given)) {
        value = PyLong_AsDouble(given);
        if (PyErr_Occurred()) { /* overflow: the returned value is -1 */
            PyErr_Clear();
            value = NAN;
        }
    }
    return fabs(value) <= LARGEST ? value : NAN;
}

static int read_array(const Reading *reading, PyObject *given, double *row)
{
    Py_buffer view;
    if (PyObject_GetBuffer(given, &view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        return 0;
    }
    const Py_ssize_t d = reading->d;
    const int narrow = strcmp(view.format, "f") == 0;
    int good = view.ndim == 1 && view.shape[0] == d && (narrow || strcmp(view.format, "d") == 0);
    const char *at = view.buf;
    for (Py_ssize_t j = 0; good && j < d; j++, at += view.strides[0])
        if (narrow) {
            float value;
            memcpy(&value, at, sizeof value);
            row[j] = value;
        } else
            memcpy(row + j, at, sizeof *row);
    PyBuffer_Release(&view);
    for (Py_ssize_t j = 0; good && j < d; j++)
        good = fabs(row[j]) <= LARGEST;
    return good;
}

int read_row(const Reading *reading, PyObject *given, double *row)
{
    if ((PyObject *)Py_TYPE(given) == reading->array)
        return read_array(reading, given, row);
    if (!PyDict_CheckExact(given) || reading->names == Py_None || PyDict_Size(given) != reading->d)
        return 0;
    for (Py_ssize_t j = 0; j < reading->d; j++) {
        PyObject *value = PyDict_GetItemWithError(given, PyTuple_GetItem(reading->names, j));
        if (!value) {
            PyErr_Clear();
            return 0;
        }
        row[j] = read_number(value);
        if (isnan(row[j]))
            return 0;
    }
    return 1;
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
        row[j] = value ? read_number(value) : NAN;
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

PyObject *number_object(const Reading *reading, double value)
{
    PyObject *plain = PyFloat_FromDouble(value);
    PyObject *object = plain ? PyObject_CallFunctionObjArgs(reading->number, plain, NULL) : NULL;
    Py_XDECREF(plain);
    return object;
}

PyObject *label_object(const Reading *reading, Py_ssize_t place)
{
    return Py_NewRef(PyTuple_GetItem(reading->labels, place));
}
