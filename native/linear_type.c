/* The Python type Linear, documented in onepass/native.py. */
#include "buffers.h"

#include <structmember.h>

#include <math.h>
#include <string.h>

#include "calibration.h"
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
    double *predictions;  /* (c) */
    double *pace;         /* rate, limit, keep, damping of the next rows */
    Pace next;            /* pointers to the values of the next row in `pace` */
    Py_ssize_t remaining, seen, mistakes, statistics, nbytes;
    Calibration calibration;
} Object;

/* put(n, W, b, statistics, rate, limit, keep, damping): set the state and the steps of the next n
   rows. */
static PyObject *put(Object *self, PyObject *args)
{
    const ptrdiff_t d = self->model.d, c = self->model.c;
    PyObject *given[7];
    const double **at[] = {&self->next.rate, &self->next.limit, &self->next.keep,
                           &self->next.damping};
    double *const statistics = self->model.b + c;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "nOOOOOOO:put", &n, &given[0], &given[1], &given[2], &given[3],
                          &given[4], &given[5], &given[6]))
        return NULL;
    if (n < 0 || n > MAX_SIZE || self->pace)
        return PyErr_Format(PyExc_ValueError,
                            "Linear.put: expected to be called once, with 0 <= n <= 2**24");
    self->pace = PyMem_Calloc(4 * n + 1, sizeof(double));
    if (!self->pace)
        return PyErr_NoMemory();
    for (int i = 0; i < 7; i++) {
        Py_buffer view;
        const Py_ssize_t sizes[] = {c * d, c, c * STATISTICS}, size = i < 3 ? sizes[i] : n;
        double *const states[] = {self->model.W, self->model.b, statistics};
        double *to = i < 3 ? states[i] : self->pace + (i - 3) * n;
        if (i > 1 && i != 3 && given[i] == Py_None)
            continue;
        const double *from = numbers_of(given[i], "d", size, 0, &view);
        if (!from)
            return NULL;
        memcpy(to, from, size * sizeof *to);
        PyBuffer_Release(&view);
        if (i == 2)
            self->model.statistics = to, self->statistics = STATISTICS;
        else if (i > 2)
            *at[i - 3] = to;
    }
    self->remaining = n;
    Py_RETURN_NONE;
}

/* get(W, b, statistics): write the weights (c, d), the offset (c), and the statistics (c, 5) of
   adaptive steps, which may be None. */
static PyObject *get(Object *self, PyObject *args)
{
    const Py_ssize_t d = self->model.d, c = self->model.c, sizes[] = {c * d, c, c * STATISTICS};
    Arrays a;
    if (!PyArg_ParseTuple(args, "OOO:get", &a.given[0], &a.given[1], &a.given[2]))
        return NULL;
    const int good = acquire_arrays(&a, 3, "ddd", sizes, 7, 4);
    if (good) {
        memcpy(a.at[0], self->model.W, c * d * sizeof(double));
        memcpy(a.at[1], self->model.b, c * sizeof(double));
        if (a.at[2])
            memcpy(a.at[2], self->model.b + c, c * sizeof(Statistics));
    }
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}

/* Read a target; 0 if Python must handle it. */
static int read_target(Object *self, PyObject *given)
{
    const ptrdiff_t c = self->model.c;
    if (self->reading.labels == Py_None)
        return read_targets(&self->reading, given, self->target);
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

/* Update the calibration with the scores of the current row; two classes share one score. */
static void fit_temperature(Object *self)
{
    const double *z = self->predictions, *target = self->target;
    const double two[] = {-0.5 * z[0], 0.5 * z[0]};
    ptrdiff_t y = self->loss ? 0 : (ptrdiff_t)target[0];
    for (ptrdiff_t k = 1; self->loss && k < self->model.c; k++)
        y = target[k] > 0.0 ? k : y;
    if (self->model.c == 1)
        calibrate(&self->calibration, 2, two, target[0] > 0.0);
    else
        calibrate(&self->calibration, self->model.c, z, y);
}

/* learn_one(x, y, weight): return whether the row was learned; if not, the state is unchanged. */
static PyObject *learn_one(Object *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "Linear.learn_one: expected x, y and weight");
    if (read_number(&self->reading, args[2]) != 1.0 ||
        !read_row(&self->reading, args[0], self->row) ||
        !read_target(self, args[1]))
        Py_RETURN_FALSE;
    if (!self->remaining)
        Py_RETURN_FALSE;
    Pace *next = &self->next;
    const unsigned mode = flush_subnormals();
    Py_ssize_t learned = 1;
    if (!self->loss)
        self->mistakes += correct(&self->model, 1, self->row, self->target, next->rate, NULL,
                                  self->predictions);
    else
        learned = descend(&self->model, self->loss, self->parameter, 1, self->row, self->target,
                          next, FAR, self->predictions);
    restore_mode(mode);
    if (!learned)
        Py_RETURN_FALSE;
    next->rate++;
    next->limit += next->limit != NULL;
    next->keep += next->keep != NULL;
    next->damping += next->damping != NULL;
    self->remaining--;
    self->seen++;
    if (calibration_due(&self->calibration))
        fit_temperature(self);
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
        return number_object(&self->reading, self->predictions);
    if (c == 1)
        return label_object(&self->reading, self->predictions[0] >= 0.0);
    for (ptrdiff_t k = 1; k < c; k++)
        best = self->predictions[k] >= self->predictions[best] ? k : best;
    return label_object(&self->reading, best);
}

/* A new object with storage; NULL with an error on failure. */
static Object *create(PyTypeObject *type, Py_ssize_t d, Py_ssize_t c)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Object *self = (Object *)alloc(type, 0);
    if (!self)
        return NULL;
    double *at = self->numbers = PyMem_Calloc(c * d + d + (3 + STATISTICS) * c, sizeof(double));
    if (!at) {
        Py_DECREF(self);
        return (Object *)PyErr_NoMemory();
    }
    self->model = (Linear){.d = d, .c = c, .W = at, .b = at + c * d};
    self->nbytes = (c * d + c) * (Py_ssize_t)sizeof(double);
    self->row = self->model.b + (1 + STATISTICS) * c;
    self->target = self->row + d;
    self->predictions = self->target + c;
    return self;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *format;
    Py_ssize_t d, c;
    double unit, parameter;
    int loss;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "nndidO:Linear", &d, &c, &unit, &loss, &parameter, &format))
        return NULL;
    if (d < 1 || d > MAX_SIZE || c < 1 || c > MAX_SIZE)
        return PyErr_Format(PyExc_ValueError, "Linear: sizes must be >= 1");
    Object *self = create(type, d, c);
    if (!self)
        return NULL;
    PyObject *labels = PyTuple_Check(format) && PyTuple_Size(format) == 6
                           ? PyTuple_GetItem(format, 4)
                           : Py_None; /* two labels may share one output */
    const int shared = c == 1 && loss && PyTuple_Check(labels) && PyTuple_Size(labels) == 2;
    if (!reading_open(&self->reading, d, shared ? 2 : c, format)) {
        Py_DECREF(self);
        return NULL;
    }
    self->model.unit = unit;
    self->loss = loss;
    self->parameter = parameter;
    return (PyObject *)self;
}

static PyObject *copy(Object *self, PyObject *unused)
{
    const ptrdiff_t d = self->model.d, c = self->model.c;
    const Py_ssize_t n = self->remaining;
    const double *from[] = {self->next.rate, self->next.limit, self->next.keep,
                            self->next.damping};
    (void)unused;
    Object *twin = create(Py_TYPE((PyObject *)self), d, c);
    if (!twin)
        return NULL;
    const double **to[] = {&twin->next.rate, &twin->next.limit, &twin->next.keep,
                           &twin->next.damping};
    memcpy(twin->numbers, self->numbers, (c * d + (1 + STATISTICS) * c) * sizeof(double));
    twin->model.statistics = self->model.statistics ? twin->model.b + c : NULL;
    twin->pace = PyMem_Calloc(4 * n + 1, sizeof(double));
    if (!twin->pace) {
        Py_DECREF(twin);
        return PyErr_NoMemory();
    }
    for (int i = 0; i < 4; i++)
        if (from[i])
            *to[i] = memcpy(twin->pace + i * n, from[i], n * sizeof(double));
    reading_copy(&twin->reading, &self->reading);
    twin->model.unit = self->model.unit;
    twin->loss = self->loss;
    twin->parameter = self->parameter;
    twin->statistics = self->statistics;
    twin->remaining = n;
    twin->seen = self->seen;
    twin->calibration = self->calibration;
    twin->mistakes = self->mistakes;
    return (PyObject *)twin;
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
     "put(n, W, b, statistics, rate, limit, keep, damping): set the state; call once."},
    {"snapshot", (PyCFunction)copy, METH_NOARGS, "snapshot(): return an independent copy."},
    {"copy", (PyCFunction)copy, METH_NOARGS, "copy(): return an independent copy."},
    {"__deepcopy__", (PyCFunction)copy, METH_O, "Return an independent copy."},
    {"get", (PyCFunction)get, METH_VARARGS, "get(W, b, statistics): write the state."},
    {"learn_one", (PyCFunction)(void (*)(void))learn_one, METH_FASTCALL,
     "learn_one(x, y, weight): return whether the row was learned."},
    {"predict_one", (PyCFunction)predict_one, METH_O,
     "predict_one(x): return the prediction, or None."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"d", T_PYSSIZET, offsetof(Object, model.d), READONLY, "Number of features."},
    {"c", T_PYSSIZET, offsetof(Object, model.c), READONLY, "Number of outputs."},
    {"seen", T_PYSSIZET, offsetof(Object, seen), READONLY, "Rows learned."},
    {"statistics", T_PYSSIZET, offsetof(Object, statistics), READONLY, "Statistics per output."},
    {"nbytes", T_PYSSIZET, offsetof(Object, nbytes), READONLY, "Bytes of the weights."},
    {"mistakes", T_PYSSIZET, offsetof(Object, mistakes), READONLY, "Rows predicted incorrectly."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef computed[] = {
    {"calibration", calibration_get, calibration_set, "(row, theta, H, N, L), or None.",
     (void *)offsetof(Object, calibration)},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {{Py_tp_new, make},
                              {Py_tp_dealloc, drop},
                              {Py_tp_methods, methods},
                              {Py_tp_members, members},
                              {Py_tp_getset, computed},
                              {0, NULL}};

PyType_Spec linear_spec = {"onepass._compiled.Linear", sizeof(Object), 0, Py_TPFLAGS_DEFAULT,
                           slots};
