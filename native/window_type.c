/* The Python type Window, documented in onepass/native.py. */
#include "buffers.h"

#include <structmember.h>

#include <math.h>
#include <string.h>

#include "calibration.h"
#include "machine.h"
#include "reading.h"
#include "window.h"

enum { MAX_SIZE = 1 << 13 };     /* maximum number of features, and of outputs */
enum { LONG = 1 << 20 };         /* minimum number of multiplications that release the GIL */
enum { SCALARS = 4 };            /* numbers of the state besides arrays */
enum { FEW_ROWS = 1 << 12 };     /* maximum number of rows that are learned atomically */

typedef struct {
    PyObject_HEAD
    Window window;
    Reading reading;
    PyObject *constants; /* parts of the state in Python, which rows do not change */
    Py_ssize_t seen;     /* rows learned by learn_one and learn_few */
    double *start;       /* w0 (d, c) */
    int started;         /* whether w0 is not zero */
    double *weights;     /* work space (d, c) */
    double *row;         /* the current row (d), and its targets (c) */
    double *predictions; /* predictions (c) */
    Calibration calibration;
    Turn turn;
} Object;

static int idle(Object *self)
{
    return wait_until_idle(&self->turn);
}

/* The number of numbers of the state besides rows and penalty. */
static Py_ssize_t state_size(const Window *window)
{
    const ptrdiff_t p = window_columns(window), c = window->c;
    return p * (p + c) + (p + c) + 2 * (p + 2 * c + 1) + SCALARS;
}

/* Copy the state to numbers, or set it; [U theta] contains D on its diagonal. */
static void transfer(Window *window, double *numbers, int out)
{
    Rows *rows = &window->rows;
    const ptrdiff_t p = window_columns(window), c = window->c, m = p + c, wide = rows->wide;
    const double clock = window_clock(window);
    double *D = rows->diagonal[rows->now], *at = numbers;
    for (ptrdiff_t j = 0; j < p; j++, at += m) {
        double *row = rows_at(rows, j);
        if (out) {
            memset(at, 0, j * sizeof *at);
            memcpy(at + j, row + j, (m - j) * sizeof *at);
            at[j] = D[j];
        } else {
            memcpy(row + j, at + j, (m - j) * sizeof *at);
            row[j] = 1.0;
            D[j] = at[j];
        }
    }
    double *sums = window->sums[rows->now], *peak = window->peak;
    double *parts[] = {window->center, sums, sums + wide, peak, peak + wide};
    const ptrdiff_t sizes[] = {m, m, c + 1, m, c + 1};
    for (int i = 0; i < 5; i++, at += sizes[i - 1])
        if (out)
            memcpy(at, parts[i], sizes[i] * sizeof *at);
        else
            memcpy(parts[i], at, sizes[i] * sizeof *at);
    if (out) {
        at[0] = window->zero - clock;
        at[1] = window->renewed - clock;
        at[2] = (double)window->since;
        at[3] = window->built;
        return;
    }
    window->zero = clock + at[0];
    window->renewed = clock + at[1];
    window->since = at[2] > 0.0 && at[2] < 1e15 ? (ptrdiff_t)at[2] : 0;
    window->built = at[3] == 1.0 && window->end > window->begin;
    rows->fresh = 0;
}

/* put(name, doubles): set the penalty, w0, or the rest of the state after the rows were loaded. */
static PyObject *put(Object *self, PyObject *args)
{
    Window *window = &self->window;
    const ptrdiff_t d = window->d, c = window->c, p = window_columns(window);
    PyObject *name, *given;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "UO:put", &name, &given) || !idle(self))
        return NULL;
    const int penalty = PyUnicode_CompareWithASCIIString(name, "penalty") == 0;
    const int start = PyUnicode_CompareWithASCIIString(name, "start") == 0;
    if (!penalty && !start && PyUnicode_CompareWithASCIIString(name, "state") != 0)
        return PyErr_Format(PyExc_KeyError, "Window: unknown part %R of the state", name);
    const Py_ssize_t size = penalty ? p * (p + c) : start ? d * c : state_size(window);
    double *from = numbers_of(given, "d", size, 0, &view);
    if (!from)
        return NULL;
    if (penalty)
        window_penalise(window, from);
    else if (start) {
        memcpy(self->start, from, size * sizeof *from);
        self->started = 0;
        for (Py_ssize_t i = 0; i < size; i++)
            self->started |= from[i] != 0.0;
    } else
        transfer(window, from, 0);
    PyBuffer_Release(&view);
    return Py_NewRef(Py_None);
}

/* [R z] (p, p + c) at the clock of the last row. */
static void triangle_into(const Window *window, double *to)
{
    const Rows *rows = &window->rows;
    const ptrdiff_t p = window_columns(window), m = p + window->c;
    const double scale = exp2(window->zero - window_clock(window));
    memset(to, 0, p * m * sizeof *to);
    for (ptrdiff_t j = 0; j < p; j++) {
        const double D = rows->diagonal[rows->now][j];
        const double root = window->sums[rows->now][j] == 0.0 ? 0.0 : sqrt(D * scale);
        to[j * m + j] = root;
        for (ptrdiff_t l = j + 1; l < m; l++)
            to[j * m + l] = root * rows_at(rows, j)[l];
    }
}

static PyObject *get(Object *self, PyObject *name)
{
    Window *window = &self->window;
    const ptrdiff_t d = window->d, c = window->c, p = window_columns(window);
    const ptrdiff_t n = window->end - window->begin;
    const struct {
        const char *name;
        ptrdiff_t size, from; /* numbers; the column of the stored rows, or -1 */
    } table[] = {
        {"state", state_size(window), -1}, {"triangle", p * (p + c), -1}, {"center", p + c, -1},
        {"w", p * c, -1},                  {"squares", c, -1},            {"X", n * d, p - d},
        {"Y", n * c, p},                   {"weights", n, p + c},         {"clock", n, p + c + 1},
    };
    if (!PyUnicode_Check(name))
        return PyErr_Format(PyExc_TypeError, "Window.get: expected the name of a part");
    size_t i = 0;
    while (i < sizeof table / sizeof *table &&
           PyUnicode_CompareWithASCIIString(name, table[i].name) != 0)
        i++;
    if (i == sizeof table / sizeof *table)
        return PyErr_Format(PyExc_KeyError, "Window: unknown part %R of the state", name);
    if (!idle(self))
        return NULL;
    double *numbers = PyMem_Calloc(table[i].size + 1, sizeof *numbers);
    if (!numbers)
        return PyErr_NoMemory();
    const ptrdiff_t wide = n ? table[i].size / n : 0;
    if (table[i].from >= 0)
        for (ptrdiff_t r = 0; r < n; r++)
            memcpy(numbers + r * wide, window_row(window, window->begin + r) + table[i].from,
                   wide * sizeof *numbers);
    else if (i == 0)
        transfer(window, numbers, 1);
    else if (i == 1)
        triangle_into(window, numbers);
    else if (i == 2)
        memcpy(numbers, window->center, table[i].size * sizeof *numbers);
    else if (i == 3) {
        rows_solve(&window->rows);
        memcpy(numbers, window->rows.w, table[i].size * sizeof *numbers);
    } else
        for (ptrdiff_t k = 0; k < c; k++) {
            const double sum = window->sums[window->rows.now][window->rows.wide + k];
            numbers[k] = sum > 0.0 ? sum * exp2(window->zero - window_clock(window)) : 0.0;
        }
    PyObject *found =
        PyBytes_FromStringAndSize((const char *)numbers, table[i].size * sizeof *numbers);
    PyMem_Free(numbers);
    return found;
}

/* Arrays of rows: X, Y, weights, clock, leaving and errors; the last four may be None. */
static int open_rows(const Window *window, Arrays *a, Py_ssize_t n, int count)
{
    const Py_ssize_t targets = numbers_in(n, window->c);
    const Py_ssize_t sizes[] = {numbers_in(n, window->d), targets, n, n, n, targets};
    return acquire_arrays(a, count, "dddddd", sizes, 1 << 5, 1 << 2 | 1 << 3 | 1 << 4);
}

/* load(n, X, Y, weights, clock): add rows without learning them. */
static PyObject *load(Object *self, PyObject *args)
{
    Arrays a;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "nOOOO:load", &n, &a.given[0], &a.given[1], &a.given[2],
                          &a.given[3]) ||
        !idle(self))
        return NULL;
    int good = open_rows(&self->window, &a, n, 4);
    if (good && !window_append(&self->window, n, a.at[0], a.at[1], a.at[2], a.at[3])) {
        good = 0;
        PyErr_NoMemory();
    }
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}

/* Learn rows; returns the number of rows learned, or -1 with an error. */
static ptrdiff_t learn_rows(Object *self, ptrdiff_t n, const double *X, const double *Y,
                            const double *weights, const double *clock, const double *leaving,
                            double *errors)
{
    Window *window = &self->window;
    const ptrdiff_t d = window->d, c = window->c, p = window_columns(window);
    const ptrdiff_t all = n + window->end - window->begin;
    double *relative = NULL; /* targets relative to the predictions of w0 */
    if (self->started) {
        relative = PyMem_Malloc(n * c * sizeof *relative + 1);
        if (!relative)
            return PyErr_NoMemory(), -1;
        for (ptrdiff_t i = 0; i < n; i++)
            for (ptrdiff_t k = 0; k < c; k++) {
                relative[i * c + k] = Y[i * c + k];
                for (ptrdiff_t j = 0; j < d; j++)
                    relative[i * c + k] -= X[i * d + j] * self->start[j * c + k];
            }
        Y = relative;
    }
    PyThreadState *state = begin(&self->turn, all * p * p >= LONG);
    const unsigned mode = flush_subnormals();
    const ptrdiff_t learned = window_learn(window, n, X, Y, weights, clock, leaving, errors);
    restore_mode(mode);
    finish(&self->turn, state);
    PyMem_Free(relative);
    if (learned < 0)
        PyErr_NoMemory();
    return learned;
}

/* learn(n, X, Y, weights, errors, clock=None, leaving=None): return the rows learned. */
static PyObject *learn(Object *self, PyObject *args)
{
    Arrays a;
    Py_ssize_t n, learned = -1;
    a.given[3] = a.given[4] = Py_None;
    if (!PyArg_ParseTuple(args, "nOOOO|OO:learn", &n, &a.given[0], &a.given[1], &a.given[2],
                          &a.given[5], &a.given[3], &a.given[4]))
        return NULL;
    if (open_rows(&self->window, &a, n, 6) && idle(self))
        learned = learn_rows(self, n, a.at[0], a.at[1], a.at[2], a.at[3], a.at[4], a.at[5]);
    release_arrays(&a);
    return learned < 0 ? NULL : PyLong_FromSsize_t(learned);
}

/* learn_one(x, y, weight): return whether the row was learned; if not, the state is unchanged. */
static PyObject *learn_one(Object *self, PyObject *const *args, Py_ssize_t count)
{
    double *targets = self->row + self->window.d, weight;
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "Window.learn_one: expected x, y and weight");
    if (!idle(self))
        return NULL;
    if (!self->window.limit || !read_example(&self->reading, args, self->row, targets, &weight))
        Py_RETURN_FALSE;
    if (self->turn.busy) /* code run to read the row may have changed this */
        Py_RETURN_FALSE;
    const ptrdiff_t learned =
        learn_rows(self, 1, self->row, targets, &weight, NULL, NULL, self->predictions);
    if (learned < 0)
        return NULL;
    self->seen += learned;
    if (learned && calibration_due(&self->calibration))
        calibrate_errors(&self->calibration, self->window.c, targets, self->predictions);
    return PyBool_FromLong(learned == 1);
}

/* learn_few(n, X, y, errors): return whether the rows were learned; if not, the state is unchanged.
   */
static PyObject *learn_few(Object *self, PyObject *args)
{
    Window *window = &self->window;
    Arrays a;
    Py_ssize_t n;
    ptrdiff_t learned = 0;
    a.given[2] = a.given[3] = a.given[4] = Py_None;
    if (!PyArg_ParseTuple(args, "nOOO:learn_few", &n, &a.given[0], &a.given[1], &a.given[5]))
        return NULL;
    double *before = NULL;
    if (open_rows(window, &a, n, 6) && idle(self) && window->limit && window->step == 0.0 &&
        n <= FEW_ROWS &&
        window_reserve(window, n) &&
        (before = PyMem_Malloc(state_size(window) * sizeof *before))) {
        const ptrdiff_t begin = window->begin, end = window->end;
        transfer(window, before, 1);
        learned = learn_rows(self, n, a.at[0], a.at[1], NULL, NULL, NULL, a.at[5]);
        if (learned != n) {
            window->begin = begin;
            window->end = end;
            transfer(window, before, 0);
        }
    }
    PyMem_Free(before);
    release_arrays(&a);
    if (PyErr_Occurred())
        return NULL;
    self->seen += learned == n ? n : 0;
    return PyBool_FromLong(n > 0 && learned == n);
}

/* Compute weights (d, c) and offset (c): a prediction is (x - center)^T weights + offset. Returns 0
   if the window does not determine them accurately. */
static int fit(Object *self, double *weights, double *offset)
{
    Window *window = &self->window;
    const ptrdiff_t d = window->d, c = window->c, p = window_columns(window);
    if (!window_ready(window))
        return 0;
    rows_solve(&window->rows);
    const double *w = window->rows.w, *center = window->center + window->free;
    for (ptrdiff_t k = 0; k < c; k++)
        offset[k] = window->center[p + k] + (window->free ? w[k] : 0.0);
    w += window->free * c;
    for (ptrdiff_t j = 0, i = 0; j < d; j++)
        for (ptrdiff_t k = 0; k < c; k++, i++) {
            weights[i] = self->start[i] + w[i];
            offset[k] += center[j] * self->start[i];
        }
    return 1;
}

/* fitted(weights, center, offset): write the state of predictions; return whether it is accurate.
   */
static PyObject *fitted(Object *self, PyObject *args)
{
    Window *window = &self->window;
    const ptrdiff_t d = window->d, c = window->c;
    const Py_ssize_t sizes[] = {d * c, d, c};
    Arrays a;
    if (!PyArg_ParseTuple(args, "OOO:fitted", &a.given[0], &a.given[1], &a.given[2]))
        return NULL;
    const int good = acquire_arrays(&a, 3, "ddd", sizes, 7, 6) && idle(self);
    int accurate = 0;
    if (good) {
        accurate = fit(self, a.at[0], a.at[2] ? a.at[2] : self->predictions);
        if (a.at[1])
            memcpy(a.at[1], window->center + window->free, d * sizeof(double));
    }
    release_arrays(&a);
    return good ? PyBool_FromLong(accurate) : NULL;
}

/* predict_one(x): the prediction; None if Python must handle the row. */
static PyObject *predict_one(Object *self, PyObject *x)
{
    const ptrdiff_t d = self->window.d, c = self->window.c;
    const double *center = self->window.center + self->window.free;
    double *scores = self->predictions;
    if (!idle(self))
        return NULL;
    if (!read_row(&self->reading, x, self->row) || self->turn.busy ||
        !fit(self, self->weights, scores))
        Py_RETURN_NONE;
    for (ptrdiff_t j = 0, i = 0; j < d; j++)
        for (ptrdiff_t k = 0; k < c; k++, i++)
            scores[k] += (self->row[j] - center[j]) * self->weights[i];
    return prediction_object(&self->reading, scores);
}

/* predict_std(x): a numeric prediction and its standard deviation; None if Python must handle the
   row. */
static PyObject *predict_std(Object *self, PyObject *x)
{
    Window *window = &self->window;
    const ptrdiff_t c = window->c, p = window_columns(window);
    PyObject *mean = self->reading.labels == Py_None ? predict_one(self, x) : Py_NewRef(Py_None);
    if (!mean || mean == Py_None)
        return mean;
    const double *sums = window->sums[window->rows.now] + window->rows.wide;
    const double scale = exp2(window->zero - window_clock(window)), mass = scale * sums[c];
    const double spare = mass - (double)p;
    const double spread = spare > 0.0 ? 1.0 + window_leverage(window, self->row) : INFINITY;
    for (ptrdiff_t k = 0; k < c; k++)
        self->predictions[k] =
            isfinite(spread) ? sqrt(spread * fmax(scale * sums[k], 0.0) / spare) : INFINITY;
    PyObject *std = number_object(&self->reading, self->predictions);
    return std ? Py_BuildValue("(NN)", mean, std) : (Py_DECREF(mean), NULL);
}

/* numbers([share]): set the remaining share of the penalty, if given; return the number of rows,
   this share, the rows learned one by one, whether the triangle is accurate and, if it is, the
   weight of the rows. */
static PyObject *numbers(Object *self, PyObject *args)
{
    Window *window = &self->window;
    double share = NAN;
    if (!PyArg_ParseTuple(args, "|d:numbers", &share) || !idle(self))
        return NULL;
    const double clock = window_clock(window);
    share = isnan(share) ? exp2(window->renewed - clock) : share;
    if (PyTuple_Size(args) > 0) {
        window->renewed = clock + log2(share);
        window->built = 0;
    }
    const int ready = window_ready(window);
    const double mass = window->sums[window->rows.now][window->rows.wide + window->c];
    return Py_BuildValue("(ndnid)", (Py_ssize_t)(window->end - window->begin), share, self->seen,
                         ready, mass * exp2(window->zero - window_clock(window)));
}

/* A new object; NULL with an error on failure. */
static Object *create(PyTypeObject *type, ptrdiff_t d, ptrdiff_t c, int free_, int loose)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Object *self = (Object *)alloc(type, 0);
    if (!self)
        return NULL;
    self->constants = Py_NewRef(Py_None);
    self->start = PyMem_Calloc(2 * d * c + d + 2 * c, sizeof(double));
    if (!self->start || !window_open(&self->window, d, c, free_, loose)) {
        Py_DECREF(self);
        return (Object *)PyErr_NoMemory();
    }
    self->weights = self->start + d * c;
    self->row = self->weights + d * c;
    self->predictions = self->row + d + c;
    return self;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *format;
    double step;
    Py_ssize_t d, c, limit;
    int free_, loose;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "nnppndO:Window", &d, &c, &free_, &loose, &limit, &step, &format))
        return NULL;
    if (d < 1 || d > MAX_SIZE || c < 1 || c > MAX_SIZE || limit < 0 || !(step >= 0.0))
        return PyErr_Format(PyExc_ValueError, "Window: sizes must be >= 1, rows and step >= 0");
    Object *self = create(type, d, c, free_, loose);
    if (self && !reading_open(&self->reading, d, c, format)) {
        Py_DECREF(self);
        return NULL;
    }
    if (self) {
        self->window.limit = limit;
        self->window.step = step;
    }
    return (PyObject *)self;
}

static PyObject *copy(Object *self, PyObject *unused)
{
    const Window *window = &self->window;
    (void)unused;
    if (!idle(self))
        return NULL;
    Object *twin = create(Py_TYPE((PyObject *)self), window->d, window->c, window->free,
                          window->loose);
    if (!twin)
        return NULL;
    if (!window_copy(&twin->window, window)) {
        Py_DECREF(twin);
        return PyErr_NoMemory();
    }
    memcpy(twin->start, self->start, window->d * window->c * sizeof(double));
    reading_copy(&twin->reading, &self->reading);
    Py_DECREF(twin->constants);
    twin->constants = Py_NewRef(self->constants);
    twin->started = self->started;
    twin->seen = self->seen;
    twin->calibration = self->calibration;
    return (PyObject *)twin;
}

static PyObject *bytes(const Object *self, void *unused)
{
    const Window *window = &self->window;
    (void)unused;
    const ptrdiff_t numbers =
        state_size(window) + (window->end - window->begin) * window->stride;
    return PyLong_FromSsize_t(numbers * (Py_ssize_t)sizeof(double));
}

static void drop(Object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    window_close(&self->window);
    PyMem_Free(self->start);
    reading_close(&self->reading);
    Py_XDECREF(self->constants);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"put", (PyCFunction)put, METH_VARARGS, "put(name, doubles): set a part of the state."},
    {"get", (PyCFunction)get, METH_O, "get(name): return a copy of a part of the state, as bytes."},
    {"numbers", (PyCFunction)numbers, METH_VARARGS, "numbers([share]): set or return."},
    {"load", (PyCFunction)load, METH_VARARGS,
     "load(n, X, Y, weights, clock): add rows without learning them."},
    {"learn", (PyCFunction)learn, METH_VARARGS,
     "learn(n, X, Y, weights, errors, clock, leaving): return the number of rows learned."},
    {"learn_one", (PyCFunction)(void (*)(void))learn_one, METH_FASTCALL,
     "learn_one(x, y, weight): return whether the row was learned."},
    {"learn_few", (PyCFunction)learn_few, METH_VARARGS,
     "learn_few(n, X, y, errors): return whether the rows were learned."},
    {"predict_one", (PyCFunction)predict_one, METH_O,
     "predict_one(x): return the prediction, or None."},
    {"predict_std", (PyCFunction)predict_std, METH_O,
     "predict_std(x): return the prediction and its standard deviation, or None."},
    {"fitted", (PyCFunction)fitted, METH_VARARGS,
     "fitted(weights, center, offset): write the state of predictions."},
    {"snapshot", (PyCFunction)copy, METH_NOARGS, "snapshot(): return an independent copy."},
    {"copy", (PyCFunction)copy, METH_NOARGS, "copy(): return an independent copy."},
    {"__deepcopy__", (PyCFunction)copy, METH_O, "Return an independent copy."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"d", T_PYSSIZET, offsetof(Object, window.d), READONLY, "Number of features."},
    {"c", T_PYSSIZET, offsetof(Object, window.c), READONLY, "Number of outputs."},
    {"seen", T_PYSSIZET, offsetof(Object, seen), READONLY, "Rows learned one by one."},
    {"constants", T_OBJECT, offsetof(Object, constants), 0, "Parts that rows do not change."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef computed[] = {
    {"calibration", calibration_get, calibration_set, "(row, theta, H, N, L), or None.",
     (void *)offsetof(Object, calibration)},
    {"nbytes", (getter)bytes, NULL, "Bytes of the state.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {{Py_tp_new, make},
                              {Py_tp_dealloc, drop},
                              {Py_tp_methods, methods},
                              {Py_tp_members, members},
                              {Py_tp_getset, computed},
                              {0, NULL}};

PyType_Spec window_spec = {"onepass._compiled.Window", sizeof(Object), 0, Py_TPFLAGS_DEFAULT,
                           slots};
