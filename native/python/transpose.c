/* Columns of numbers of any type as rows of doubles.
 *
 * The columns are read in tiles: as many columns as fill a cache line of a row, of as many rows as
 * stay in the first cache. Columns of doubles are read in place; others are first converted, tile
 * by tile.
 */
#include "buffers.h"

#include <stdint.h>

#include "machine.h"

enum { TILE = 64 }; /* rows of a tile, a multiple of WIDE */

typedef struct {
    const char *at;
    Py_ssize_t stride; /* in bytes */
    Convert *convert;  /* NULL for contiguous doubles */
} Column;

/* Write the rows (n, q); returns 0 if all numbers are finite. */
EVERY_MACHINE static int transpose_columns(const Column *columns, Py_ssize_t q, Py_ssize_t n,
                                           double *rows)
{
    vector nothing = {0}; /* 0 times each number: nan if it is not finite */
    double converted[WIDE][TILE];
    for (Py_ssize_t first = 0; first < n; first += TILE) {
        const Py_ssize_t height = n - first < TILE ? n - first : TILE;
        for (Py_ssize_t j = 0; j < q; j += WIDE) {
            const int width = q - j < WIDE ? (int)(q - j) : WIDE;
            const double *from[WIDE];
            for (int k = 0; k < width; k++) {
                const Column *column = columns + j + k;
                const char *at = column->at + first * column->stride;
                from[k] = (const double *)at;
                if (column->convert) {
                    column->convert(at, column->stride, height, converted[k]);
                    from[k] = converted[k];
                }
                Py_ssize_t i = 0;
                for (; i + WIDE <= height; i += WIDE)
                    nothing += 0.0 * *(const loose *)(from[k] + i);
                for (; i < height; i++)
                    nothing[0] += 0.0 * from[k][i];
            }
            double *to = rows + first * q + j;
            if (width == WIDE)
                for (Py_ssize_t i = 0; i < height; i++)
                    for (int k = 0; k < WIDE; k++)
                        to[i * q + k] = from[k][i];
            else
                for (int k = 0; k < width; k++)
                    for (Py_ssize_t i = 0; i < height; i++)
                        to[i * q + k] = from[k][i];
        }
    }
    double sum = 0.0;
    for (int k = 0; k < WIDE; k++)
        sum += nothing[k];
    return sum != 0.0;
}

/* Open the buffers of the columns, each of n numbers; returns how many are open. */
static Py_ssize_t open_columns(PyObject *given, Py_ssize_t q, Py_ssize_t n, Py_buffer *views,
                               Column *columns)
{
    for (Py_ssize_t j = 0; j < q; j++) {
        Py_buffer *view = views + j;
        if (PyObject_GetBuffer(PyTuple_GetItem(given, j), view, PyBUF_STRIDES | PyBUF_FORMAT) < 0)
            return j;
        Convert *convert = conversion_of(view);
        if (!convert || view->ndim != 1 || view->shape[0] != n) {
            PyErr_Format(PyExc_ValueError, "expected %zd numbers, got %zd bytes of %s", n,
                         view->len, view->format ? view->format : "B");
            PyBuffer_Release(view);
            return j;
        }
        const int plain = type_of(view) == 'd' && view->strides[0] == sizeof(double) &&
                          (uintptr_t)view->buf % sizeof(double) == 0;
        columns[j] = (Column){view->buf, view->strides[0], plain ? NULL : convert};
    }
    return q;
}

PyObject *transpose(PyObject *module, PyObject *args)
{
    PyObject *given, *found = NULL;
    Arrays a;
    Py_ssize_t n;
    (void)module;
    if (!PyArg_ParseTuple(args, "nO!O:transpose", &n, &PyTuple_Type, &given, &a.given[0]))
        return NULL;
    const Py_ssize_t q = PyTuple_Size(given);
    const Py_ssize_t sizes[] = {numbers_in(n, q)};
    Py_buffer *views = PyMem_Calloc(q + 1, sizeof *views);
    Column *columns = PyMem_Calloc(q + 1, sizeof *columns);
    Py_ssize_t opened = 0;
    if (!views || !columns)
        PyErr_NoMemory();
    else if (acquire_arrays(&a, 1, "d", sizes, 1, 0)) {
        opened = open_columns(given, q, n, views, columns);
        if (opened == q) {
            int wrong;
            Py_BEGIN_ALLOW_THREADS
            wrong = transpose_columns(columns, q, n, a.at[0]);
            Py_END_ALLOW_THREADS
            found = PyBool_FromLong(!wrong);
        }
        release_arrays(&a);
    }
    for (Py_ssize_t j = 0; j < opened; j++)
        PyBuffer_Release(views + j);
    PyMem_Free(views);
    PyMem_Free(columns);
    return found;
}
