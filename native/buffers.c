/* Python's buffers as doubles. */
#include "buffers.h"

#include <string.h>
#include <time.h>
#ifdef _WIN32
#include <windows.h>
#endif

enum { WAITS = 100000 }; /* of 0.1 ms */

int wait_until_idle(const int *busy)
{
    for (int i = 0; *busy && i < WAITS; i++) {
        Py_BEGIN_ALLOW_THREADS
#ifdef _WIN32
        Sleep(1);
#else
        const struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
#endif
        Py_END_ALLOW_THREADS
    }
    if (*busy)
        PyErr_Format(PyExc_RuntimeError, "onepass: another thread is learning rows");
    return !*busy;
}

Py_ssize_t numbers_in(Py_ssize_t n, Py_ssize_t m)
{
    return n >= 0 && m >= 0 && (m == 0 || n <= PY_SSIZE_T_MAX / m) ? n * m : -1;
}

void *numbers_of(PyObject *given, const char *type, Py_ssize_t count, int writable, Py_buffer *view)
{
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(given, view, flags) < 0)
        return NULL;
    const int good = view->format && strcmp(view->format, type) == 0;
    if (good && count >= 0 && view->len == numbers_in(count, view->itemsize))
        return view->buf;
    PyErr_Format(PyExc_ValueError, "expected %zd numbers of type %s, got %zd bytes of %s", count,
                 type, view->len, view->format ? view->format : "B");
    PyBuffer_Release(view);
    return NULL;
}

int acquire_arrays(Arrays *arrays, int count, const char *types, const Py_ssize_t *sizes,
                   int written, int optional)
{
    for (arrays->acquired = 0; arrays->acquired < count; arrays->acquired++) {
        const int i = arrays->acquired;
        const char type[] = {types[i], 0};
        arrays->at[i] = NULL;
        if (arrays->given[i] == Py_None && optional >> i & 1)
            continue;
        const int writable = written >> i & 1;
        arrays->at[i] = numbers_of(arrays->given[i], type, sizes[i], writable, &arrays->view[i]);
        if (!arrays->at[i])
            return 0;
    }
    return 1;
}

void release_arrays(Arrays *arrays)
{
    for (int i = 0; i < arrays->acquired; i++)
        if (arrays->at[i])
            PyBuffer_Release(&arrays->view[i]);
}
