/* Python's buffers as doubles. */
#include "buffers.h"

#include <string.h>

void *numbers_of(PyObject *given, const char *type, Py_ssize_t count, int writable, Py_buffer *view)
{
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(given, view, flags) < 0)
        return NULL;
    const int good = view->format && strcmp(view->format, type) == 0;
    if (good && view->len == count * view->itemsize)
        return view->buf;
    PyErr_Format(PyExc_ValueError, "expected %zd numbers of type %s, got %zd bytes of %s", count,
                 type, view->len, view->format ? view->format : "B");
    PyBuffer_Release(view);
    return NULL;
}
