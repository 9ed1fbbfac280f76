/* Python's buffers as doubles. */
#include "buffers.h"

#include <string.h>
#include <time.h>
#ifdef _WIN32
#include <windows.h>
#else
#include <unistd.h>
#endif

static long process(void)
{
#ifdef _WIN32
    return 0;
#else
    return (long)getpid();
#endif
}

/* Release the GIL for 0.1 ms. */
static void pause_thread(void)
{
    Py_BEGIN_ALLOW_THREADS
#ifdef _WIN32
    Sleep(1);
#else
    const struct timespec pause = {0, 100000};
    nanosleep(&pause, NULL);
#endif
    Py_END_ALLOW_THREADS
}

int wait_until_idle(Turn *turn)
{
    int good = 1;
    if (!turn->busy)
        return 1;
    turn->waiting++;
    while (turn->busy && good) {
        if (turn->process && turn->process != process()) {
            PyErr_Format(PyExc_RuntimeError,
                         "onepass: this process was forked while another thread learned rows. Load "
                         "or create the learner again.");
            good = 0;
        } else {
            pause_thread();
            good = PyErr_CheckSignals() == 0;
        }
    }
    turn->waiting--;
    return good;
}

PyThreadState *begin(Turn *turn, int release)
{
    turn->busy = 1;
    if (!release)
        return NULL;
    turn->process = process();
    return PyEval_SaveThread();
}

void finish(Turn *turn, PyThreadState *state)
{
    if (state)
        PyEval_RestoreThread(state);
    turn->busy = 0;
    for (int i = 0; state && turn->waiting && i < 5; i++) /* or they might never see it idle */
        pause_thread();
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
