/* Python's buffers as doubles. */
#include "buffers.h"

#include <stdint.h>
#include <string.h>

Py_ssize_t numbers_in(Py_ssize_t n, Py_ssize_t m)
{
    return n >= 0 && m >= 0 && (m == 0 || n <= PY_SSIZE_T_MAX / m) ? n * m : -1;
}

char type_of(const Py_buffer *view)
{
    const char *format = view->format ? view->format : "B";
    format += format[0] == '@' || format[0] == '=' || format[0] == (PY_LITTLE_ENDIAN ? '<' : '>');
    return format[0] && format[1] ? 0 : format[0];
}

#define CONVERT(name, type)                                                                        \
    static void name(const char *from, Py_ssize_t stride, Py_ssize_t n, double *to)                \
    {                                                                                              \
        const Py_ssize_t size = sizeof(type);                                                      \
        type number;                                                                               \
        for (Py_ssize_t i = 0; stride == size && i < n; i++) { /* with vectors */                  \
            memcpy(&number, from + i * size, sizeof number);                                       \
            to[i] = (double)number;                                                                \
        }                                                                                          \
        for (Py_ssize_t i = 0; stride != size && i < n; i++) {                                     \
            memcpy(&number, from + i * stride, sizeof number);                                     \
            to[i] = (double)number;                                                                \
        }                                                                                          \
    }
CONVERT(from_double, double)
CONVERT(from_float, float)
CONVERT(from_int8, int8_t)
CONVERT(from_int16, int16_t)
CONVERT(from_int32, int32_t)
CONVERT(from_int64, int64_t)
CONVERT(from_uint8, uint8_t)
CONVERT(from_uint16, uint16_t)
CONVERT(from_uint32, uint32_t)
CONVERT(from_uint64, uint64_t)
#undef CONVERT

Convert *conversion_of(const Py_buffer *view)
{
    static Convert *const from_signed[] = {from_int8, from_int16, from_int32, from_int64};
    static Convert *const from_unsigned[] = {from_uint8, from_uint16, from_uint32, from_uint64};
    const Py_ssize_t size = view->itemsize;
    const int width = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;
    const char type = type_of(view);
    if (!type || width < 0)
        return NULL;
    if (strchr("fd", type))
        return size == sizeof(double) ? from_double : size == sizeof(float) ? from_float : NULL;
    return strchr("bhilq", type)    ? from_signed[width]
           : strchr("?BHILQ", type) ? from_unsigned[width]
                                    : NULL;
}

/* Whether numbers of the type that a buffer has can be read where they are. */
static int in_place(const Py_buffer *view)
{
    const int native = type_of(view) != 'l' || view->itemsize == sizeof(long); /* or "=l" */
    return native && (uintptr_t)view->buf % (uintptr_t)view->itemsize == 0;
}

void *numbers_of(PyObject *given, const char *type, Py_ssize_t count, int writable, Py_buffer *view)
{
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(given, view, flags) < 0)
        return NULL;
    const int good = type_of(view) == type[0] && in_place(view);
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
