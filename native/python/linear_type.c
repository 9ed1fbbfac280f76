/* The Python type Linear, documented in onepass/native.py. */
#include "buffers.h"

#include <structmember.h>

#include <math.h>
#include <string.h>

#include "calibration.h"
#include "descent.h"
#include "machine.h"
#include "reading.h"

enum { MAX_SIZE = 1 << 24 };     /* maximum number of features, and of outputs */
static const double FAR = 1e100; /* rows with larger updates are learned in Python */

/* The steps of single rows, as in onepass/learners/step_size.py: that of row t has the rate
   rate (1 + decay t)^-power, and multiplies the weights by 1 - l2 rate. */
typedef struct {
    double rate, decay, power, l2;
    double limit, damping; /* infinite and negative if there is none */
    Py_ssize_t t;
} Rule;

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
    Rule rule;
    Py_ssize_t seen, mistakes, statistics, nbytes;
    Calibration calibration;
} Object;

/* put(W, b, statistics): set the state. */
static PyObject *put(Object *self, PyObject *args)
{
    const Py_ssize_t d = self->model.d, c = self->model.c, sizes[] = {c * d, c, c * STATISTICS};
    Arrays a;
    if (!PyArg_ParseTuple(args, "OOO:put", &a.given[0], &a.given[1], &a.given[2]))
        return NULL;
    const int good = acquire_arrays(&a, 3, "ddd", sizes, 0, 4);
    if (good) {
        memcpy(self->model.W, a.at[0], c * d * sizeof(double));
        memcpy(self->model.b, a.at[1], c * sizeof(double));
        self->statistics = a.at[2] ? STATISTICS : 0;
        self->model.statistics = a.at[2] ? self->model.b + c : NULL;
        if (a.at[2])
            memcpy(self->model.statistics, a.at[2], c * sizeof(Statistics));
    }
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
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
static void fit_probabilities(Object *self)
{
    const double *z = self->predictions, *target = self->target;
    const double two[] = {-0.5 * z[0], 0.5 * z[0]};
    ptrdiff_t y = self->loss ? 0 : (ptrdiff_t)target[0];
    for (ptrdiff_t k = 1; self->loss && k < self->model.c; k++)
        y = target[k] > 0.0 ? k : y;
    if (self->model.c == 1)
        calibrate(&self->calibration, 2, two, target[0] > 0.0, 1.0);
    else
        calibrate(&self->calibration, self->model.c, z, y, 1.0);
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
    Rule *rule = &self->rule;
    const double rate = rule->rate * pow(1.0 + rule->decay * (double)rule->t, -rule->power);
    const double keep = 1.0 - rate * rule->l2;
    const Pace pace = {&rate, rule->limit < INFINITY ? &rule->limit : NULL, &keep,
                       rule->damping >= 0.0 ? &rule->damping : NULL};
    const unsigned mode = flush_subnormals();
    Py_ssize_t learned = 1;
    if (!self->loss)
        self->mistakes += correct(&self->model, 1, self->row, self->target, &rate, NULL,
                                  self->predictions);
    else
        learned = descend(&self->model, self->loss, self->parameter, 1, self->row, self->target,
                          &pace, FAR, self->predictions);
    restore_mode(mode);
    if (!learned)
        Py_RETURN_FALSE;
    rule->t++;
    self->seen++;
    if (calibration_due(&self->calibration))
        fit_probabilities(self);
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

/* predict_proba_one(x): the probabilities by label; None if Python must handle the row. */
static PyObject *predict_proba_one(Object *self, PyObject *x)
{
    double *z = self->predictions;
    if (!read_row(&self->reading, x, self->row))
        Py_RETURN_NONE;
    score(&self->model, self->row, z);
    const double two[] = {-0.5 * z[0], 0.5 * z[0]}; /* two classes share one score */
    for (ptrdiff_t k = 0; self->loss == LOGISTIC && k < self->model.c; k++)
        z[k] = fmin(z[k], 0.0) - log1p(exp(-fabs(z[k]))); /* one-vs-rest */
    return probabilities_object(&self->reading, self->model.c == 1 ? two : z,
                                calibration_of(&self->calibration, self->reading.c));
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
    Rule rule;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "nndid(ddddddn)O:Linear", &d, &c, &unit, &loss, &parameter,
                          &rule.rate, &rule.decay, &rule.power, &rule.l2, &rule.limit,
                          &rule.damping, &rule.t, &format))
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
    self->rule = rule;
    return (PyObject *)self;
}

static PyObject *copy(Object *self, PyObject *unused)
{
    const ptrdiff_t d = self->model.d, c = self->model.c;
    (void)unused;
    Object *twin = create(Py_TYPE((PyObject *)self), d, c);
    if (!twin)
        return NULL;
    memcpy(twin->numbers, self->numbers, (c * d + (1 + STATISTICS) * c) * sizeof(double));
    twin->model.statistics = self->model.statistics ? twin->model.b + c : NULL;
    reading_copy(&twin->reading, &self->reading);
    twin->model.unit = self->model.unit;
    twin->loss = self->loss;
    twin->parameter = self->parameter;
    twin->statistics = self->statistics;
    twin->rule = self->rule;
    twin->seen = self->seen;
    twin->mistakes = self->mistakes;
    if (calibration_copy(&twin->calibration, &self->calibration))
        return (PyObject *)twin;
    Py_DECREF(twin);
    return NULL;
}

static void drop(Object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyMem_Free(self->numbers);
    PyMem_Free(self->calibration.state);
    reading_close(&self->reading);
    freefunc free_ = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"put", (PyCFunction)put, METH_VARARGS,
     "put(W, b, statistics): set the state."},
    {"copy", (PyCFunction)copy, METH_NOARGS, "copy(): return an independent copy."},
    {"__deepcopy__", (PyCFunction)copy, METH_O, "Return an independent copy."},
    {"get", (PyCFunction)get, METH_VARARGS, "get(W, b, statistics): write the state."},
    {"learn_one", (PyCFunction)(void (*)(void))learn_one, METH_FASTCALL,
     "learn_one(x, y, weight): return whether the row was learned."},
    {"predict_one", (PyCFunction)predict_one, METH_O,
     "predict_one(x): return the prediction, or None."},
    {"predict_proba_one", (PyCFunction)predict_proba_one, METH_O,
     "predict_proba_one(x): return the probabilities by label, or None."},
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
    {"calibration", calibration_get, calibration_set, "(row, state), or None; set as (row, size, state).",
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
