/* The Python type Rows, documented in onepass/native.py. */
#include "buffers.h"

#include <structmember.h>

#include <limits.h>
#include <math.h>
#include <string.h>

#include "calibration.h"
#include "machine.h"
#include "packed.h"
#include "pending.h"
#include "reading.h"
#include "rows_type.h"

enum { WIDEST = 1 << 14 }; /* maximum number of features, and of outputs */
enum { LONG = 1 << 20 };   /* minimum number of multiplications that release the GIL */

typedef struct {
    PyObject_HEAD
    Rows rows;
    Reading reading;
    PyObject *constants; /* parts of the state in Python, which rows do not change */
    Py_ssize_t seen;     /* rows learned by learn_one and learn_few */
    Py_ssize_t nbytes;   /* size of the state, without work space */
    double *row;         /* the current row (d), and its targets (c) */
    double *predictions; /* predictions (c) */
    double *weights;     /* w0 + w (d, c), and the offset (c), if `fresh` */
    int fresh;
    Calibration calibration;
    int timed;           /* whether the past fades by the time between rows */
    Turn turn;
} Object;

static int idle(Object *self)
{
    return wait_until_idle(&self->turn);
}

/* Mark the state as busy and, if learning n rows takes long, release the GIL. */
static PyThreadState *leave(Object *self, Py_ssize_t n)
{
    return begin(&self->turn, n * self->rows.d * self->rows.d >= LONG);
}

static void enter(Object *self, PyThreadState *state)
{
    finish(&self->turn, state);
}

/* A part of the state, by name, and its size; NULL with an error if the name is unknown. */
static double *part(Rows *rows, PyObject *name, Py_ssize_t *size)
{
    const ptrdiff_t d = rows->d, c = rows->c;
    const struct {
        const char *name;
        double *at;
        ptrdiff_t size;
    } table[] = {
        {"start", rows->start, d * c}, {"squares", rows->squares, c}, {"means", rows->means, d + c},
        {"rest", rows->rest, d + c},   {"least", rows->least, d},     {"energy", rows->energy, d},
        {"active", rows->active, d},   {"last", rows->last, d},       {"w", rows->w, d * c},
        {"unseen", rows->unseen, d},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (PyUnicode_CompareWithASCIIString(name, table[i].name) == 0) {
            *size = table[i].size;
            return table[i].at;
        }
    PyErr_Format(PyExc_KeyError, "Rows: unknown part %R of the state", name);
    return NULL;
}

static PyObject *put(Object *self, PyObject *args)
{
    PyObject *name, *given;
    Py_buffer view;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "UO:put", &name, &given))
        return NULL;
    double *to = part(&self->rows, name, &size);
    const double *from = to ? numbers_of(given, "d", size, 0, &view) : NULL;
    if (!from)
        return NULL;
    const int good = idle(self);
    if (good) {
        memcpy(to, from, size * sizeof(double));
        self->rows.started = 0;
        for (ptrdiff_t i = 0; i < self->rows.d * self->rows.c; i++)
            self->rows.started |= self->rows.start[i] != 0.0;
    }
    PyBuffer_Release(&view);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *get(Object *self, PyObject *name)
{
    Py_ssize_t size;
    if (!PyUnicode_Check(name))
        return PyErr_Format(PyExc_TypeError, "Rows.get: expected the name of a part");
    if (!idle(self))
        return NULL;
    rows_solve(&self->rows);
    const double *from = part(&self->rows, name, &size);
    return from ? PyBytes_FromStringAndSize((const char *)from, size * sizeof(double)) : NULL;
}

/* Copy rows j to before j + k of R, stored by columns, and of z to the triangle, divided by their
   diagonal entries; or, if D is given, of U and theta. Several rows are copied together, since they
   share the columns' cache lines. */
static void load(Rows *rows, ptrdiff_t j, ptrdiff_t k, const double *R, const double *z,
                 const double *D)
{
    const ptrdiff_t d = rows->d, c = rows->c;
    double *row[WIDE], pivot[WIDE];
    for (ptrdiff_t i = 0; i < k; i++) {
        row[i] = rows_at(rows, j + i);
        pivot[i] = R[(j + i) * (d + 1)];
        rows->diagonal[rows->now][j + i] = D ? D[j + i] : pivot[i] * pivot[i];
    }
    for (ptrdiff_t l = j; l < d; l++)
        for (ptrdiff_t i = 0; i < (l < j + k ? l - j + 1 : k); i++)
            row[i][l] = R[l * d + j + i] / pivot[i];
    for (ptrdiff_t i = 0; i < k; i++)
        for (ptrdiff_t l = 0; l < c; l++)
            row[i][d + l] = z[(j + i) * c + l] / pivot[i];
}

static void unload(Rows *rows, ptrdiff_t j, ptrdiff_t k, double *R, double *z, double *D)
{
    const ptrdiff_t d = rows->d, c = rows->c;
    double *row[WIDE], root[WIDE];
    for (ptrdiff_t i = 0; i < k; i++) {
        row[i] = rows_at(rows, j + i);
        root[i] = D ? 1.0 : sqrt(rows->due * rows->diagonal[rows->now][j + i]);
        if (D)
            D[j + i] = rows->diagonal[rows->now][j + i];
    }
    for (ptrdiff_t l = j; l < d; l++)
        for (ptrdiff_t i = 0; i < (l < j + k ? l - j + 1 : k); i++)
            R[l * d + j + i] = row[i][l] * root[i];
    for (ptrdiff_t i = 0; i < k; i++)
        for (ptrdiff_t l = 0; l < c; l++)
            z[(j + i) * c + l] = row[i][d + l] * root[i];
}

static PyObject *triangle(Object *self, PyObject *args)
{
    Rows *rows = &self->rows;
    const ptrdiff_t d = rows->d, c = rows->c;
    Arrays a;
    int out;
    a.given[2] = Py_None;
    if (!PyArg_ParseTuple(args, "OOp|O:triangle", &a.given[0], &a.given[1], &out, &a.given[2]))
        return NULL;
    const Py_ssize_t sizes[] = {d * d, d * c, d};
    const int good = acquire_arrays(&a, 3, "ddd", sizes, out ? 7 : 0, 1 << 2) && idle(self);
    if (good) {
        PyThreadState *state = leave(self, 1);
        pending_flush(rows);
        for (ptrdiff_t j = 0; j < d; j += WIDE) {
            const ptrdiff_t k = d - j < WIDE ? d - j : WIDE;
            if (out)
                unload(rows, j, k, a.at[0], a.at[1], a.at[2]);
            else
                load(rows, j, k, a.at[0], a.at[1], a.at[2]);
        }
        enter(self, state);
        if (!out) {
            rows->due = 1.0;
            rows->fresh = 0;
        }
    }
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *learn(Object *self, PyObject *args)
{
    Rows *rows = &self->rows;
    Arrays a;
    Py_ssize_t n, learned = 0;
    a.given[4] = Py_None;
    if (!PyArg_ParseTuple(args, "nOOOO|O:learn", &n, &a.given[0], &a.given[1], &a.given[2],
                          &a.given[3], &a.given[4]))
        return NULL;
    const Py_ssize_t targets = numbers_in(n, rows->c);
    const Py_ssize_t sizes[] = {numbers_in(n, rows->d), targets, n, targets, n};
    const int optional = 1 << 2 | !self->timed << 4;
    const int good = acquire_arrays(&a, 5, "ddddd", sizes, 1 << 3, optional) && idle(self);
    if (good) {
        PyThreadState *state = begin(&self->turn, 1);
        const unsigned mode = flush_subnormals();
        learned = self->timed
                      ? rows_learn_at(rows, n, a.at[0], a.at[1], a.at[2], a.at[4], a.at[3])
                      : rows_learn(rows, n, a.at[0], a.at[1], a.at[2], a.at[3]);
        restore_mode(mode);
        finish(&self->turn, state);
        self->fresh = 0;
    }
    release_arrays(&a);
    return good ? PyLong_FromSsize_t(learned) : NULL;
}

static PyObject *numbers(Object *self, PyObject *args)
{
    Rows *rows = &self->rows;
    double mass, age, faded = 1.0, due = 1.0;
    Py_ssize_t count;
    const int given = PyTuple_Size(args) > 0;
    if (given && !PyArg_ParseTuple(args, "ddn|dd:numbers", &mass, &age, &count, &faded, &due))
        return NULL;
    if (given && (count < 0 || count > PY_SSIZE_T_MAX / 2))
        return PyErr_Format(PyExc_ValueError, "Rows.numbers: expected a number of rows >= 0");
    if (!idle(self))
        return NULL;
    if (given) {
        rows->mass = mass;
        rows->age = age;
        rows->count = count;
        rows->faded = faded;
        rows->due = due;
    }
    return Py_BuildValue("(ddndd)", rows->mass, rows->age, (Py_ssize_t)rows->count, rows->faded,
                         rows->due);
}

/* learn_one(x, y, weight[, passed]): return whether the row was learned; if not, the state is
   unchanged. */
static PyObject *learn_one(Object *self, PyObject *const *args, Py_ssize_t count)
{
    double *targets = self->row + self->rows.d, weight, passed = 0.0;
    if (count != 3 && count != 4)
        return PyErr_Format(PyExc_TypeError, "Rows.learn_one: expected x, y, weight and time");
    if (self->timed != (count == 4) ||
        (self->timed && !((passed = read_number(&self->reading, args[3])) >= 0.0)))
        Py_RETURN_FALSE;
    if (!idle(self))
        return NULL;
    if (!read_example(&self->reading, args, self->row, targets, &weight))
        Py_RETURN_FALSE;
    if (self->turn.busy) /* code run to read the row may have changed this */
        Py_RETURN_FALSE;
    PyThreadState *state = leave(self, 1);
    const unsigned mode = flush_subnormals();
    const int good =
        self->timed ? (int)rows_learn_at(&self->rows, 1, self->row, targets, &weight, &passed,
                                         self->predictions)
                    : rows_learn_one(&self->rows, self->row, targets, weight, self->predictions);
    restore_mode(mode);
    enter(self, state);
    self->seen += good;
    self->fresh = 0;
    if (good && calibration_due(&self->calibration))
        calibrate_errors(&self->calibration, self->rows.c, targets, self->predictions);
    return PyBool_FromLong(good);
}

/* Compute the current weights and offset: a prediction is (x - means) weights + offset. */
static void refresh(Object *self)
{
    Rows *rows = &self->rows;
    const ptrdiff_t d = rows->d, c = rows->c;
    double *offset = self->weights + d * c;
    rows_solve(rows);
    memcpy(offset, rows->rest + d, c * sizeof *offset);
    for (ptrdiff_t j = 0, i = 0; j < d; j++)
        for (ptrdiff_t k = 0; k < c; k++, i++) {
            self->weights[i] = rows->start[i] + rows->w[i];
            offset[k] -= rows->rest[j] * self->weights[i];
        }
    for (ptrdiff_t k = 0; k < c; k++)
        offset[k] += rows->means[d + k];
    self->fresh = 1;
}

const double *rows_fitted(PyObject *object)
{
    refresh((Object *)object);
    return ((Object *)object)->weights;
}

/* Scores of a row (c). */
static void score(Object *self, const double *x, double *scores)
{
    const ptrdiff_t d = self->rows.d, c = self->rows.c;
    if (!self->fresh && rows_predict(&self->rows, x, scores))
        return;
    if (!self->fresh)
        refresh(self);
    memcpy(scores, self->weights + d * c, c * sizeof *scores);
    for (ptrdiff_t j = 0, i = 0; j < d; j++)
        for (ptrdiff_t k = 0; k < c; k++, i++)
            scores[k] += (x[j] - self->rows.means[j]) * self->weights[i];
}

/* The `count` numbers of an array; NULL without an error if their number or type differs, or if one
   is huge. */
static const double *plain(PyObject *given, Py_ssize_t count, Py_buffer *view)
{
    const double *at = numbers_of(given, "d", count, 0, view);
    int good = at != NULL;
    for (Py_ssize_t i = 0; good && i < count; i++)
        good = fabs(at[i]) <= LARGEST;
    if (at && !good)
        PyBuffer_Release(view);
    if (!at)
        PyErr_Clear();
    return good ? at : NULL;
}

/* learn_few(n, X, y, errors): return whether the rows were learned; if not, the state is unchanged.
   */
static PyObject *learn_few(Object *self, PyObject *args)
{
    Rows *rows = &self->rows;
    PyObject *given[3];
    Py_buffer view[3];
    Py_ssize_t n;
    int good = 0;
    if (!PyArg_ParseTuple(args, "nOOO:learn_few", &n, &given[0], &given[1], &given[2]))
        return NULL;
    if (n < 1 || n > FEW || self->timed)
        Py_RETURN_FALSE;
    if (!idle(self))
        return NULL;
    double *errors = numbers_of(given[2], "d", n * rows->c, 1, &view[2]);
    if (!errors)
        return NULL;
    const double *X = plain(given[0], n * rows->d, &view[0]);
    const double *Y = X ? plain(given[1], n * rows->c, &view[1]) : NULL;
    if (Y && !self->turn.busy) { /* changed by code run to read X */
        PyThreadState *state = leave(self, n);
        const unsigned mode = flush_subnormals();
        good = rows_learn_few(rows, n, X, Y, NULL, errors);
        restore_mode(mode);
        enter(self, state);
        self->seen += good ? n : 0;
        self->fresh = 0;
    }
    if (Y)
        PyBuffer_Release(&view[1]);
    if (X)
        PyBuffer_Release(&view[0]);
    PyBuffer_Release(&view[2]);
    return PyBool_FromLong(good);
}

/* predict_one(x): the prediction; None if Python must handle the row. */
static PyObject *predict_one(Object *self, PyObject *x)
{
    if (!idle(self))
        return NULL;
    if (!read_row(&self->reading, x, self->row) || self->turn.busy)
        Py_RETURN_NONE;
    score(self, self->row, self->predictions);
    return prediction_object(&self->reading, self->predictions);
}

/* predict_std(x): a numeric prediction and its standard deviation; None if Python must handle the
   row. */
static PyObject *predict_std(Object *self, PyObject *x)
{
    Rows *rows = &self->rows;
    if (!idle(self))
        return NULL;
    if (self->reading.labels != Py_None || !read_row(&self->reading, x, self->row) ||
        self->turn.busy)
        Py_RETURN_NONE;
    score(self, self->row, self->predictions);
    PyObject *mean = number_object(&self->reading, self->predictions);
    if (!mean)
        return NULL;
    const double spare = rows->mass - (double)rows->d - (rows->free ? 1.0 : 0.0);
    double spread = INFINITY;
    if (spare > 0.0)
        spread = 1.0 + rows_leverage(rows, self->row) + (rows->free ? 1.0 / rows->mass : 0.0);
    for (ptrdiff_t k = 0; k < rows->c; k++)
        self->predictions[k] =
            isfinite(spread) ? sqrt(spread * rows->squares[k] / spare) : INFINITY;
    PyObject *std = number_object(&self->reading, self->predictions);
    return std ? Py_BuildValue("(NN)", mean, std) : (Py_DECREF(mean), NULL);
}

/* fitted(weights, center, offset): write the state from which predictions are computed. */
static PyObject *fitted(Object *self, PyObject *args)
{
    const ptrdiff_t d = self->rows.d, c = self->rows.c;
    const Py_ssize_t sizes[] = {d * c, d, c};
    Arrays a;
    if (!PyArg_ParseTuple(args, "OOO:fitted", &a.given[0], &a.given[1], &a.given[2]))
        return NULL;
    const int good = acquire_arrays(&a, 3, "ddd", sizes, 7, 6) && idle(self);
    if (good) {
        if (!self->fresh)
            refresh(self);
        const double *from[] = {self->weights, self->rows.means, self->weights + d * c};
        for (int i = 0; i < 3; i++)
            if (a.at[i])
                memcpy(a.at[i], from[i], sizes[i] * sizeof(double));
    }
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}

/* Sort rows by the state that learns them, in order; codes below 0 are left out. Returns the
   indices of the rows, and the end of those of each state in `ends`, both to be freed by
   PyMem_Free; NULL with an error if a code is wrong. */
static int *sorted(Py_ssize_t n, const int *codes, Py_ssize_t count, int **ends)
{
    int *order = PyMem_Malloc((n + 1) * sizeof *order), *at = PyMem_Calloc(count + 1, sizeof *at);
    int good = order && at;
    for (Py_ssize_t i = 0; good && i < n; i++) {
        good = codes[i] < count;
        if (good && codes[i] >= 0)
            at[codes[i] + 1]++;
    }
    if (!good) {
        PyErr_Format(order && at ? PyExc_ValueError : PyExc_MemoryError,
                     "Rows.learn_packed: expected codes below %zd", count);
        PyMem_Free(order);
        PyMem_Free(at);
        return NULL;
    }
    for (Py_ssize_t g = 0; g < count; g++)
        at[g + 1] += at[g];
    for (Py_ssize_t i = 0; i < n; i++)
        if (codes[i] >= 0)
            order[at[codes[i]]++] = (int)i;
    *ends = at;
    return order;
}

/* learn_packed(n, count, codes, states, X, Y, weights, errors, learned) */
static PyObject *learn_packed(Object *self, PyObject *args)
{
    Rows *rows = &self->rows;
    const ptrdiff_t d = rows->d, c = rows->c, size = packed_size(rows);
    Arrays a;
    Py_ssize_t n, count;
    if (!PyArg_ParseTuple(args, "nnOOOOOOO:learn_packed", &n, &count, &a.given[0], &a.given[1],
                          &a.given[2], &a.given[3], &a.given[4], &a.given[5], &a.given[6]))
        return NULL;
    const Py_ssize_t targets = numbers_in(n, c);
    const Py_ssize_t sizes[] = {n < INT_MAX ? n : -1, numbers_in(count, size), numbers_in(n, d),
                                targets, n, targets, count};
    int *order = NULL, *ends = NULL;
    double *work = NULL;
    if (acquire_arrays(&a, 7, "idddddi", sizes, 1 << 1 | 1 << 5 | 1 << 6, 1 << 4) && idle(self) &&
        (order = sorted(n, a.at[0], count, &ends)) &&
        !(work = PyMem_Malloc(GATHERED * (d + 2 * c + 1) * sizeof *work)))
        PyErr_NoMemory();
    if (work) {
        double *states = a.at[1];
        int *learned = a.at[6];
        PyThreadState *state = begin(&self->turn, 1);
        const unsigned mode = flush_subnormals();
        for (Py_ssize_t g = 0, first = 0; g < count; first = ends[g++])
            learned[g] = (int)packed_learn(rows, states + g * size, ends[g] - first, order + first,
                                           a.at[2], a.at[3], a.at[4], a.at[5], work);
        restore_mode(mode);
        finish(&self->turn, state);
        self->fresh = 0;
    }
    PyMem_Free(order);
    PyMem_Free(ends);
    PyMem_Free(work);
    release_arrays(&a);
    return work ? Py_NewRef(Py_None) : NULL;
}

/* fitted_packed(count, states, weights, center, offset) */
static PyObject *fitted_packed(Object *self, PyObject *args)
{
    const ptrdiff_t d = self->rows.d, c = self->rows.c, size = packed_size(&self->rows);
    Arrays a;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "nOOOO:fitted_packed", &count, &a.given[0], &a.given[1],
                          &a.given[2], &a.given[3]))
        return NULL;
    const Py_ssize_t sizes[] = {numbers_in(count, size), numbers_in(count, d * c),
                                numbers_in(count, d), numbers_in(count, c)};
    const int good = acquire_arrays(&a, 4, "dddd", sizes, 14, 0) && idle(self);
    double *weights = a.at[1], *center = a.at[2], *offset = a.at[3];
    for (Py_ssize_t g = 0; good && g < count; g++) {
        packed_load(&self->rows, (const double *)a.at[0] + g * size);
        refresh(self);
        memcpy(weights + g * d * c, self->weights, d * c * sizeof *weights);
        memcpy(center + g * d, self->rows.means, d * sizeof *center);
        memcpy(offset + g * c, self->weights + d * c, c * sizeof *offset);
    }
    self->fresh = 0;
    release_arrays(&a);
    return good ? Py_NewRef(Py_None) : NULL;
}

/* A new object with work space; `rows` is not open. Returns NULL with an error on failure. */
static Object *create(PyTypeObject *type, Py_ssize_t d, Py_ssize_t c)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Object *self = (Object *)alloc(type, 0);
    if (!self)
        return NULL;
    self->constants = Py_NewRef(Py_None);
    self->row = PyMem_Calloc(d + 3 * c + d * c, sizeof(double));
    if (!self->row) {
        Py_DECREF(self);
        return (Object *)PyErr_NoMemory();
    }
    self->predictions = self->row + d + c;
    self->weights = self->predictions + c;
    return self;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *format;
    double factor, level;
    Py_ssize_t d, c, period;
    int free_;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "nnpddnO:Rows", &d, &c, &free_, &factor, &level, &period, &format))
        return NULL;
    const int sizes = d >= 1 && d <= WIDEST && c >= 1 && c <= WIDEST && period >= 1;
    if (!sizes || !(factor >= 0.0 && factor <= 1.0))
        return PyErr_Format(PyExc_ValueError, "Rows: sizes must be >= 1, and factor in [0, 1]");
    Object *self = create(type, d, c);
    if (!self)
        return NULL;
    if (!reading_open(&self->reading, d, c, format) || !rows_open(&self->rows, d, c)) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    self->nbytes = (d * (d + 1) / 2 + 5 * d + 2 * d * c + c + 2 * (d + c)) * 8;
    self->rows.free = free_;
    self->timed = factor == 0.0;
    self->rows.factor = self->timed ? 1.0 : factor;
    self->rows.step = -log2(self->rows.factor);
    self->rows.level = level;
    self->rows.period = period;
    return (PyObject *)self;
}

static PyObject *copy(Object *self, PyObject *unused)
{
    (void)unused;
    if (!idle(self))
        return NULL;
    Object *twin = create(Py_TYPE((PyObject *)self), self->rows.d, self->rows.c);
    if (!twin)
        return NULL;
    if (!rows_copy(&twin->rows, &self->rows)) {
        Py_DECREF(twin);
        return PyErr_NoMemory();
    }
    reading_copy(&twin->reading, &self->reading);
    Py_DECREF(twin->constants);
    twin->constants = Py_NewRef(self->constants);
    twin->timed = self->timed;
    twin->seen = self->seen;
    twin->calibration = self->calibration;
    twin->nbytes = self->nbytes;
    return (PyObject *)twin;
}

PyObject *rows_twin(PyObject *object)
{
    return copy((Object *)object, NULL);
}

static PyObject *snapshot(Object *self, PyObject *unused)
{
    if (!idle(self))
        return NULL;
    pending_flush(&self->rows);
    return copy(self, unused);
}

static void drop(Object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    rows_close(&self->rows);
    PyMem_Free(self->row);
    reading_close(&self->reading);
    Py_XDECREF(self->constants);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

Rows *rows_of(PyObject *object, Py_ssize_t *nbytes)
{
    if (PyType_GetSlot(Py_TYPE(object), Py_tp_dealloc) != (void *)drop) {
        PyErr_Format(PyExc_TypeError, "expected an object of the type Rows");
        return NULL;
    }
    *nbytes += ((Object *)object)->nbytes;
    return &((Object *)object)->rows;
}

static PyMethodDef methods[] = {
    {"put", (PyCFunction)put, METH_VARARGS, "put(name, doubles): set a part of the state."},
    {"get", (PyCFunction)get, METH_O, "get(name): return a copy of a part of the state, as bytes."},
    {"triangle", (PyCFunction)triangle, METH_VARARGS,
     "triangle(R.T, z, out[, D]): copy in, or out; U.T and theta if D is given."},
    {"numbers", (PyCFunction)numbers, METH_VARARGS,
     "numbers([mass, age, count[, faded, due]]): set, and return them."},
    {"snapshot", (PyCFunction)snapshot, METH_NOARGS,
     "snapshot(): add all pending rows to the triangle; return a copy."},
    {"copy", (PyCFunction)copy, METH_NOARGS, "copy(): return an independent copy."},
    {"__deepcopy__", (PyCFunction)copy, METH_O, "Return an independent copy."},
    {"fitted", (PyCFunction)fitted, METH_VARARGS,
     "fitted(weights, center, offset): write the state of predictions; the last two may be None."},
    {"learn", (PyCFunction)learn, METH_VARARGS,
     "learn(n, X, Y, weights, errors[, passed]): return the number of rows learned, or -1."},
    {"learn_one", (PyCFunction)(void (*)(void))learn_one, METH_FASTCALL,
     "learn_one(x, y, weight[, passed]): return whether the row was learned."},
    {"learn_few", (PyCFunction)learn_few, METH_VARARGS,
     "learn_few(n, X, y, errors): return whether the rows were learned."},
    {"learn_packed", (PyCFunction)learn_packed, METH_VARARGS,
     "learn_packed(n, count, codes, states, X, Y, weights, errors, learned): learn rows in many "
     "states."},
    {"fitted_packed", (PyCFunction)fitted_packed, METH_VARARGS,
     "fitted_packed(count, states, weights, center, offset): write what predictions need."},
    {"predict_one", (PyCFunction)predict_one, METH_O,
     "predict_one(x): return the prediction, or None."},
    {"predict_std", (PyCFunction)predict_std, METH_O,
     "predict_std(x): return the prediction and its standard deviation, or None."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"d", T_PYSSIZET, offsetof(Object, rows.d), READONLY, "Number of features."},
    {"c", T_PYSSIZET, offsetof(Object, rows.c), READONLY, "Number of outputs."},
    {"seen", T_PYSSIZET, offsetof(Object, seen), READONLY, "Rows learned one by one."},
    {"nbytes", T_PYSSIZET, offsetof(Object, nbytes), READONLY, "Bytes of the state."},
    {"constants", T_OBJECT, offsetof(Object, constants), 0, "Parts that rows do not change."},
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

PyType_Spec rows_spec = {"onepass._compiled.Rows", sizeof(Object), 0, Py_TPFLAGS_DEFAULT, slots};
