/* The Python type Linear, documented in onepass/native.py. */
#include "buffers.h"

#include <math.h>
#include <string.h>

#include "descent.h"
#include "machine.h"
#include "reading.h"

enum { MAX_SIZE = 1 << 24 };          /* maximum number of features, and of outputs */
static const double FAR = 1e100;  /* rows with larger updates are learned in Python */

typedef struct {
    PyObject_HEAD
    Linear model;
    Reading reading;
    int loss; /* 0 for the perceptron */
    double parameter;
    double *numbers;      /* storage of the arrays below */
    double *row;          /* the current row (d) */
    double *target;       /* the targets of the current row (c) */
    double *predictions, *steps; /* predictions and steps (c each) */
    double *pace;         /* rate, limit, keep, damping of the next rows */
    Pace next;            /* pointers to the values of the next row in `pace` */
    Py_ssize_t remaining, seen, mistakes;
    int released;         /* whether learn_one is disabled */
} Object;

/* put(n, W, b, rate, limit, keep, damping): set the state and the steps of the next n rows. */
static PyObject *put(Object *self, PyObject *args)
{
    const ptrdiff_t d = self->model.d, c = self->model.c;
    PyObject *given[6];
    const double **at[] = {&self->next.rate, &self->next.limit, &self->next.keep,
                           &self->next.damping};
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "nOOOOOO:put", &n, &given[0], &given[1], &given[2], &given[3],
                          &given[4], &given[5]))
        return NULL;
    if (n < 0 || n > MAX_SIZE || self->pace)
        return PyErr_Format(PyExc_ValueError,
                            "Linear.put: expected to be called once, with 0 <= n <= 2**24");
    self->pace = PyMem_Calloc(4 * n + 1, sizeof(double));
    if (!self->pace)
        return PyErr_NoMemory();
    for (int i = 0; i < 6; i++) {
        Py_buffer view;
        const Py_ssize_t size = i == 0 ? c * d : i == 1 ? c : n;
        double *to = i == 0 ? self->model.W : i == 1 ? self->model.b : self->pace + (i - 2) * n;
        if (i > 2 && given[i] == Py_None)
            continue;
        const double *from = numbers_of(given[i], "d", size, 0, &view);
        if (!from)
            return NULL;
        memcpy(to, from, size * sizeof *to);
        PyBuffer_Release(&view);
        if (i >= 2)
            *at[i - 2] = to;
    }
    self->remaining = n;
    Py_RETURN_NONE;
}

/* get(): return copies of W and b as bytes, and the numbers of rows learned and of mistakes. */
static PyObject *get(Object *self, PyObject *none)
{
    const Py_ssize_t d = self->model.d, c = self->model.c;
    (void)none;
    return Py_BuildValue("(y#y#nn)", (const char *)self->model.W,
                         c * d * (Py_ssize_t)sizeof(double), (const char *)self->model.b,
                         c * (Py_ssize_t)sizeof(double), self->seen, self->mistakes);
}

/* Read a target; 0 if Python must handle it. */
static int read_target(Object *self, PyObject *given)
{
    const ptrdiff_t c = self->model.c;
    if (self->reading.labels == Py_None) {
        self->target[0] = read_number(given);
        return !isnan(self->target[0]);
    }
    const Py_ssize_t place = read_label(&self->reading, given);
    if (place < 0)
        return 0;
    if (!self->loss)
        self->target[0] = (double)place;
    else if (c == 1)
        self->target[0] = place ? 1.0 : -1.0;
    else
        for (ptrdiff_t k = 0; k < c; k++)
            self->target[k] = k == place ? 1.0 : -1.0;
    return 1;
}

/* learn_one(x, y, weight): return whether the row was learned; if not, the state is unchanged. */
static PyObject *learn_one(Object *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "Linear.learn_one: expected x, y and weight");
    if (read_number(args[2]) != 1.0 || !read_row(&self->reading, args[0], self->row) ||
        !read_target(self, args[1]))
        Py_RETURN_FALSE;
    if (self->released || !self->remaining) /* code run to read the row may have called release */
        Py_RETURN_FALSE;
    Pace *next = &self->next;
    const unsigned mode = flush_subnormals();
    Py_ssize_t learned = 1;
    if (!self->loss)
        self->mistakes += correct(&self->model, 1, self->row, self->target, next->rate, NULL,
                                  self->predictions);
    else
        learned = descend(&self->model, self->loss, self->parameter, 1, self->row, self->target,
                          next, FAR, self->predictions, self->steps);
    restore_mode(mode);
    if (!learned)
        Py_RETURN_FALSE;
    next->rate++;
    next->limit += next->limit != NULL;
    next->keep += next->keep != NULL;
    next->damping += next->damping != NULL;
    self->remaining--;
    self->seen++;
    Py_RETURN_TRUE;
}

/* predict_one(x): the prediction; None if Python must handle the row. */
static PyObject *predict_one(Object *self, PyObject *x)
{
    const ptrdiff_t c = self->model.c;
    ptrdiff_t best = 0;
    if (!read_row(&self->reading, x, self->row))
        Py_RETURN_NONE;
    score(&self->model, self->row, self->predictions);
    if (self->reading.labels == Py_None)
        return number_object(&self->reading, self->predictions[0]);
    if (c == 1)
        return label_object(&self->reading, self->predictions[0] >= 0.0);
    for (ptrdiff_t k = 1; k < c; k++)
        best = self->predictions[k] >= self->predictions[best] ? k : best;
    return label_object(&self->reading, best);
}

static PyObject *release(Object *self, PyObject *none)
{
    (void)none;
    self->released = 1;
    Py_RETURN_NONE;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *parts[5];
    Py_ssize_t d, c;
    double unit, parameter;
    int loss;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "nndidOOOOO:Linear", &d, &c, &unit, &loss, &parameter, &parts[0],
                          &parts[1], &parts[2], &parts[3], &parts[4]))
        return NULL;
    if (d < 1 || d > MAX_SIZE || c < 1 || c > MAX_SIZE)
        return PyErr_Format(PyExc_ValueError, "Linear: sizes must be >= 1");
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Object *self = (Object *)alloc(type, 0);
    if (!self)
        return NULL;
    if (!reading_open(&self->reading, d, parts)) {
        Py_DECREF(self);
        return PyErr_Format(PyExc_ValueError,
                            "Linear: expected one name per feature, and labels with their places");
    }
    const Py_ssize_t labels = parts[3] == Py_None ? 1 : PyTuple_Size(parts[3]);
    if (labels != c && !(labels == 2 && c == 1 && loss)) {
        Py_DECREF(self);
        return PyErr_Format(PyExc_ValueError,
                            "Linear: expected one output per label, or one output for two labels");
    }
    double *at = self->numbers = PyMem_Calloc(c * d + d + 4 * c, sizeof(double));
    if (!at) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->model = (Linear){.d = d, .c = c, .W = at, .b = at + c * d, .unit = unit};
    self->row = self->model.b + c;
    self->target = self->row + d;
    self->predictions = self->target + c;
    self->steps = self->predictions + c;
    self->loss = loss;
    self->parameter = parameter;
    return (PyObject *)self;
}

static void drop(Object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyMem_Free(self->numbers);
    PyMem_Free(self->pace);
    reading_close(&self->reading);
    freefunc free_ = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"put", (PyCFunction)put, METH_VARARGS,
     "put(n, W, b, rate, limit, keep, damping): set the state; call once."},
    {"get", (PyCFunction)get, METH_NOARGS,
     "get(): return W and b as bytes, rows learned, mistakes."},
    {"learn_one", (PyCFunction)(void (*)(void))learn_one, METH_FASTCALL,
     "learn_one(x, y, weight): return whether the row was learned."},
    {"release", (PyCFunction)release, METH_NOARGS, "release(): disable learn_one."},
    {"predict_one", (PyCFunction)predict_one, METH_O,
     "predict_one(x): return the prediction, or None."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, make}, {Py_tp_dealloc, drop}, {Py_tp_methods, methods}, {0, NULL}};

PyType_Spec linear_spec = {"onepass._compiled.Linear", sizeof(Object), 0, Py_TPFLAGS_DEFAULT,
                           slots};
