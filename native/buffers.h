/* Python's buffers as doubles. */
#ifndef ONEPASS_BUFFERS_H
#define ONEPASS_BUFFERS_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The numbers of an object that has so many, one after the other, of a type ("d" or "?");
   NULL with an error if not. */
void *numbers_of(PyObject *given, const char *type, Py_ssize_t count, int writable, Py_buffer *view);

/* Types, to be added to a module. */
extern PyType_Spec rows_spec, linear_spec;

#endif
