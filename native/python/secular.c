/* Singular value decomposition of a diagonal matrix with one additional column, from the roots of
 * its secular equation; onepass/linalg/secular.py has the equations.
 */
#include "buffers.h"

#include <math.h>
#include <stddef.h>

#include "machine.h"

/* LAPACK's dlasd4: computes d_j - s_i, d_j + s_i and the root s_i for an index i, which starts at
   1. */
typedef void Roots(int *n, int *i, double *d, double *z, double *below, double *rho, double *root,
                   double *above, int *info);

/* Row i of the gaps s_i^2 - d_j^2; the gap of the nearest pole is accurate to all digits. */
WITHIN void gaps_of(ptrdiff_t n, const double *d, const double *below, const double *above,
                    double *gaps)
{
    ptrdiff_t nearest = 0;
    for (ptrdiff_t j = 0; j < n; j++)
        gaps[j] = -below[j] * above[j];
    for (ptrdiff_t j = 1; j < n; j++)
        nearest = fabs(gaps[j]) < fabs(gaps[nearest]) ? j : nearest;
    const double pole = d[nearest], gap = gaps[nearest];
    for (ptrdiff_t j = 0; j < n; j++)
        gaps[j] = (pole - d[j]) * (pole + d[j]) + gap;
}

/* Compute left singular vectors as rows, and singular values, both in the order of d; `room` is
   work space of 3 n numbers. Returns 0 if LAPACK fails. */
EVERY_MACHINE static int decompose(Roots *dlasd4, ptrdiff_t n, double *d, const double *z,
                                   double *vectors, double *roots, double *room)
{
    double *unit = room, *below = room + n, *above = room + 2 * n, *agreed = room;
    double square = 0.0;
    for (ptrdiff_t j = 0; j < n; j++)
        square += z[j] * z[j];
    for (ptrdiff_t j = 0; j < n; j++)
        unit[j] = z[j] / sqrt(square);
    for (ptrdiff_t i = 0; i < n; i++) {
        int count = (int)n, at = (int)i + 1, info = 0;
        dlasd4(&count, &at, d, unit, below, &square, roots + i, above, &info);
        if (info)
            return 0;
        gaps_of(n, d, below, above, vectors + i * n);
    }
    for (ptrdiff_t j = 0; j < n; j++)
        agreed[j] = vectors[(n - 1) * n + j];
    for (ptrdiff_t i = 0; i < n - 1; i++) {
        const double *gaps = vectors + i * n;
        for (ptrdiff_t j = 0; j < n; j++) {
            const double pole = j <= i ? d[i + 1] : d[i];
            agreed[j] *= gaps[j] / ((pole - d[j]) * (pole + d[j]));
        }
    }
    for (ptrdiff_t j = 0; j < n; j++)
        agreed[j] = copysign(sqrt(fabs(agreed[j])), z[j]);
    for (ptrdiff_t i = 0; i < n; i++) {
        double *row = vectors + i * n, length = 0.0;
        for (ptrdiff_t j = 0; j < n; j++)
            row[j] = agreed[j] / row[j];
        for (ptrdiff_t j = 0; j < n; j++)
            length += row[j] * row[j];
        length = 1.0 / sqrt(length);
        for (ptrdiff_t j = 0; j < n; j++)
            row[j] *= length;
    }
    return 1;
}

PyObject *secular(PyObject *module, PyObject *args)
{
    Arrays a;
    PyObject *capsule;
    Py_ssize_t n;
    int found = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnOOOOO:secular", &capsule, &n, &a.given[0], &a.given[1],
                          &a.given[2], &a.given[3], &a.given[4]))
        return NULL;
    if (!PyCapsule_CheckExact(capsule) || n < 3 || n > 1 << 20)
        return PyErr_Format(PyExc_ValueError,
                            "secular: expected LAPACK's dlasd4 in a capsule, and at least 3 rows");
    union {
        void *plain;
        Roots *function;
    } dlasd4 = {.plain = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))};
    const Py_ssize_t sizes[] = {n, n, n * n, n, 3 * n};
    const int good = acquire_arrays(&a, 5, "ddddd", sizes, 1 << 2 | 1 << 3 | 1 << 4, 0);
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        found = decompose(dlasd4.function, n, a.at[0], a.at[1], a.at[2], a.at[3], a.at[4]);
        Py_END_ALLOW_THREADS
    }
    release_arrays(&a);
    return good ? PyBool_FromLong(found) : NULL;
}
