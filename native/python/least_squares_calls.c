/* Functions of native/core/least_squares.h for Python, and the type Format; documented in
   onepass/native.py. */
#include "buffers.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "../core/least_squares.h"
#include "calibration.h"
#include "machine.h"
#include "reading.h"

static const double HUGE_SQUARES = 1e200;

/* How single rows are read: no state, so that learners may share it. */
typedef struct {
    PyObject_HEAD
    Reading reading;
} Format;

/* Whether a vector has the parts of another one, and an index within them. */
static int is_alike(const double *vector, const double *other)
{
    const double turn = vector[TURN];
    return memcmp(vector, other, FACTOR * sizeof *vector) == 0 && turn >= 0.0 &&
           turn == floor(turn) && turn * 8.0 < vector[FEATURES] + 8.0 &&
           (vector[LEVEL] > 0.0) == (other[LEVEL] > 0.0) &&
           (vector[PRIOR] > 0.0) == (other[PRIOR] > 0.0);
}

/* Whether what follows a vector has its size, and consistent numbers. */
static int is_whole(const double *vector, Py_ssize_t size)
{
    const Py_ssize_t own = ls_size(vector);
    const double *extra = vector + own;
    int good = is_alike(vector, vector);
    if (!((int)vector[FLAGS] & WINDOW)) {
        const int experts = (int)vector[FLAGS] & MIXTURE ? EXPERTS : 1;
        const int directional = ((int)vector[FLAGS] & DIRECTIONAL) != 0; /* more follows */
        good = good && (directional ? own <= size : ls_whole_size(vector, 0) == size);
        for (int e = 1; e < experts && good; e++)
            good = is_alike(vector + e * own, vector);
        return good;
    }
    if (size < window_size(vector, 1))
        return 0;
    const double capacity = extra[CAPACITY], stored = extra[STORED], next = extra[NEXT];
    return good && capacity >= 1.0 && capacity <= (double)size && stored >= 0.0 && next >= 0.0 &&
           stored <= capacity && next < capacity && next == floor(next) &&
           stored == floor(stored) && extra[LENGTH] <= capacity &&
           window_size(vector, (Py_ssize_t)capacity) == size &&
           is_alike(extra + WINDOW_HEAD, vector) &&
           (extra[SHADOWED] < 0.0 || is_alike(extra + WINDOW_HEAD + own, vector));
}

/* The numbers of a vector and of what follows it or, if `many` > 0, of `many` plain vectors of one
   size and kind. Returns NULL with an error for other objects. */
static double *vectors_of(PyObject *given, Py_ssize_t many, Py_buffer *view)
{
    if (PyObject_GetBuffer(given, view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0)
        return NULL;
    double *vector = view->buf;
    const Py_ssize_t count = view->len / (Py_ssize_t)sizeof *vector;
    int good = view->itemsize == sizeof *vector && count >= HEAD && many >= 0;
    if (good && many == 0)
        good = ls_size(vector) > 0 && ls_size(vector) <= count && is_whole(vector, count);
    for (Py_ssize_t k = 0; good && k < many; k++) {
        const double *one = vector + k * (count / many);
        good = memcmp(one, vector, ROWS * sizeof *one) == 0 && is_alike(one, vector) &&
               numbers_in(ls_size(one), many) == count;
    }
    if (good)
        return vector;
    PyErr_Format(PyExc_ValueError, "expected the vector of a state, or several of one kind");
    PyBuffer_Release(view);
    return NULL;
}

/* ls_learn(vector, n, X, Y, weights, fades, leaving, errors, release) */
static PyObject *learn(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_buffer view;
    PyObject *given;
    Py_ssize_t n;
    int release, finite = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnOOOOOOp:ls_learn", &given, &n, &a.given[0], &a.given[1],
                          &a.given[2], &a.given[3], &a.given[4], &a.given[5], &release))
        return NULL;
    double *vector = vectors_of(given, 0, &view);
    if (!vector)
        return NULL;
    const Py_ssize_t targets = numbers_in(n, (Py_ssize_t)vector[OUTPUTS]);
    const Py_ssize_t sizes[] = {numbers_in(n, (Py_ssize_t)vector[FEATURES]), targets, n, n, n,
                                targets};
    const int good = acquire_arrays(&a, 6, "dddddd", sizes, 1 << 5, 7 << 2);
    if (good) {
        PyThreadState *state = release ? PyEval_SaveThread() : NULL;
        const unsigned mode = flush_subnormals();
        finite = ls_learn(vector, n, a.at[0], a.at[1], a.at[2], a.at[3], a.at[4], a.at[5]);
        restore_mode(mode);
        if (state)
            PyEval_RestoreThread(state);
    }
    release_arrays(&a);
    PyBuffer_Release(&view);
    return good ? PyBool_FromLong(finite) : NULL;
}

/* The ends of the keys, followed by the indices of the rows grouped by key; see ls_learn_keys. */
static int *ordered(const int *codes, Py_ssize_t n, Py_ssize_t keys)
{
    int *ends = PyMem_Calloc(keys + 1 + n, sizeof *ends), *order = ends + keys + 1, sum = 0;
    if (!ends) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (codes[i] < keys)
            ends[codes[i] < 0 ? keys : codes[i]]++;
    for (Py_ssize_t k = 0; k < keys; k++) {
        const int rows = ends[k];
        ends[k] = sum;
        sum += rows;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (codes[i] >= 0 && codes[i] < keys)
            order[ends[codes[i]]++] = (int)i;
    return ends;
}

/* ls_learn_keys(vectors, keys, n, codes, X, Y, weights, errors) */
static PyObject *learn_keys(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_buffer view;
    PyObject *given;
    Py_ssize_t n, keys;
    int finite = 0, *ends = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnnOOOOO:ls_learn_keys", &given, &keys, &n, &a.given[0],
                          &a.given[1], &a.given[2], &a.given[3], &a.given[4]))
        return NULL;
    if (keys < 1 || n < 0 || n > INT_MAX)
        return PyErr_Format(PyExc_ValueError, "ls_learn_keys: expected keys and rows");
    double *vectors = vectors_of(given, keys, &view);
    if (!vectors)
        return NULL;
    const Py_ssize_t targets = numbers_in(n, (Py_ssize_t)vectors[OUTPUTS]);
    const Py_ssize_t sizes[] = {n, numbers_in(n, (Py_ssize_t)vectors[FEATURES]), targets, n,
                                targets};
    if (acquire_arrays(&a, 5, "idddd", sizes, 1 << 4, 1 << 3))
        ends = ordered(a.at[0], n, keys);
    if (ends) {
        PyThreadState *state = PyEval_SaveThread();
        const unsigned mode = flush_subnormals();
        finite = ls_learn_keys(vectors, keys, ends + keys + 1, ends, a.at[1], a.at[2], a.at[3],
                               a.at[4]);
        restore_mode(mode);
        PyEval_RestoreThread(state);
    }
    const int good = ends != NULL;
    PyMem_Free(ends);
    release_arrays(&a);
    PyBuffer_Release(&view);
    return good ? PyBool_FromLong(finite) : NULL;
}

/* ls_fitted(vectors, keys, weights, centre, offset); with 0 keys one state, with all experts */
static PyObject *fitted(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_buffer view;
    PyObject *given;
    Py_ssize_t keys;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnOOO:ls_fitted", &given, &keys, &a.given[0], &a.given[1],
                          &a.given[2]))
        return NULL;
    double *vectors = vectors_of(given, keys, &view);
    if (!vectors)
        return NULL;
    const Py_ssize_t d = vectors[FEATURES], c = vectors[OUTPUTS];
    keys = keys ? keys : (int)vectors[FLAGS] & MIXTURE ? EXPERTS : 1;
    const Py_ssize_t sizes[] = {numbers_in(keys, d * c), numbers_in(keys, d), numbers_in(keys, c)};
    const int good = acquire_arrays(&a, 3, "ddd", sizes, 7, 0);
    for (Py_ssize_t k = 0; good && k < keys; k++)
        ls_fitted(vectors + k * ls_size(vectors), (double *)a.at[0] + k * d * c,
                  (double *)a.at[1] + k * d, (double *)a.at[2] + k * c);
    release_arrays(&a);
    PyBuffer_Release(&view);
    return good ? Py_NewRef(Py_None) : NULL;
}

/* ls_rotate(vector, n, rows, weights) */
static PyObject *rotate(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_buffer view;
    PyObject *given;
    Py_ssize_t n;
    int finite = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnOO:ls_rotate", &given, &n, &a.given[0], &a.given[1]))
        return NULL;
    double *vector = vectors_of(given, 1, &view);
    if (!vector)
        return NULL;
    const Py_ssize_t sizes[] = {numbers_in(n, ls_of(vector).stride), n};
    const int good = acquire_arrays(&a, 2, "dd", sizes, 0, 0);
    if (good)
        finite = ls_rotate(vector, n, a.at[0], a.at[1]);
    release_arrays(&a);
    PyBuffer_Release(&view);
    return good ? PyBool_FromLong(finite) : NULL;
}

/* mix(k, n, c, indicators, Y, weights, each, numbers, errors) */
static PyObject *mix(PyObject *module, PyObject *args)
{
    Arrays a;
    Py_ssize_t k, n, c;
    int indicators;
    (void)module;
    if (!PyArg_ParseTuple(args, "nnnpOOOOO:mix", &k, &n, &c, &indicators, &a.given[0], &a.given[1],
                          &a.given[2], &a.given[3], &a.given[4]))
        return NULL;
    if (k < 1 || k > 16)
        return PyErr_Format(PyExc_ValueError, "mix: expected 1 to 16 experts");
    const Py_ssize_t targets = numbers_in(n, c);
    const Py_ssize_t sizes[] = {targets, n, numbers_in(k, targets), numbers_in(k + 1, c) + 1,
                                targets};
    const int good = acquire_arrays(&a, 5, "ddddd", sizes, 3 << 3, 1 << 1);
    if (good)
        mixture_weigh(k, n, c, indicators, a.at[0], a.at[1], a.at[2], a.at[3], a.at[4]);
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *make_format(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t d, c;
    PyObject *format;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "nnO:Format", &d, &c, &format))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Format *self = (Format *)alloc(type, 0);
    if (self && !reading_open(&self->reading, d, c, format)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void drop_format(Format *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    reading_close(&self->reading);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* row(x, out): write a row; return whether that was possible. */
static PyObject *format_row(Format *self, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    const Reading *reading = &self->reading;
    double *out = count == 2 ? numbers_of(args[1], "d", reading->d, 1, &view) : NULL;
    if (!out)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "row: expected x and out");
    const int good = read_row(reading, args[0], out);
    PyBuffer_Release(&view);
    return PyBool_FromLong(good);
}

/* example(x, label, weight, out): write a row, the index of its label, and its weight. */
static PyObject *format_example(Format *self, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view;
    const Reading *reading = &self->reading;
    double *out = count == 4 ? numbers_of(args[3], "d", reading->d + 2, 1, &view) : NULL;
    if (!out)
        return PyErr_Occurred()
                   ? NULL
                   : PyErr_Format(PyExc_TypeError, "example: expected x, label, weight and out");
    double *label = out + reading->d;
    int good = read_row(reading, args[0], out) && reading->labels != Py_None;
    label[0] = good ? (double)read_label(reading, args[1]) : -1.0;
    label[1] = read_number(reading, args[2]);
    good = label[0] >= 0.0 && label[1] > 0.0;
    PyBuffer_Release(&view);
    return PyBool_FromLong(good);
}

/* The scores (c) of a buffer; NULL if a score is infinite or as low as UNSEEN, or with an error. */
static double *finite_scores(Format *self, PyObject *given, Py_buffer *view)
{
    double *scores = numbers_of(given, "d", self->reading.c, 0, view);
    for (Py_ssize_t k = 0; scores && k < self->reading.c; k++)
        if (!(fabs(scores[k]) < -UNSEEN || scores[k] == UNSEEN)) {
            PyBuffer_Release(view);
            return NULL;
        }
    return scores;
}

/* prediction(scores): the label or the numbers; None if a score is not finite. */
static PyObject *format_prediction(Format *self, PyObject *given)
{
    Py_buffer view;
    double *scores = finite_scores(self, given, &view);
    if (!scores)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    PyObject *prediction = prediction_object(&self->reading, scores);
    PyBuffer_Release(&view);
    return prediction;
}

/* probabilities(scores, calibration): by label; None if a score is not finite. */
static PyObject *format_probabilities(Format *self, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer view, state = {0};
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "probabilities: expected scores and calibration");
    double *scores = finite_scores(self, args[0], &view);
    if (!scores)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    PyObject *shares = NULL;
    const Py_ssize_t size = CLASSES_AT + 2 * self->reading.c;
    if (args[1] == Py_None || numbers_of(args[1], "d", size, 0, &state))
        shares = probabilities_object(&self->reading, scores, state.buf);
    PyBuffer_Release(&state);
    PyBuffer_Release(&view);
    return shares;
}

static PyMethodDef format_methods[] = {
    {"row", (PyCFunction)(void (*)(void))format_row, METH_FASTCALL,
     "row(x, out): return whether the row was written."},
    {"example", (PyCFunction)(void (*)(void))format_example, METH_FASTCALL,
     "example(x, label, weight, out): return whether the row was written."},
    {"prediction", (PyCFunction)format_prediction, METH_O,
     "prediction(scores): the prediction, or None."},
    {"probabilities", (PyCFunction)(void (*)(void))format_probabilities, METH_FASTCALL,
     "probabilities(scores, calibration): by label, or None."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {{Py_tp_new, make_format},
                              {Py_tp_dealloc, drop_format},
                              {Py_tp_methods, format_methods},
                              {0, NULL}};
PyType_Spec format_spec = {"onepass._compiled.Format", sizeof(Format), 0, Py_TPFLAGS_DEFAULT,
                           slots};

/* -- single rows ------------------------------------------------------------------------------ */

/* A view of a vector for single rows, with the format of the rows, the state of a calibration or
   NULL, and work space: a row (stride), targets and scores (c each). It owns no state. */
typedef struct {
    PyObject_HEAD
    Py_buffer view, calibration;
    Format *format;
    LeastSquares s; /* of the first expert, if the vector is that of a mixture */
    double *row, *targets, *scores;
    Py_ssize_t size, rows; /* rows until Python learns one; 0 for never */
    int timed; /* whether the past fades by the time between rows */
    int busy;  /* reading a mapping may run code of Python */
} Single;

static PyObject *make_single(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *vector, *format, *calibration;
    Py_ssize_t rows;
    int timed;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OOOnp:Single", &vector, &format, &calibration, &rows, &timed))
        return NULL;
    if (PyType_GetSlot(Py_TYPE(format), Py_tp_new) != (void *)make_format)
        return PyErr_Format(PyExc_TypeError, "Single: expected a Format");
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Single *self = (Single *)alloc(type, 0);
    if (!self)
        return NULL;
    const Reading *reading = &((Format *)format)->reading;
    double *numbers = vectors_of(vector, 0, &self->view);
    if (numbers) {
        self->s = ls_of(numbers);
        self->size = ls_size(numbers);
        self->row = PyMem_Malloc((self->s.stride + 2 * self->s.c) * sizeof *self->row);
        if (reading->d != self->s.d || reading->c != self->s.c)
            PyErr_Format(PyExc_ValueError, "Single: expected the format of other sizes");
        else if (!self->row)
            PyErr_NoMemory();
        else if (calibration != Py_None)
            numbers_of(calibration, "d", CLASSES_AT + 2 * self->s.c, 1, &self->calibration);
    }
    if (PyErr_Occurred()) {
        Py_DECREF(self);
        return NULL;
    }
    self->rows = rows;
    self->timed = timed;
    self->targets = self->row + self->s.stride;
    self->scores = self->targets + self->s.c;
    self->format = (Format *)Py_NewRef(format);
    return (PyObject *)self;
}

static void drop_single(Single *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyMem_Free(self->row);
    Py_XDECREF((PyObject *)self->format);
    PyBuffer_Release(&self->calibration);
    PyBuffer_Release(&self->view);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Read a row to predict; 0 if Python must convert it. */
static int read_single(Single *self, PyObject *x)
{
    if (self->busy)
        return 0;
    self->busy = 1;
    const int good = read_row(&self->format->reading, x, self->row);
    self->busy = 0;
    return good;
}

/* Compute scores; a mixture predicts the mean of its experts. The row is overwritten. */
static int predict(Single *self)
{
    const LeastSquares *s = &self->s;
    if (!((int)s->head[FLAGS] & MIXTURE)) {
        ls_predict(s, self->row, self->scores, self->row);
        return 1;
    }
    const double *shares = s->head + EXPERTS * self->size;
    double *row = PyMem_Malloc((s->stride + s->c) * sizeof *row), *each = row + s->stride;
    memset(self->scores, 0, s->c * sizeof *each);
    for (int e = 0; e < EXPERTS && row; e++) {
        const LeastSquares expert = ls_of(s->head + e * self->size);
        ls_predict(&expert, self->row, each, row);
        for (Py_ssize_t k = 0; k < s->c; k++)
            self->scores[k] += shares[e * s->c + k] * each[k];
    }
    PyMem_Free(row);
    if (!row)
        PyErr_NoMemory();
    return row != NULL;
}

/* learn_one(x, y, weight[, fade]): return whether the row was learned; if not, Python must learn
   it. `fade` is log2 of the factor by which the past fades by time. */
static PyObject *learn_one(Single *self, PyObject *const *args, Py_ssize_t count)
{
    double weight, fade = 0.0, *v = self->s.head, *calibration = self->calibration.buf;
    if (count != 3 && count != 4)
        return PyErr_Format(PyExc_TypeError, "learn_one: expected x, y, weight and fade");
    if (count == 4)
        fade = PyFloat_AsDouble(args[3]);
    if (PyErr_Occurred())
        return NULL;
    if (self->busy || self->timed != (count == 4) || !(fade <= 0.0) || (self->rows && --self->rows == 0))
        Py_RETURN_FALSE;
    self->busy = 1;
    int good = read_example(&self->format->reading, args, self->row, self->targets, &weight);
    self->busy = 0;
    if (!good)
        Py_RETURN_FALSE;
    for (Py_ssize_t k = 0; k < self->s.c; k++)
        if (!(self->s.squares[k] < HUGE_SQUARES))
            Py_RETURN_FALSE; /* Python learns in a copy, which may overflow */
    const Py_ssize_t row = (Py_ssize_t)v[ROWS];
    const unsigned mode = flush_subnormals();
    good = ls_learn(v, 1, self->row, self->targets, &weight, count == 4 ? &fade : NULL, NULL,
                    self->scores);
    restore_mode(mode);
    if (calibration && next_calibrated(row) == row)
        calibrate_errors(calibration, self->s.c, self->targets, self->scores, weight);
    return good ? Py_NewRef(Py_True)
                : PyErr_Format(PyExc_OverflowError, "the state must be finite");
}

/* predict_one(x): the prediction; None if Python must predict the row. */
static PyObject *predict_one(Single *self, PyObject *x)
{
    if (!read_single(self, x))
        Py_RETURN_NONE;
    return predict(self) ? prediction_object(&self->format->reading, self->scores) : NULL;
}

/* predict_proba_one(x): probabilities by label; or None. */
static PyObject *predict_proba_one(Single *self, PyObject *x)
{
    const double *state = self->calibration.buf;
    if (!state || self->format->reading.labels == Py_None || !read_single(self, x))
        Py_RETURN_NONE;
    if (!predict(self))
        return NULL;
    return probabilities_object(&self->format->reading, self->scores, state);
}

/* predict_std(x): a numeric prediction and its standard deviation; or None. */
static PyObject *predict_std(Single *self, PyObject *x)
{
    const LeastSquares *s = &self->s;
    const double *v = s->head;
    const Reading *reading = &self->format->reading;
    const int free_ = ((int)v[FLAGS] & FREE) != 0;
    if (((int)v[FLAGS] & MIXTURE) || reading->labels != Py_None || !read_single(self, x))
        Py_RETURN_NONE;
    const double spare = v[MASS] - (double)s->d - free_;
    ls_eliminate(s, self->row, self->scores, self->row);
    PyObject *mean = number_object(reading, self->scores);
    if (!mean)
        return NULL;
    const double spread = 1.0 + ls_leverage(s, self->row) + (free_ ? 1.0 / v[MASS] : 0.0);
    const int known = spare > 0.0 && isfinite(spread);
    for (Py_ssize_t k = 0; k < s->c; k++)
        self->scores[k] = known ? sqrt(spread * ls_residual(s, k) / spare) : INFINITY;
    PyObject *std = number_object(reading, self->scores);
    return std ? Py_BuildValue("(NN)", mean, std) : (Py_DECREF(mean), NULL);
}

static PyMethodDef single_methods[] = {
    {"learn_one", (PyCFunction)(void (*)(void))learn_one, METH_FASTCALL,
     "learn_one(x, y, weight[, fade]): return whether the row was learned."},
    {"predict_one", (PyCFunction)predict_one, METH_O, "predict_one(x): the prediction, or None."},
    {"predict_proba_one", (PyCFunction)predict_proba_one, METH_O,
     "predict_proba_one(x): probabilities by label, or None."},
    {"predict_std", (PyCFunction)predict_std, METH_O,
     "predict_std(x): the prediction and its standard deviation, or None."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot single_slots[] = {{Py_tp_new, make_single},
                                     {Py_tp_dealloc, drop_single},
                                     {Py_tp_methods, single_methods},
                                     {0, NULL}};
PyType_Spec single_spec = {"onepass._compiled.Single", sizeof(Single), 0, Py_TPFLAGS_DEFAULT,
                           single_slots};

PyMethodDef least_squares_functions[] = {
    {"ls_learn", learn, METH_VARARGS,
     "ls_learn(vector, n, X, Y, weights, fades, leaving, errors, release): return whether finite."},
    {"ls_learn_keys", learn_keys, METH_VARARGS,
     "ls_learn_keys(vectors, keys, n, codes, X, Y, weights, errors): return whether finite."},
    {"ls_fitted", fitted, METH_VARARGS, "ls_fitted(vectors, keys, weights, centre, offset)."},
    {"ls_rotate", rotate, METH_VARARGS,
     "ls_rotate(vector, n, rows, weights): return whether finite."},
    {"mix", mix, METH_VARARGS, "mix(k, n, c, indicators, Y, weights, each, numbers, errors)."},
    {NULL, NULL, 0, NULL},
};
