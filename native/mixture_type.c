/* The Python type Mixture: recursive least squares with several forgetting factors, as described in
 * memory/forgetting/auto.py and onepass/native.py. Each expert is an object of the type Rows. */
#include "buffers.h"

#include <structmember.h>

#include <math.h>
#include <string.h>

#include "calibration.h"
#include "machine.h"
#include "pending.h"
#include "reading.h"
#include "rows_type.h"

enum { EXPERTS = 16 };         /* maximum number of experts */
enum { CHUNK = 1024 };         /* maximum number of targets that are learned together */
enum { LONG = 1 << 20 };       /* minimum number of multiplications that release the GIL */
static const double SHARE = 0.005, RATE = 0.5, LIMIT = 16.0, CAP = 1000.0;
static const double DECAY = 1.0 - 1.0 / 200.0;
static const double ROUNDING = 1e-16;

typedef struct {
    PyObject_HEAD
    Reading reading;
    PyObject *constants; /* parts of the state in Python, which rows do not change */
    PyObject *experts;   /* a tuple of Rows */
    Rows *rows[EXPERTS], was[EXPERTS];
    Py_ssize_t count, d, c, seen, nbytes;
    int indicators;      /* whether targets are class indicators */
    double *numbers;     /* weights of the experts (count, c), squares (c), and their number */
    double *squares, *number;
    double *row;         /* the current row (d), and its targets (c) */
    double *predictions; /* predictions (c) */
    double *errors;      /* errors of the experts (count, n, c) */
    double *weights;     /* weights (d, c) and offset (c) of the mixture, if `fresh` */
    const double *center; /* m (d): a prediction is (x - m) weights + offset */
    int fresh;
    Calibration calibration;
    Turn turn;
} Mixture;

static Py_ssize_t chunk_of(const Mixture *self)
{
    return self->c < CHUNK ? CHUNK / self->c : 1;
}

/* Write the errors (n, c) of a mixture of experts with the errors `each` (count, n, c), and update
   its numbers: the weights (count, c), the squares (c) and their number. */
static void mix(Py_ssize_t count, Py_ssize_t n, Py_ssize_t c, int indicators, const double *Y,
                const double *weights, const double *each, double *numbers, double *errors)
{
    double *mean_squares = numbers + count * c, *number = mean_squares + c;
    for (Py_ssize_t i = 0; i < n; i++) {
        for (Py_ssize_t j = 0, at = i * c; j < c; j++, at++) {
            const double ratio = mean_squares[j] / *number;
            const double mean = ratio > 0.0 ? ratio : INFINITY;
            double *pi = numbers + j, error = 0.0, sum = 0.0;
            double least = INFINITY, lead = 0.0, leading = 0.0;
            double squares[EXPERTS], loss[EXPERTS];
            for (Py_ssize_t k = 0; k < count; k++) {
                const double own = each[k * n * c + at];
                const double guess = fmin(fmax(Y[at] - own, 0.0), 1.0);
                const double limited = indicators ? Y[at] - guess : own;
                error += pi[k * c] * own;
                squares[k] = (weights ? weights[i] : 1.0) * limited * limited;
                loss[k] = fmin(squares[k] / mean, LIMIT);
                least = fmin(least, loss[k]);
            }
            errors[at] = error;
            if (*number < 0.0) /* a row that is not counted */
                continue;
            for (Py_ssize_t k = 0; k < count; k++) {
                const double prior = (1.0 - SHARE) * pi[k * c] + SHARE / (double)count;
                pi[k * c] = prior * exp(-0.5 * RATE * (loss[k] - least));
                sum += pi[k * c];
            }
            for (Py_ssize_t k = count - 1; k >= 0; k--) {
                pi[k * c] /= sum;
                if (pi[k * c] >= lead) {
                    lead = pi[k * c];
                    leading = squares[k];
                }
            }
            const double rounding = ROUNDING * (weights ? weights[i] : 1.0) * Y[at] * Y[at];
            mean_squares[j] = DECAY * mean_squares[j] + fmax(fmin(leading, CAP * mean), rounding);
        }
        *number = (*number < 0.0 ? 1.0 : DECAY) * *number + 1.0;
    }
}

PyObject *mixed(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_ssize_t count, n, c;
    int indicators;
    (void)module;
    if (!PyArg_ParseTuple(args, "nnnpOOOOO:mix", &count, &n, &c, &indicators, &a.given[0],
                          &a.given[1], &a.given[2], &a.given[3], &a.given[4]))
        return NULL;
    if (count < 1 || count > EXPERTS || c < 1 || numbers_in(count + 2, c) < 0)
        return PyErr_Format(PyExc_ValueError, "expected outputs and 1 to %d experts", EXPERTS);
    const Py_ssize_t outputs = numbers_in(n, c);
    const Py_ssize_t sizes[] = {outputs, n, numbers_in(count, outputs), (count + 1) * c + 1,
                                outputs};
    const int good = acquire_arrays(&a, 5, "ddddd", sizes, 1 << 3 | 1 << 4, 1 << 1);
    if (good)
        mix(count, n, c, indicators, a.at[0], a.at[1], a.at[2], a.at[3], a.at[4]);
    release_arrays(&a);
    if (!good)
        return NULL;
    Py_RETURN_NONE;
}

/* Learn n <= chunk_of(self) rows and return 1, or change nothing and return 0. */
static int advance(Mixture *self, Py_ssize_t n, const double *X, const double *Y,
                   const double *weights, double *errors)
{
    for (Py_ssize_t k = 0; k < self->count; k++) {
        self->was[k] = *self->rows[k];
        if (!rows_learn_few(self->rows[k], n, X, Y, weights, self->errors + k * n * self->c)) {
            while (k-- > 0)
                rows_undo(self->rows[k], &self->was[k]);
            return 0;
        }
    }
    mix(self->count, n, self->c, self->indicators, Y, weights, self->errors, self->numbers, errors);
    self->fresh = 0;
    return 1;
}

/* Compute weights and offset of the mixture, about the centre of the leading expert. */
static void blend(Mixture *self)
{
    const Py_ssize_t d = self->d, c = self->c;
    double *offset = self->weights + d * c, largest = -1.0;
    if (self->fresh)
        return;
    for (Py_ssize_t k = 0; k < self->count; k++) {
        double sum = 0.0;
        for (Py_ssize_t j = 0; j < c; j++)
            sum += self->numbers[k * c + j];
        if (sum > largest) {
            largest = sum;
            self->center = self->rows[k]->means;
        }
    }
    memset(self->weights, 0, (d + 1) * c * sizeof(double));
    for (Py_ssize_t k = 0; k < self->count; k++) {
        const double *own = rows_fitted(PyTuple_GetItem(self->experts, k));
        const double *pi = self->numbers + k * c, *means = self->rows[k]->means;
        for (Py_ssize_t i = 0; i < d; i++)
            for (Py_ssize_t j = 0; j < c; j++) {
                const double part = pi[j] * own[i * c + j];
                self->weights[i * c + j] += part;
                offset[j] += (self->center[i] - means[i]) * part;
            }
        for (Py_ssize_t j = 0; j < c; j++)
            offset[j] += pi[j] * own[d * c + j];
    }
    self->fresh = 1;
}

/* Predictions (c) of a row, from weights (d, c) and offset (c) about a centre. */
static void score(const Mixture *self, const double *x, const double *weights,
                  const double *center, double *scores)
{
    const Py_ssize_t d = self->d, c = self->c;
    memcpy(scores, weights + d * c, c * sizeof *scores);
    for (Py_ssize_t i = 0, at = 0; i < d; i++)
        for (Py_ssize_t j = 0; j < c; j++, at++)
            scores[j] += (x[i] - center[i]) * weights[at];
}

static PyObject *learn(Mixture *self, PyObject *args)
{
    Arrays a;
    Py_ssize_t n, i = 0;
    if (!PyArg_ParseTuple(args, "nOOOO:learn", &n, &a.given[0], &a.given[1], &a.given[2],
                          &a.given[3]))
        return NULL;
    const Py_ssize_t d = self->d, c = self->c, targets = numbers_in(n, c);
    const Py_ssize_t sizes[] = {numbers_in(n, d), targets, n, targets};
    const int good =
        acquire_arrays(&a, 4, "dddd", sizes, 1 << 3, 1 << 2) && wait_until_idle(&self->turn);
    if (good) {
        const double *X = a.at[0], *Y = a.at[1], *weights = a.at[2];
        PyThreadState *state = begin(&self->turn, 1);
        const unsigned mode = flush_subnormals();
        for (Py_ssize_t more; i < n; i += more) {
            more = n - i < chunk_of(self) ? n - i : chunk_of(self);
            if (!advance(self, more, X + i * d, Y + i * c, weights ? weights + i : NULL,
                         (double *)a.at[3] + i * c))
                break;
        }
        restore_mode(mode);
        finish(&self->turn, state);
    }
    release_arrays(&a);
    return good ? PyLong_FromSsize_t(i) : NULL;
}

/* Learn rows that were read; return whether they were learned. */
static PyObject *learn_now(Mixture *self, Py_ssize_t n, const double *X, const double *Y,
                           const double *weights, double *errors)
{
    const Py_ssize_t work = self->count * n * self->d * self->d;
    PyThreadState *state = begin(&self->turn, work >= LONG);
    const unsigned mode = flush_subnormals();
    const int good = advance(self, n, X, Y, weights, errors);
    restore_mode(mode);
    finish(&self->turn, state);
    self->seen += good ? n : 0;
    return PyBool_FromLong(good);
}

static PyObject *learn_one(Mixture *self, PyObject *const *args, Py_ssize_t count)
{
    double *targets = self->row + self->d, weight;
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "Mixture.learn_one: expected x, y and weight");
    if (!wait_until_idle(&self->turn))
        return NULL;
    if (!read_example(&self->reading, args, self->row, targets, &weight) || self->turn.busy)
        Py_RETURN_FALSE;
    PyObject *learned = learn_now(self, 1, self->row, targets, &weight, self->predictions);
    if (learned == Py_True && calibration_due(&self->calibration))
        calibrate_errors(&self->calibration, self->c, targets, self->predictions);
    return learned;
}

static PyObject *learn_few(Mixture *self, PyObject *args)
{
    Arrays a;
    Py_ssize_t n;
    PyObject *learned = NULL;
    if (!PyArg_ParseTuple(args, "nOOO:learn_few", &n, &a.given[0], &a.given[1], &a.given[2]))
        return NULL;
    if (n < 1 || n > chunk_of(self))
        Py_RETURN_FALSE;
    const Py_ssize_t targets = n * self->c, sizes[] = {numbers_in(n, self->d), targets, targets};
    if (acquire_arrays(&a, 3, "ddd", sizes, 1 << 2, 0) && wait_until_idle(&self->turn))
        learned = learn_now(self, n, a.at[0], a.at[1], NULL, a.at[2]);
    release_arrays(&a);
    return learned;
}

/* Read a row and compute its scores: 1; 0 if Python must handle the row, and -1 with an error. */
static int scored(Mixture *self, PyObject *x)
{
    if (!wait_until_idle(&self->turn))
        return -1;
    if (!read_row(&self->reading, x, self->row) || self->turn.busy)
        return 0;
    blend(self);
    score(self, self->row, self->weights, self->center, self->predictions);
    return 1;
}

static PyObject *predict_one(Mixture *self, PyObject *x)
{
    const int good = scored(self, x);
    if (good <= 0)
        return good ? NULL : Py_NewRef(Py_None);
    return prediction_object(&self->reading, self->predictions);
}

static PyObject *predict_std(Mixture *self, PyObject *x)
{
    const Py_ssize_t c = self->c;
    const int good = self->reading.labels == Py_None ? scored(self, x) : 0;
    if (good <= 0)
        return good ? NULL : Py_NewRef(Py_None);
    const Rows *all = self->rows[0]; /* without forgetting */
    double *own = self->errors, *total = own + c, spread = INFINITY;
    if (*self->number > 0.0)
        spread = 1.0 + rows_leverage(all, self->row) + (all->free ? 1.0 / all->mass : 0.0);
    for (Py_ssize_t j = 0; j < c; j++)
        total[j] = isfinite(spread) ? spread * self->squares[j] / *self->number : INFINITY;
    for (Py_ssize_t k = 0; k < self->count; k++) {
        const double *weights = rows_fitted(PyTuple_GetItem(self->experts, k));
        score(self, self->row, weights, self->rows[k]->means, own);
        for (Py_ssize_t j = 0; j < c; j++) {
            const double by = own[j] - self->predictions[j];
            total[j] += self->numbers[k * c + j] * by * by;
        }
    }
    PyObject *mean = number_object(&self->reading, self->predictions);
    if (!mean)
        return NULL;
    for (Py_ssize_t j = 0; j < c; j++)
        total[j] = sqrt(total[j]);
    PyObject *std = number_object(&self->reading, total);
    return std ? Py_BuildValue("(NN)", mean, std) : (Py_DECREF(mean), NULL);
}

static PyObject *fitted(Mixture *self, PyObject *args)
{
    const Py_ssize_t d = self->d, c = self->c, sizes[] = {d * c, d, c};
    Arrays a;
    if (!PyArg_ParseTuple(args, "OOO:fitted", &a.given[0], &a.given[1], &a.given[2]))
        return NULL;
    const int good =
        acquire_arrays(&a, 3, "ddd", sizes, 7, 6) && wait_until_idle(&self->turn);
    if (good) {
        blend(self);
        const double *from[] = {self->weights, self->center, self->weights + d * c};
        for (int i = 0; i < 3; i++)
            if (a.at[i])
                memcpy(a.at[i], from[i], sizes[i] * sizeof(double));
    }
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}

/* numbers([doubles]): set, and return a copy, as bytes. */
static PyObject *numbers(Mixture *self, PyObject *args)
{
    const Py_ssize_t size = (self->count + 1) * self->c + 1;
    PyObject *given = NULL;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "|O:numbers", &given) || !wait_until_idle(&self->turn))
        return NULL;
    if (given) {
        const double *from = numbers_of(given, "d", size, 0, &view);
        if (!from)
            return NULL;
        memcpy(self->numbers, from, size * sizeof(double));
        PyBuffer_Release(&view);
        self->fresh = 0;
    }
    return PyBytes_FromStringAndSize((const char *)self->numbers, size * sizeof(double));
}

/* An object for a tuple of experts; NULL with an error on failure. */
static Mixture *create(PyTypeObject *type, PyObject *experts)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    const Py_ssize_t count = PyTuple_Size(experts);
    Mixture *self = count >= 1 && count <= EXPERTS ? (Mixture *)alloc(type, 0) : NULL;
    if (!self)
        return PyErr_Occurred() ? NULL
                                : (Mixture *)PyErr_Format(PyExc_ValueError,
                                                          "Mixture: expected 1 to 16 experts");
    self->constants = Py_NewRef(Py_None);
    self->experts = Py_NewRef(experts);
    self->count = count;
    for (Py_ssize_t k = 0; k < count; k++) {
        Rows *rows = self->rows[k] = rows_of(PyTuple_GetItem(experts, k), &self->nbytes);
        if (rows && k == 0) {
            self->d = rows->d;
            self->c = rows->c;
        }
        if (rows && (rows->d != self->d || rows->c != self->c))
            PyErr_Format(PyExc_ValueError, "Mixture: the experts must have the same sizes");
        if (PyErr_Occurred()) {
            Py_DECREF(self);
            return NULL;
        }
    }
    const Py_ssize_t d = self->d, c = self->c, size = (count + 1) * c + 1;
    const Py_ssize_t errors = count * chunk_of(self) * c + 2 * c;
    self->nbytes += size * 8;
    self->numbers = PyMem_Calloc(size + d + 2 * c + (d + 1) * c + errors, sizeof(double));
    if (!self->numbers) {
        Py_DECREF(self);
        return (Mixture *)PyErr_NoMemory();
    }
    self->squares = self->numbers + count * c;
    self->number = self->squares + c;
    self->row = self->numbers + size;
    self->predictions = self->row + d + c;
    self->weights = self->predictions + c;
    self->errors = self->weights + (d + 1) * c;
    return self;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *experts, *format;
    int indicators;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!pO:Mixture", &PyTuple_Type, &experts, &indicators, &format))
        return NULL;
    Mixture *self = create(type, experts);
    if (!self)
        return NULL;
    self->indicators = indicators;
    if (!reading_open(&self->reading, self->d, self->c, format)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *copy(Mixture *self, PyObject *unused)
{
    (void)unused;
    if (!wait_until_idle(&self->turn))
        return NULL;
    PyObject *experts = PyTuple_New(self->count);
    for (Py_ssize_t k = 0; experts && k < self->count; k++) {
        PyObject *twin = rows_twin(PyTuple_GetItem(self->experts, k));
        if (!twin)
            Py_CLEAR(experts);
        else
            PyTuple_SetItem(experts, k, twin);
    }
    Mixture *twin = experts ? create(Py_TYPE((PyObject *)self), experts) : NULL;
    Py_XDECREF(experts);
    if (!twin)
        return NULL;
    reading_copy(&twin->reading, &self->reading);
    Py_DECREF(twin->constants);
    twin->constants = Py_NewRef(self->constants);
    twin->indicators = self->indicators;
    twin->seen = self->seen;
    twin->calibration = self->calibration;
    memcpy(twin->numbers, self->numbers, ((self->count + 1) * self->c + 1) * sizeof(double));
    return (PyObject *)twin;
}

static PyObject *snapshot(Mixture *self, PyObject *unused)
{
    if (!wait_until_idle(&self->turn))
        return NULL;
    for (Py_ssize_t k = 0; k < self->count; k++)
        pending_flush(self->rows[k]);
    return copy(self, unused);
}

static void drop(Mixture *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyMem_Free(self->numbers);
    reading_close(&self->reading);
    Py_XDECREF(self->constants);
    Py_XDECREF(self->experts);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"numbers", (PyCFunction)numbers, METH_VARARGS,
     "numbers([doubles]): set weights, squares and number; return a copy, as bytes."},
    {"snapshot", (PyCFunction)snapshot, METH_NOARGS,
     "snapshot(): add all pending rows to the triangles; return a copy."},
    {"copy", (PyCFunction)copy, METH_NOARGS, "copy(): return an independent copy."},
    {"__deepcopy__", (PyCFunction)copy, METH_O, "Return an independent copy."},
    {"fitted", (PyCFunction)fitted, METH_VARARGS,
     "fitted(weights, center, offset): write the state of predictions; the last two may be None."},
    {"learn", (PyCFunction)learn, METH_VARARGS,
     "learn(n, X, Y, weights, errors): return the number of rows learned."},
    {"learn_one", (PyCFunction)(void (*)(void))learn_one, METH_FASTCALL,
     "learn_one(x, y, weight): return whether the row was learned."},
    {"learn_few", (PyCFunction)learn_few, METH_VARARGS,
     "learn_few(n, X, y, errors): return whether the rows were learned."},
    {"predict_one", (PyCFunction)predict_one, METH_O,
     "predict_one(x): return the prediction, or None."},
    {"predict_std", (PyCFunction)predict_std, METH_O,
     "predict_std(x): return the prediction and its standard deviation, or None."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"experts", T_OBJECT, offsetof(Mixture, experts), READONLY, "A tuple of Rows."},
    {"d", T_PYSSIZET, offsetof(Mixture, d), READONLY, "Number of features."},
    {"c", T_PYSSIZET, offsetof(Mixture, c), READONLY, "Number of outputs."},
    {"seen", T_PYSSIZET, offsetof(Mixture, seen), READONLY, "Rows learned one by one."},
    {"nbytes", T_PYSSIZET, offsetof(Mixture, nbytes), READONLY, "Bytes of the state."},
    {"constants", T_OBJECT, offsetof(Mixture, constants), 0, "Parts that rows do not change."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef computed[] = {
    {"calibration", calibration_get, calibration_set, "(row, theta, H, N, L), or None.",
     (void *)offsetof(Mixture, calibration)},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {{Py_tp_new, make},
                              {Py_tp_dealloc, drop},
                              {Py_tp_methods, methods},
                              {Py_tp_members, members},
                              {Py_tp_getset, computed},
                              {0, NULL}};

PyType_Spec mixture_spec = {"onepass._compiled.Mixture", sizeof(Mixture), 0, Py_TPFLAGS_DEFAULT,
                            slots};
