/* Single rows in the transformers Scale, Impute and Encode of onepass.features, which contain the
   equations. The state is not changed: the state after the row is written to other arrays. The
   functions return False, without an error, for rows that must be handled in Python. */
#include "reading.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* The arguments of scale_row and impute_row: x, names, two options, the arrays of the state, the row
   to write, and two arrays of the new state, or None. */
enum { OPTIONS = 2, STATE = 4, NEW = 2 };

/* Acquire the arrays and write the row x; returns -1 with an error if an array is wrong, and 0 if x
   is no row of d finite values. With `gaps`, values may be nan. */
static int acquire_row(Arrays *a, PyObject *const *args, Py_ssize_t count, const char *types,
                       int gaps, Py_ssize_t *d)
{
    const int arrays = (int)strlen(types), out = arrays - NEW - 1;
    a->acquired = 0;
    memset(a->at, 0, sizeof a->at);
    if (count != STATE + arrays) {
        PyErr_Format(PyExc_TypeError, "expected %d arguments", STATE + arrays);
        return -1;
    }
    *d = PyObject_Size(args[STATE + out]);
    if (*d < 0)
        return -1;
    const Py_ssize_t sizes[] = {*d, *d, *d, *d, *d, *d, *d};
    const int learning = args[count - 1] != Py_None || args[count - 2] != Py_None;
    memcpy(a->given, args + STATE, arrays * sizeof *args);
    if (!acquire_arrays(a, arrays, types, sizes, 7 << out, learning ? 0 : 3 << (out + 1)))
        return -1;
    double *row = a->at[out];
    int good = PyObject_CheckBuffer(args[0]) ? read_array(args[0], "d", *d, row)
                                             : read_named(NULL, args[0], args[1], *d, row);
    for (Py_ssize_t j = 0; good && j < *d; j++)
        good = fabs(row[j]) <= DBL_MAX || (gaps && isnan(row[j]));
    return good;
}

PyObject *scale_row(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    Arrays a;
    Py_ssize_t d;
    (void)module;
    int good = acquire_row(&a, args, given, "ddddddd", 0, &d);
    const int fixed = good > 0 ? PyObject_IsTrue(args[OPTIONS]) : 0;
    const int centred = good > 0 ? PyObject_IsTrue(args[OPTIONS + 1]) : 0;
    if (fixed < 0 || centred < 0)
        good = -1;
    const double *counts = a.at[0], *origin = a.at[1], *offset = a.at[2], *squares = a.at[3];
    double *row = a.at[4], *new_offset = a.at[5], *new_squares = a.at[6];
    for (Py_ssize_t j = 0; good > 0 && j < d; j++) {
        const double count = fixed ? fmax(counts[j], 1.0) : counts[j] + 1.0;
        const double share = fixed ? 1.0 : counts[j] / count;
        const double apart = centred ? (row[j] - origin[j]) - offset[j] : row[j];
        const double z = centred ? apart * share : apart;
        const double sum = squares[j] + (fixed ? 0.0 : apart * z);
        const double variance = sum / count, digit = 4.0 * DBL_EPSILON * origin[j];
        const int constant = variance < fmax(digit * digit, DBL_MIN);
        row[j] = constant ? (fixed ? z : 0.0) : z / sqrt(variance);
        good = sum <= DBL_MAX && fabs(row[j]) <= DBL_MAX && !(new_offset && counts[j] == 0.0);
        if (new_offset) {
            new_offset[j] = centred ? offset[j] + apart / count : offset[j];
            new_squares[j] = sum;
        }
    }
    release_arrays(&a);
    return good < 0 ? NULL : PyBool_FromLong(good);
}

PyObject *impute_row(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    const char whole = sizeof(long) == sizeof(int64_t) ? 'l' : 'q'; /* as NumPy names int64 */
    const char types[] = {'d', whole, whole, 'd', 'd', whole, '\0'};
    Arrays a;
    Py_ssize_t d;
    (void)module;
    int good = acquire_row(&a, args, given, types, 1, &d);
    good = good > 0 ? PyUnicode_Check(args[OPTIONS]) : good;
    const int mean = good > 0 && PyUnicode_CompareWithASCIIString(args[OPTIONS], "mean") == 0;
    const int last = good > 0 && PyUnicode_CompareWithASCIIString(args[OPTIONS], "last") == 0;
    const int indicate = good > 0 ? PyObject_IsTrue(args[OPTIONS + 1]) : 0;
    if (indicate < 0)
        good = -1;
    const double *fills = a.at[0];
    const int64_t *counts = a.at[1], *flags = a.at[2];
    double *row = a.at[3], *new_fills = a.at[4];
    int64_t *new_counts = a.at[5];
    for (Py_ssize_t j = 0; good > 0 && j < d; j++) {
        const int gap = isnan(row[j]);
        double fill = fills[j];
        if (new_fills) {
            const int64_t count = counts[j] + !gap;
            if (mean)
                fill += (gap ? 0.0 : row[j] - fill) / (double)(count > 1 ? count : 1);
            else if (last && !gap)
                fill = row[j];
            new_fills[j] = fill;
            new_counts[j] = count;
        }
        row[j] = gap ? fill : row[j];
        good = fabs(fill) <= DBL_MAX && flags[j] < 0 && !(gap && indicate);
        good = good && counts[j] > 0; /* else Python determines where the column starts */
    }
    release_arrays(&a);
    return good < 0 ? NULL : PyBool_FromLong(good);
}

/* The names of the attributes of a column. */
typedef struct {
    PyObject *at, *places;
} Names;

/* The attribute `at` of a column; negative if it has no output. */
static Py_ssize_t output_of(PyObject *column, const Names *names)
{
    PyObject *value = PyObject_GetAttr(column, names->at);
    const Py_ssize_t at = value ? PyLong_AsSsize_t(value) : -1;
    Py_XDECREF(value);
    return at;
}

/* Write a value of a column of numbers to the zeros of row; NULL if it is missing. */
static int encode_number(PyObject *column, const Names *names, PyObject *value, Py_ssize_t width,
                         double *row)
{
    const Py_ssize_t at = output_of(column, names);
    const double number = value ? plain_number(NULL, value) : NAN;
    if (at < 0 || at >= width || isinf(number))
        return 0;
    row[at] = number;
    return 1;
}

/* Write a value of a column of text to the zeros of row; NULL if it is missing. */
static int encode_text(PyObject *column, const Names *names, PyObject *value, Py_ssize_t width,
                       double *row)
{
    if (!value)
        return 1;
    PyObject *places = PyUnicode_CheckExact(value) ? PyObject_GetAttr(column, names->places) : NULL;
    if (!places)
        return 0;
    PyObject *place = PyDict_GetItemWithError(places, value);
    const Py_ssize_t at = place ? PyLong_AsSsize_t(place) : output_of(column, names);
    Py_DECREF(places);
    if (at < 0 || at >= width)
        return 0;
    row[at] = 1.0;
    return 1;
}

PyObject *encode_row(PyObject *module, PyObject *args)
{
    PyObject *x, *columns, *number, *text, *out, *name, *column;
    Py_buffer view;
    Py_ssize_t width, at = 0, found = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!OOnO:encode_row", &PyDict_Type, &x, &PyDict_Type, &columns,
                          &number, &text, &width, &out))
        return NULL;
    double *row = numbers_of(out, "d", width, 1, &view);
    if (!row)
        return NULL;
    memset(row, 0, width * sizeof *row);
    const Names names = {PyUnicode_InternFromString("at"), PyUnicode_InternFromString("places")};
    int good = names.at && names.places;
    while (good && PyDict_Next(columns, &at, &name, &column)) {
        PyObject *value = PyDict_GetItemWithError(x, name);
        found += value != NULL;
        value = value == Py_None ? NULL : value;
        if (PyErr_Occurred()) /* the comparison of a key failed */
            good = 0;
        else if (column == Py_None) /* no value so far */
            good = !value;
        else if ((PyObject *)Py_TYPE(column) == number)
            good = encode_number(column, &names, value, width, row);
        else
            good = (PyObject *)Py_TYPE(column) == text &&
                   encode_text(column, &names, value, width, row);
    }
    PyErr_Clear();
    Py_XDECREF(names.at);
    Py_XDECREF(names.places);
    PyBuffer_Release(&view);
    return PyBool_FromLong(good && found == PyDict_Size(x));
}
