/* The Python type Kernel, documented in onepass/native.py: kernel RLS, row by row.
 *
 * The equations are in onepass/learners/kernel_rls.py. The columns of S, the means of each output
 * and the values of each feature are rows of `room` numbers. The last update of S is completed when
 * S is read for the next row, so that each row passes over S once.
 */
#include "buffers.h"

#include <structmember.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "calibration.h"
#include "machine.h"
#include "reading.h"

enum { MAX_ROOM = 1024, SPARE = 64, MOVING = 14, PARTS = 20, TOGETHER = 8 };
enum { RBF, LAPLACIAN, LINEAR, POLYNOMIAL }; /* as in kernel_rls.py */
static const double LEAST = 1e-100, LARGE = 1e100; /* as in kernel_rls.py */

typedef struct {
    PyObject_HEAD
    Reading reading;
    Calibration calibration;
    Py_ssize_t d, c, m, k, seen, pruned, room, width, nbytes;
    int kernel, ready, inverted; /* whether `q` is that of row `x`, and `inverse` is valid */
    double gamma, degree, coef0, noise, tolerance, budget, mass, own, late;
    void *memory, *fixed; /* of the first parts, and of those that do not depend on m */
    union {
        struct {
            double *points, *L, *mean, *S, *trial;                 /* matrices */
            double *inverse, *q, *G, *next, *u, *v, *near, *after; /* (room) */
            double *F;                                             /* (width) */
            double *squares, *scores, *errors, *target;            /* (c) */
            double *x, *row;                                       /* (d) */
        };
        double *parts[PARTS];
    };
} Object;

static const size_t HEAD = offsetof(Object, reading);

/* Rows and columns of each part. */
static void measure(const Object *s, Py_ssize_t (*sizes)[2])
{
    const Py_ssize_t rows[] = {s->d, s->room, s->c, s->width, s->c};
    for (int i = 0; i < PARTS; i++) {
        sizes[i][0] = i < 5 ? rows[i] : 1;
        sizes[i][1] = i < 13 ? s->room : i < MOVING ? s->width : i < 18 ? s->c : s->d;
    }
}

/* Move the parts to new memory with more room, from an object of the same sizes; returns success,
   in which case the former memory of `s` is freed. */
static int move(Object *s, const Object *from, Py_ssize_t room, Py_ssize_t width)
{
    Object to = *s;
    Py_ssize_t were[PARTS][2], now[PARTS][2];
    double **at[PARTS];
    size_t sizes[PARTS];
    measure(from, were);
    to.room = room, to.width = width, to.nbytes = 0;
    measure(&to, now);
    for (int i = 0; i < PARTS; i++) {
        at[i] = &to.parts[i];
        sizes[i] = (size_t)(now[i][0] * now[i][1]);
        to.nbytes += (Py_ssize_t)(sizes[i] * sizeof(double));
    }
    to.memory = room_for(at, sizes, MOVING, 1);
    if (!s->fixed)
        to.fixed = room_for(at + MOVING, sizes + MOVING, PARTS - MOVING, 1);
    if (!to.memory || !to.fixed) {
        free(to.memory);
        free(s->fixed ? NULL : to.fixed);
        return 0;
    }
    for (int i = 0; from->memory && i < (s->fixed ? MOVING : PARTS); i++)
        for (Py_ssize_t r = 0; r < were[i][0]; r++)
            memcpy(to.parts[i] + r * now[i][1], from->parts[i] + r * were[i][1],
                   (size_t)were[i][1] * sizeof(double));
    free(s->memory);
    memcpy((char *)s + HEAD, (char *)&to + HEAD, sizeof to - HEAD);
    return 1;
}

/* Make room for a row that joins; returns 0 if Python must learn it. */
static int reserve(Object *s)
{
    const Py_ssize_t more = edge(s->m + s->m / 4 + 2 * WIDE);
    const Py_ssize_t room = s->m < s->room ? s->room : more < MAX_ROOM ? more : MAX_ROOM;
    return (s->m < s->room && s->k < s->width) ||
           (s->m < room && move(s, s, room, s->k - s->m + room + SPARE));
}

/* v <- L^-1 v, whose numbers before `first` are 0. */
WITHIN void solve(const Object *s, double *v, ptrdiff_t first)
{
    for (ptrdiff_t i = first; i < s->m; i++) {
        const double *row = s->L + i * s->room;
        v[i] = (v[i] - product(row + first, v + first, i - first)) / row[i];
    }
}

/* v <- L^-T v, and the same for w unless it is NULL. */
WITHIN void solve_transposed(const Object *s, double *restrict v, double *restrict w)
{
    for (ptrdiff_t i = s->m - 1; i >= 0; i--) {
        const double *restrict row = s->L + i * s->room, by = v[i] /= row[i];
        const double other = w ? w[i] /= row[i] : 0.0;
        const ptrdiff_t count = w ? i : 0;
        for (ptrdiff_t j = 0; j < i; j++)
            v[j] -= by * row[j];
        for (ptrdiff_t j = 0; j < count; j++)
            w[j] -= other * row[j];
    }
}

/* Compute the features q and the scores of a row; returns 0 if Python must handle it. */
EVERY_MACHINE static int prepare(Object *s, const double *x)
{
    const ptrdiff_t d = s->d, m = s->m;
    const int kernel = s->kernel;
    double *restrict q = s->q, own = 0.0, sum = 0.0;
    if (s->ready && !memcmp(x, s->x, (size_t)d * sizeof *x))
        return 1;
    memset(q, 0, (size_t)m * sizeof *q);
    for (ptrdiff_t j = 0; j < d; j++) {
        const double *restrict p = s->points + j * s->room, z = x[j];
        own += z * z;
        for (ptrdiff_t i = 0; i < m; i++)
            q[i] += kernel == RBF         ? (p[i] - z) * (p[i] - z)
                    : kernel == LAPLACIAN ? fabs(p[i] - z)
                                          : p[i] * z;
    }
    if (kernel == POLYNOMIAL) {
        own = pow(s->gamma * own + s->coef0, s->degree);
        for (ptrdiff_t i = 0; i < m; i++)
            q[i] = pow(s->gamma * q[i] + s->coef0, s->degree);
    } else if (kernel != LINEAR) {
        own = 1.0;
        for (ptrdiff_t i = 0; i < m; i++)
            q[i] = exp(-s->gamma * q[i]);
    }
    solve(s, q, 0);
    for (ptrdiff_t i = 0; i < s->c; i++) {
        s->scores[i] = product(q, s->mean + i * s->room, m);
        sum += 0.0 * s->scores[i];
    }
    memcpy(s->x, x, (size_t)d * sizeof *x);
    s->own = own;
    s->ready = sum == 0.0 && own < LARGE;
    return s->ready;
}

/* Complete the last update of column j of S. */
WITHIN double *completed(const Object *s, ptrdiff_t j)
{
    double *restrict column = s->S + j * s->room;
    const double *restrict G = s->G, by = s->late * s->F[j];
    if (s->late != 0.0) /* F may be infinite after a refused row */
        for (ptrdiff_t i = 0; i < s->m; i++)
            column[i] -= by * G[i];
    return column;
}

EVERY_MACHINE static void complete(Object *s)
{
    for (ptrdiff_t j = 0; j < s->k; j++)
        completed(s, j);
    s->late = 0.0;
}

/* F = S^T q and G = S F; returns F^T F. */
WITHIN double products(Object *s)
{
    const ptrdiff_t m = s->m;
    double *restrict next = s->next, all = 0.0;
    memset(next, 0, (size_t)m * sizeof *next);
    for (ptrdiff_t j = 0; j < s->k; j++) {
        const double *restrict column = completed(s, j);
        const double f = s->F[j] = product(column, s->q, m);
        for (ptrdiff_t i = 0; i < m; i++)
            next[i] += f * column[i];
        all += f * f;
    }
    s->next = s->G;
    s->G = next;
    s->late = 0.0;
    return all;
}

/* The row of the dictionary with the smallest change (5) after an update, if a row with this
   novelty joins; -1 if that is the new row. u <- L^-T q / sqrt(novelty). */
WITHIN ptrdiff_t smallest(Object *s, double novelty, double total)
{
    const ptrdiff_t m = s->m, room = s->room;
    double *u = s->u, *v = s->v, least = 0.0;
    ptrdiff_t found = -1;
    for (ptrdiff_t i = 0; !s->inverted && i < m; i++) {
        memset(v, 0, (size_t)m * sizeof *v);
        v[i] = 1.0;
        solve(s, v, i);
        s->inverse[i] = product(v + i, v + i, m - i);
    }
    s->inverted = 1;
    for (ptrdiff_t i = 0; i < m; i++)
        u[i] = s->q[i] / sqrt(novelty);
    memset(v, 0, (size_t)m * sizeof *v);
    for (ptrdiff_t o = 0; o < s->c; o++) {
        const double gain = s->errors[o] / total;
        double *t = s->trial + o * room;
        for (ptrdiff_t i = 0; i < m; i++)
            t[i] = s->mean[o * room + i] + gain * (s->G[i] - s->q[i]);
        solve_transposed(s, t, o ? NULL : u);
        for (ptrdiff_t i = 0; i < m; i++)
            v[i] += t[i] * t[i];
        least += gain * gain * novelty;
    }
    for (ptrdiff_t i = 0; i < m; i++)
        if (v[i] / (s->inverse[i] + u[i] * u[i]) < least) {
            least = v[i] / (s->inverse[i] + u[i] * u[i]);
            found = i;
        }
    return found;
}

/* Rows of m numbers times H, without the last number. */
WITHIN void turn(const Object *s, double *x, int rows, ptrdiff_t i, ptrdiff_t m)
{
    double sums[TOGETHER] = {0.0};
    for (ptrdiff_t j = i; j < m - 1; j++)
        for (int r = 0; r < rows; r++) {
            double *at = x + r * s->room + j;
            sums[r] += s->v[j] * at[0];
            at[0] = s->near[j] * at[1] - s->after[j] * sums[r];
        }
}

/* Drop row i of the dictionary. */
WITHIN void drop(Object *s, ptrdiff_t i)
{
    const ptrdiff_t m = s->m, room = s->room;
    double *v = s->v, *u = s->u, square;
    memset(v, 0, (size_t)m * sizeof *v);
    v[i] = 1.0;
    solve(s, v, i);
    memcpy(u, v, (size_t)m * sizeof *u);
    solve_transposed(s, u, NULL);
    for (ptrdiff_t j = 0; j < m; j++)
        s->inverse[j] = fmax(s->inverse[j] - u[j] * u[j] / u[i], DBL_MIN);
    square = v[i] * v[i];
    for (ptrdiff_t j = i; j < m - 1; j++) {
        const double norm = sqrt(square), wider = sqrt(square += v[j + 1] * v[j + 1]);
        s->near[j] = norm / wider;
        s->after[j] = v[j + 1] / wider / norm;
    }
    for (ptrdiff_t j = 0; j < s->k; j++) {
        completed(s, j);
        if (j % TOGETHER == TOGETHER - 1)
            turn(s, s->S + (j + 1 - TOGETHER) * room, TOGETHER, i, m);
        else if (j >= s->k - s->k % TOGETHER)
            turn(s, s->S + j * room, 1, i, m);
    }
    s->late = 0.0;
    for (ptrdiff_t o = 0; o < s->c; o++)
        turn(s, s->mean + o * room, 1, i, m);
    for (ptrdiff_t r = i + 1; r < m; r++) {
        double *row = s->L + r * room;
        turn(s, row, 1, i, r + 1);
        memcpy(row - room, row, (size_t)r * sizeof *row);
    }
    for (ptrdiff_t j = -1; j < s->d; j++) {
        double *row = j < 0 ? s->inverse : s->points + j * room;
        memmove(row + i, row + i + 1, (size_t)(m - 1 - i) * sizeof *row);
    }
    s->m--;
    s->inverted = ++s->pruned % m != 0; /* computed anew, since errors add up */
}

/* Learn one row, and write its errors; returns 0 if Python must learn it. */
EVERY_MACHINE static int learn(Object *s, const double *x, const double *y, double weight)
{
    if (!(weight >= LEAST) || !prepare(s, x))
        return 0;
    const int full = (double)s->m >= s->budget;
    const double novelty = fmax(s->own - product(s->q, s->q, s->m), 0.0);
    int joins = novelty > s->tolerance * s->own;
    const double r = s->noise / weight, squares = products(s), total = squares + novelty + r;
    for (ptrdiff_t o = 0; o < s->c; o++) {
        const double e = s->errors[o] = y[o] - s->scores[o];
        if (!(fabs(e) < LARGE && fabs(e / total) < LARGE && squares < LARGE && total < LARGE))
            return 0;
    }
    const ptrdiff_t dropped = joins && full ? smallest(s, novelty, total) : -1;
    joins = joins && (!full || dropped >= 0);
    if (dropped >= 0 && s->k > s->m + (s->m / 2 > SPARE ? s->m / 2 : SPARE))
        return 0; /* NumPy reduces the columns of S */
    if (joins) {
        const ptrdiff_t m = s->m++, k = s->k++, room = s->room;
        const double root = sqrt(novelty);
        memcpy(s->L + m * room, s->q, (size_t)m * sizeof(double));
        s->L[m * room + m] = s->F[k] = s->G[m] = root;
        memset(s->S + k * room, 0, (size_t)m * sizeof(double));
        for (ptrdiff_t j = 0; j <= k; j++)
            s->S[j * room + m] = j == k;
        for (ptrdiff_t o = 0; o < s->c; o++)
            s->mean[o * room + m] = 0.0;
        for (ptrdiff_t j = 0; j < s->d; j++)
            s->points[j * room + m] = x[j];
        for (ptrdiff_t i = 0; full && i < m; i++)
            s->inverse[i] += s->u[i] * s->u[i];
        s->inverse[m] = 1.0 / novelty;
        s->inverted = full;
    }
    s->late = 1.0 / (total + sqrt(total * (joins ? r : r + novelty))); /* (3) */
    for (ptrdiff_t o = 0; o < s->c; o++) {
        double *restrict mean = s->mean + o * s->room;
        const double *restrict G = s->G, gain = s->errors[o] / total;
        for (ptrdiff_t i = 0; i < s->m; i++)
            mean[i] += gain * G[i];
        s->squares[o] += s->errors[o] * gain;
    }
    s->mass += 1.0;
    s->ready = 0;
    if (dropped >= 0)
        drop(s, dropped);
    return 1;
}

/* `learn`, with enough room and subnormal numbers as zero. */
static int learn_quickly(Object *s, const double *x, const double *y, double weight)
{
    const unsigned mode = flush_subnormals();
    const int learned = reserve(s) && learn(s, x, y, weight);
    restore_mode(mode);
    return learned;
}

/* learn_one(x, y, weight): return whether the row was learned; if not, the state is unchanged. */
static PyObject *learn_one(Object *self, PyObject *const *args, Py_ssize_t count)
{
    double weight;
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "Kernel.learn_one: expected x, y and weight");
    if (!read_example(&self->reading, args, self->row, self->target, &weight) ||
        !learn_quickly(self, self->row, self->target, weight))
        Py_RETURN_FALSE;
    self->seen++;
    if (calibration_due(&self->calibration)) {
        self->calibration.next = next_calibrated(self->calibration.row);
        calibrate_errors(calibration_of(&self->calibration, self->c), self->c, self->target,
                         self->errors, weight);
    }
    Py_RETURN_TRUE;
}

/* learn(x, y, weight, errors): the same for arrays, without counting or calibrating. */
static PyObject *learn_arrays(Object *self, PyObject *args)
{
    Arrays a;
    double weight;
    if (!PyArg_ParseTuple(args, "OOdO:learn", &a.given[0], &a.given[1], &weight, &a.given[2]))
        return NULL;
    const Py_ssize_t sizes[] = {self->d, self->c, self->c};
    const int good = acquire_arrays(&a, 3, "ddd", sizes, 1 << 2, 0);
    const int learned = good && learn_quickly(self, a.at[0], a.at[1], weight);
    if (learned)
        memcpy(a.at[2], self->errors, (size_t)self->c * sizeof(double));
    release_arrays(&a);
    self->calibration.row += learned;
    return good ? PyBool_FromLong(learned) : NULL;
}

/* Compute the scores of a row; returns 0 if Python must handle it. */
static int read_and_score(Object *self, PyObject *x)
{
    if (!read_row(&self->reading, x, self->row))
        return 0;
    const unsigned mode = flush_subnormals();
    const int good = prepare(self, self->row);
    restore_mode(mode);
    return good;
}

/* predict_one(x): the prediction; None if Python must handle the row. */
static PyObject *predict_one(Object *self, PyObject *x)
{
    if (!read_and_score(self, x))
        Py_RETURN_NONE;
    return prediction_object(&self->reading, self->scores);
}

/* predict_proba_one(x): the probabilities by label; None if Python must handle the row. */
static PyObject *predict_proba_one(Object *self, PyObject *x)
{
    if (!read_and_score(self, x))
        Py_RETURN_NONE;
    return probabilities_object(&self->reading, self->scores,
                                calibration_of(&self->calibration, self->c));
}

/* The live numbers of the parts of the state, in the order of `get`. */
static void live(const Object *s, Py_ssize_t (*sizes)[2], double **parts)
{
    const Py_ssize_t rows[] = {s->d, s->m, s->c, s->k, 1, 1}, m = s->m;
    double *const at[] = {s->points, s->L, s->mean, s->S, s->inverse, s->squares};
    for (int i = 0; i < 6; i++) {
        sizes[i][0] = rows[i];
        sizes[i][1] = i < 4 ? m : i < 5 ? (s->inverted ? m : 0) : s->c;
        parts[i] = at[i];
    }
}

/* get(): (m, k, pruned, mass, points, L, mean, S, inverse, squares), arrays as bytes. */
static PyObject *get(Object *self, PyObject *unused)
{
    Py_ssize_t sizes[6][2];
    double *parts[6];
    PyObject *made[6] = {NULL};
    (void)unused;
    complete(self);
    live(self, sizes, parts);
    for (int i = 0; i < 6; i++) {
        const Py_ssize_t n = sizes[i][1] * (Py_ssize_t)sizeof(double);
        made[i] = PyBytes_FromStringAndSize(NULL, sizes[i][0] * n);
        for (Py_ssize_t r = 0; made[i] && r < sizes[i][0]; r++)
            memcpy(PyBytes_AsString(made[i]) + r * n, parts[i] + r * self->room, (size_t)n);
    }
    return Py_BuildValue("(nnndNNNNNN)", self->m, self->k, self->pruned, self->mass, made[0],
                         made[1], made[2], made[3], made[4], made[5]);
}

static Object *create(PyTypeObject *type)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return (Object *)alloc(type, 0);
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Object *s = create(type);
    Arrays a;
    PyObject *format;
    Py_ssize_t shape[6][2];
    double *parts[6];
    (void)kwargs;
    if (!s)
        return NULL;
    if (!PyArg_ParseTuple(args, "idddddd(nn)Onnnpd(OOOOOO):Kernel", &s->kernel, &s->gamma,
                          &s->degree, &s->coef0, &s->noise, &s->tolerance, &s->budget, &s->d,
                          &s->c, &format, &s->m, &s->k, &s->pruned, &s->inverted, &s->mass,
                          &a.given[0], &a.given[1], &a.given[2], &a.given[3], &a.given[4],
                          &a.given[5]))
        goto failed;
    if (s->d < 1 || s->c < 1 || s->m < 0 || s->m > MAX_ROOM || s->k < s->m || s->k > 2 * MAX_ROOM ||
        numbers_in(s->d, 2 * MAX_ROOM) < 0 || numbers_in(s->c, 2 * MAX_ROOM) < 0) {
        PyErr_SetString(PyExc_ValueError, "Kernel: a size is out of range");
        goto failed;
    }
    if (!reading_open(&s->reading, s->d, s->c, format))
        goto failed;
    const Py_ssize_t room = edge(s->m + 2 * WIDE);
    if (!move(s, s, room, s->k - s->m + room + SPARE)) {
        PyErr_NoMemory();
        goto failed;
    }
    live(s, shape, parts);
    Py_ssize_t sizes[6];
    for (int i = 0; i < 6; i++)
        sizes[i] = numbers_in(shape[i][0], shape[i][1]);
    const int good = acquire_arrays(&a, 6, "dddddd", sizes, 0, 0);
    for (int i = 0; good && i < 6; i++)
        for (Py_ssize_t r = 0; r < shape[i][0]; r++)
            memcpy(parts[i] + r * room, (double *)a.at[i] + r * shape[i][1],
                   (size_t)shape[i][1] * sizeof(double));
    release_arrays(&a);
    if (good)
        return (PyObject *)s;
failed:
    Py_DECREF(s);
    return NULL;
}

static PyObject *copy(Object *self, PyObject *unused)
{
    Object *twin = create(Py_TYPE((PyObject *)self));
    (void)unused;
    if (!twin)
        return NULL;
    memcpy((char *)twin + HEAD, (char *)self + HEAD, sizeof *self - HEAD);
    reading_copy(&twin->reading, &self->reading);
    twin->memory = twin->fixed = NULL;
    const int fitted = calibration_copy(&twin->calibration, &self->calibration);
    if (fitted && move(twin, self, self->room, self->width))
        return (PyObject *)twin;
    Py_DECREF(twin);
    return PyErr_NoMemory();
}

static void destroy(Object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    free(self->memory);
    free(self->fixed);
    PyMem_Free(self->calibration.state);
    reading_close(&self->reading);
    freefunc free_ = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"copy", (PyCFunction)copy, METH_NOARGS, "copy(): return an independent copy."},
    {"__deepcopy__", (PyCFunction)copy, METH_O, "Return an independent copy."},
    {"get", (PyCFunction)get, METH_NOARGS, "get(): return copies of the state."},
    {"learn", (PyCFunction)learn_arrays, METH_VARARGS, "learn(x, y, weight, errors)."},
    {"learn_one", (PyCFunction)(void (*)(void))learn_one, METH_FASTCALL,
     "learn_one(x, y, weight): return whether the row was learned."},
    {"predict_one", (PyCFunction)predict_one, METH_O,
     "predict_one(x): return the prediction, or None."},
    {"predict_proba_one", (PyCFunction)predict_proba_one, METH_O,
     "predict_proba_one(x): return the probabilities by label, or None."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"d", T_PYSSIZET, offsetof(Object, d), READONLY, "Number of features."},
    {"c", T_PYSSIZET, offsetof(Object, c), READONLY, "Number of outputs."},
    {"m", T_PYSSIZET, offsetof(Object, m), READONLY, "Rows of the dictionary."},
    {"seen", T_PYSSIZET, offsetof(Object, seen), READONLY, "Rows learned."},
    {"nbytes", T_PYSSIZET, offsetof(Object, nbytes), READONLY, "Bytes of the state."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef computed[] = {
    {"calibration", calibration_get, calibration_set, "(row, state), or None; set as (row, size, state).",
     (void *)offsetof(Object, calibration)},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {{Py_tp_new, make},
                              {Py_tp_dealloc, destroy},
                              {Py_tp_methods, methods},
                              {Py_tp_members, members},
                              {Py_tp_getset, computed},
                              {0, NULL}};

PyType_Spec kernel_spec = {"onepass._compiled.Kernel", sizeof(Object), 0, Py_TPFLAGS_DEFAULT,
                           slots};
