/* Recursive least squares on one vector; least_squares.h describes its parts, rotations.h the
   rotations by which rows are added to the triangle.

   Before each row the past fades; then

   - with LEVEL or HELD, the information that has faded is put back in turns: each time the past has
     faded by 2^(-2 / panels), a panel of 8 weights is visited, and pseudo-rows sqrt(delta_j) e_j
     are added, with the target w_j (LEVEL, so that weights do not change) or the initial weight
     (HELD). If f is the share that has faded since the last visit of the panel,

         LEVEL: delta_j = f max(LEVEL tau_j energy_j / active_j, 10 RIDGE),                    (3)
                tau_j = 1 / (P_jj sums_j),
         HELD:  delta_j = f RIDGE,

     where energy_j / active_j is the information about w_j of a mean row that excites its feature,
     if all other weights are known, and tau_j the share of it that the others do not explain;
   - otherwise, and with HELD if RIDGE is 0, pseudo-rows of 2^-22 of each column, which are added
     before a sudden fade, bound the weights in
     directions in which the past has little information, and the past fades at most to 2^-22 of the
     next row, so that it remains a prior.

   While the rows do not determine all weights, rounding errors exceed a ridge below 1e-15 sums_j.
   With UNITS, pseudo-rows of this weight keep the solution unique: close to the least norm in units
   of the columns. Before rows 2 d, 4 d, 8 d, ... they are removed if the rows determine all
   weights, unless the ridge is HELD. Rank is never decided. */
#include "least_squares.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__GNUC__)
#error "the loops need the vector extensions of GCC or Clang; onepass runs on NumPy without them"
#endif
#if defined(__has_builtin)
#if !__has_builtin(__builtin_shufflevector)
#error "the loops need __builtin_shufflevector, GCC 12 or Clang; onepass runs on NumPy without it"
#endif
#endif

enum { PANEL = 8, GROUP = 8 };
static const double TINY = 1e-307;      /* a smaller D counts as 0: its inverse may overflow */
static const double SUDDEN = -8.0;      /* log2 of a fade at once that leaves only a prior */
static const double FAINT = 0x1p-22;    /* of a row, which the past keeps; of a column, in a prior */
static const double FORGOTTEN = -1e6;  /* log2 of a fade after which nothing remains */
static const double TURN_FADE = -2.0;   /* log2 by which the past fades in a turn of all panels */
static const double HOLD = 10.0;        /* least information of (3), in units of the ridge */
static const double UNIT = 1e-15;       /* least prior: (3e-8 column lengths)^2 */
static const double RAISED = 5.0;       /* factor of sums_j after which this prior is raised */
static const double CLEAR = 1e3;        /* D, in ridges, of a weight that the rows determine */
static const double DEEPEST = -12.0;    /* log2 of the fade within rows that are added together */

typedef struct {
    _Alignas(64) double a[GROUP], gain[GROUP], retain[GROUP];
    int sharp;
} Rotation;

static inline int has(const double *head, int flag) { return ((int)head[FLAGS] & flag) != 0; }

#define NAMED(name) name##_any
#define MACHINE
#define LANES 2
#define MANY 1
#include "rotations.h"
#undef NAMED
#undef MACHINE
#undef LANES
#if defined(__x86_64__)
#define NAMED(name) name##_v3
#define MACHINE __attribute__((target("arch=x86-64-v3")))
#define LANES 4
#include "rotations.h"
#undef NAMED
#undef MACHINE
#undef LANES
#undef MANY
#define NAMED(name) name##_v4
#define MACHINE __attribute__((target("arch=x86-64-v4,prefer-vector-width=512")))
#define LANES 8
#define MANY 2
#include "rotations.h"
#undef NAMED
#undef MACHINE
static int machine;
static int best_machine(void)
{
    if (!machine) {
        __builtin_cpu_init();
        machine = __builtin_cpu_supports("x86-64-v4") ? 4 : __builtin_cpu_supports("x86-64-v3") ? 3 : 1;
    }
    return machine;
}
#define CALL(name, ...)                                                                            \
    (best_machine() == 4   ? name##_v4(__VA_ARGS__)                                                \
     : best_machine() == 3 ? name##_v3(__VA_ARGS__)                                                \
                           : name##_any(__VA_ARGS__))
#else
#define CALL(name, ...) name##_any(__VA_ARGS__)
#endif

/* -- the vector ------------------------------------------------------------------------------- */

static ptrdiff_t stride_of(ptrdiff_t d, ptrdiff_t c) { return (d + c + 7) & -8; }
static ptrdiff_t panels_of(ptrdiff_t d) { return (d + PANEL - 1) / PANEL; }

/* The parts of the vector, whose sizes determine its size. */
static ptrdiff_t parts_of(double *vector, const double *head, LeastSquares *s)
{
    const ptrdiff_t d = head[FEATURES], c = head[OUTPUTS], stride = stride_of(d, c);
    const int bounded = head[LEVEL] > 0.0, visits = bounded || has(head, HELD);
    const int prior = head[PRIOR] > 0.0 || has(head, UNITS);
    const ptrdiff_t sizes[] = {HEAD, d * stride, stride, stride, stride, bounded * stride,
                               bounded * stride, bounded * stride, prior * stride, visits * panels_of(d), has(head, STARTED) * c * d,
                               c, c * d};
    double **parts[] = {&s->head,  &s->T,       &s->sums,  &s->means,   &s->rests, &s->energy,
                        &s->active, &s->last, &s->prior, &s->visited, &s->start, &s->squares, &s->w};
    ptrdiff_t at = 0;
    s->d = d, s->c = c, s->stride = stride;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        *parts[i] = sizes[i] && vector ? vector + at : NULL;
        at += sizes[i];
    }
    return (at + 7) & -8;
}

ptrdiff_t ls_size(const double *head)
{
    LeastSquares s;
    const double d = head[FEATURES], c = head[OUTPUTS];
    if (!(d >= 1.0 && d <= 65536.0 && c >= 1.0 && c <= 65536.0 && d == floor(d) && c == floor(c) &&
          head[FLAGS] >= 0.0 && head[FLAGS] < 256.0))
        return 0;
    return parts_of(NULL, head, &s);
}

ptrdiff_t ls_whole_size(const double *head, ptrdiff_t rows)
{
    return has(head, WINDOW)    ? window_size(head, rows)
           : has(head, MIXTURE) ? mixture_size(head)
                                : ls_size(head);
}

LeastSquares ls_of(double *vector)
{
    LeastSquares s;
    parts_of(vector, vector, &s);
    return s;
}

/* -- reading ---------------------------------------------------------------------------------- */

void ls_solve(const LeastSquares *s)
{
    if (s->head[FRESH] == SOLVED)
        return;
    memset(s->w, 0, s->d * s->c * sizeof *s->w); /* D, on the diagonal of U, is multiplied by 0 */
    for (ptrdiff_t j = s->d - 1; j >= 0; j--)
        for (ptrdiff_t k = 0; k < s->c; k++) {
            double *u = s->T + j * s->stride, *w = s->w + k * s->d;
            w[j] = u[s->d + k] - CALL(dot, u, w, j + 1, s->d);
        }
    s->head[FRESH] = SOLVED;
}

/* Write a row to work space (stride), less the means. */
static void away(const LeastSquares *s, const double *x, double *row)
{
    for (ptrdiff_t j = 0; j < s->d; j++)
        row[j] = (x[j] - s->means[j]) - s->rests[j];
    for (ptrdiff_t l = s->d; l < s->stride; l++)
        row[l] = 0.0;
}

void ls_eliminate(const LeastSquares *s, const double *x, double *scores, double *row)
{
    away(s, x, row);
    CALL(eliminate, s->T, s->d, s->stride, row, 0);
    for (ptrdiff_t k = 0; k < s->c; k++)
        scores[k] = (s->means[s->d + k] - row[s->d + k]) + s->rests[s->d + k];
}

void ls_predict(const LeastSquares *s, const double *x, double *scores, double *row)
{
    const ptrdiff_t d = s->d;
    if (s->head[FRESH] == STALE) { /* half the work of solving, which pays from the next row on */
        ls_eliminate(s, x, scores, row);
        s->head[FRESH] = ELIMINATED;
        return;
    }
    ls_solve(s);
    away(s, x, row);
    for (ptrdiff_t k = 0; k < s->c; k++)
        scores[k] = s->means[d + k] + (CALL(dot, row, s->w + k * d, 0, d) + s->rests[d + k]);
}

double ls_leverage(const LeastSquares *s, const double *row)
{
    double sum = 0.0;
    for (ptrdiff_t j = 0; j < s->d; j++)
        sum += row[j] != 0.0 ? row[j] * row[j] / s->T[j * s->stride + j] : 0.0;
    return sum;
}

void ls_fitted(double *vector, double *weights, double *centre, double *offset)
{
    LeastSquares s = ls_of(vector);
    ls_solve(&s);
    memcpy(weights, s.w, s.d * s.c * sizeof *weights);
    memcpy(centre, s.means, s.d * sizeof *centre);
    for (ptrdiff_t k = 0; k < s.c; k++)
        offset[k] = s.means[s.d + k] + (s.rests[s.d + k] - CALL(dot, s.rests, s.w + k * s.d, 0, s.d));
}

/* -- changing the past ------------------------------------------------------------------------ */

void ls_rescale(LeastSquares *s, double log)
{
    const double by = exp2(log);
    if (log == 0.0)
        return;
    for (ptrdiff_t j = 0; j < s->d; j++) {
        s->T[j * s->stride + j] *= by;
        if (s->prior && s->prior[j] > 0.0) /* 0 are features that no row has excited */
            s->prior[j] = fmax(s->prior[j] * by, TINY);
    }
    for (ptrdiff_t l = 0; l < s->stride; l++)
        s->sums[l] *= by;
    for (ptrdiff_t k = 0; k < s->c; k++)
        s->squares[k] *= by;
    s->head[MASS] *= by;
}

/* Add the pseudo-row e_j of weight q, whose targets are `step` apart, or 0. `row` (stride) is work
   space. */
static void add_pseudo_row(LeastSquares *s, ptrdiff_t j, double q, const double *targets,
                           ptrdiff_t step, double *row)
{
    const ptrdiff_t d = s->d, c = s->c;
    double *u = s->T + j * s->stride, rest = 0.0;
    for (ptrdiff_t l = j + 1; l < d; l++)
        rest += fabs(u[l]);
    memset(row, 0, s->stride * sizeof *row);
    row[j] = 1.0;
    for (ptrdiff_t k = 0; k < c; k++)
        row[d + k] = targets ? targets[k * step] : 0.0;
    s->sums[j] += q;
    if (rest != 0.0)
        q = CALL(rotate_one, s->T, d, s->stride, row, q, j);
    else { /* a feature that no row has excited: O(c) */
        const double after = u[j] + q, over = after > TINY ? 1.0 / after : 0.0;
        for (ptrdiff_t k = 0; k < c; k++) {
            row[d + k] -= u[d + k];
            u[d + k] += q * over * row[d + k];
        }
        q *= over > 0.0 ? u[j] * over : 1.0;
        u[j] = after;
    }
    for (ptrdiff_t k = 0; k < c; k++)
        s->squares[k] += q * row[d + k] * row[d + k];
    s->head[FRESH] = STALE;
}

void ls_add_prior(LeastSquares *s, ptrdiff_t j, double q, double *row)
{
    add_pseudo_row(s, j, q, s->start ? s->start + j : NULL, s->d, row);
}

double *ls_room(ptrdiff_t size, double **memory)
{
    *memory = malloc(size * sizeof **memory + 64);
    return *memory ? *memory + (64 - (uintptr_t)*memory % 64) / sizeof **memory % 8 : NULL;
}

ptrdiff_t ls_work_size(const LeastSquares *s) { return PANEL * (s->stride + 1) + s->c; }

/* A row is predicted before pseudo-rows change the weights. */
typedef struct {
    const double *x;
    double *scores; /* after the work space */
    int done;
} Prediction;

static void predict_before(const LeastSquares *s, Prediction *p, double *row)
{
    if (!p->done)
        ls_eliminate(s, p->x, p->scores, row);
    p->done = 1;
}

/* Put back what has faded of the information about the weights of a panel: (3). `rows` (PANEL,
   stride) is work space, and the weights of the pseudo-rows after it. */
static void visit(LeastSquares *s, ptrdiff_t panel, double *rows)
{
    double *v = s->head, *q = rows + PANEL * s->stride;
    const ptrdiff_t d = s->d, c = s->c, stride = s->stride, first = panel * PANEL;
    const int many = d - first < PANEL ? (int)(d - first) : PANEL;
    const double gone = -expm1((v[FADED] - s->visited[panel]) * M_LN2);
    memset(rows, 0, PANEL * stride * sizeof *rows);
    for (int i = 0; i < many; i++) {
        rows[i * stride + first + i] = 1.0;
        q[i] = v[RIDGE] * gone;
    }
    if (s->energy)
        CALL(eliminate_group, s->T, d, stride, rows, first);
    for (int i = 0; i < many; i++) {
        const ptrdiff_t j = first + i;
        double *row = rows + i * stride, P = 0.0;
        for (ptrdiff_t k = 0; k < c; k++)
            row[d + k] = s->energy ? -row[d + k] : s->start ? s->start[k * d + j] : 0.0; /* w_j */
        if (s->energy) {
            for (ptrdiff_t l = first; l < d; l++)
                P += row[l] != 0.0 ? row[l] * row[l] / s->T[l * stride + l] : 0.0;
            const double tau = 1.0 / (P * s->sums[j]);
            const double bound = v[LEVEL] * tau * s->energy[j] / s->active[j];
            const double least = HOLD * v[RIDGE];
            q[i] = (bound > least ? bound : least) * gone;
            memset(row + first, 0, (d - first) * sizeof *row);
            row[j] = 1.0;
        }
        s->sums[j] += q[i];
    }
    ls_rotate_block(s, many, rows, q, first);
    s->visited[panel] = v[FADED];
}

/* log2 of the fade after which a panel is due; the same if sums are rounded otherwise. */
static double panel_fade(const LeastSquares *s)
{
    return TURN_FADE / panels_of(s->d) * (1.0 - 1e-9);
}

/* Fade the past before a row of this weight. */
static void fade(LeastSquares *s, double log, double weight, Prediction *p, double *row)
{
    double *v = s->head;
    if (log == 0.0)
        return;
    log = fmax(log, FORGOTTEN);
    const int held = s->energy || (s->visited && v[RIDGE] > 0.0);
    if (log < SUDDEN && !held && v[MASS] > 0.0) {
        const double limit = log2(FAINT * weight / v[MASS]);
        predict_before(s, p, row);
        for (ptrdiff_t j = 0; j < s->d; j++)
            if (s->sums[j] > 0.0)
                ls_add_prior(s, j, FAINT * s->sums[j], row);
        log = log > limit ? log : limit < 0.0 ? limit : 0.0;
    }
    if (v[MASS] > 0.0 && v[MASS] * exp2(log) == 0.0)
        predict_before(s, p, row); /* the means are those of the next row */
    ls_rescale(s, log);
    v[FADED] += log;
    if (!s->visited)
        return;
    const ptrdiff_t panels = panels_of(s->d);
    v[DUE] += log;
    const double due = floor(v[DUE] / panel_fade(s));
    const ptrdiff_t many = due < panels ? (ptrdiff_t)due : panels;
    if (many && !s->energy && held)
        predict_before(s, p, row);
    for (ptrdiff_t i = 0; i < many && held; i++) {
        visit(s, (ptrdiff_t)v[TURN], row);
        v[TURN] = (ptrdiff_t)(v[TURN] + 1.0) % panels;
    }
    v[DUE] = due < panels ? v[DUE] - many * (TURN_FADE / panels) : 0.0;
}

/* -- the prior -------------------------------------------------------------------------------- */

/* Whether a row may change the prior. */
static int is_unsettled(const LeastSquares *s)
{
    for (ptrdiff_t j = 0; s->prior && j < s->d; j++)
        if (s->prior[j] == 0.0 || (has(s->head, UNITS) && s->prior[j] > 0.0))
            return 1;
    return 0;
}

/* The present penalty of each weight. */
static double ridge_of(const LeastSquares *s)
{
    return s->head[RIDGE] * (s->visited ? 1.0 : exp2(s->head[FADED]));
}

double ls_residual(const LeastSquares *s, ptrdiff_t k)
{
    const double *v = s->head, *start = s->start ? s->start + k * s->d : NULL;
    double rest = s->squares[k];
    ls_solve(s);
    for (ptrdiff_t j = 0; j < s->d; j++) {
        const double w = s->w[k * s->d + j] - (start ? start[j] : 0.0);
        /* with LEVEL, information is put back about the present weights, which adds no penalty */
        const double at = s->visited && !s->energy ? s->visited[j / PANEL] : 0.0;
        const double ridge = v[RIDGE] * exp2(v[FADED] - at);
        rest -= (ridge + (s->prior ? fmax(s->prior[j], 0.0) : 0.0)) * w * w;
    }
    return fmax(rest, 0.0);
}

ptrdiff_t ls_rows_with_prior(const LeastSquares *s, ptrdiff_t n, const double *X,
                             const double *weights, const double *fades, double *sums)
{
    const double *v = s->head, ridge = ridge_of(s);
    double log = 0.0;
    int may = v[PRIOR] > 0.0;
    memcpy(sums, s->sums, s->d * sizeof *sums);
    for (ptrdiff_t r = 0; r < n; r++) {
        log += !r ? 0.0 : fades ? fades[r] : v[FACTOR];
        may |= r && !has(v, HELD) && v[ROWS] + r >= v[ATTEMPT];
        /* about the means before the rows, and thus no less than about those after them */
        const double u = (weights ? weights[r] : 1.0) * exp2(-log), *x = X + r * s->d;
        for (ptrdiff_t j = 0; j < s->d; j++) {
            const double a = (x[j] - s->means[j]) - s->rests[j], prior = s->prior[j];
            sums[j] += u * a * a;
            may |= prior >= 0.0 && UNIT * sums[j] > fmax(RAISED * prior, ridge);
        }
        if (may)
            return r ? r : 1;
    }
    return n;
}

/* Adapt the prior to a row of weight u, before it is learned. */
static void adapt_prior(LeastSquares *s, const double *x, double u, Prediction *p, double *row)
{
    const double *v = s->head, mass = v[MASS], level = v[PRIOR];
    if (has(v, FREE) && mass == 0.0)
        return;
    const double h = has(v, FREE) ? u * (mass / (mass + u)) : u, ridge = ridge_of(s);
    for (ptrdiff_t j = 0; j < s->d; j++) {
        const double a = (x[j] - s->means[j]) - s->rests[j], now = s->prior[j];
        const double size = level > 0.0 ? level * a * a : UNIT * (s->sums[j] + h * a * a);
        if (level > 0.0 ? now == 0.0 && size > 0.0
                        : now >= 0.0 && size > fmax(RAISED * now, ridge)) {
            predict_before(s, p, row);
            s->prior[j] = size;
            ls_add_prior(s, j, size - now, row);
        }
    }
}

void ls_remove_prior(LeastSquares *s, double *row)
{
    const size_t size = (s->w + s->d * s->c - s->head) * sizeof *s->head;
    double *copy, clear = CLEAR * ridge_of(s);
    if (!has(s->head, UNITS) || has(s->head, HELD) || !is_unsettled(s) || !(copy = malloc(size)))
        return; /* without memory, at a later row */
    memcpy(copy, s->head, size);
    for (ptrdiff_t j = 0; j < s->d; j++)
        if (s->prior[j] > 0.0)
            ls_add_prior(s, j, -s->prior[j], row);
    int good = 1, clearly = clear > 0.0;
    for (ptrdiff_t j = 0; j < s->d; j++) {
        const double D = s->T[j * (s->stride + 1)];
        good &= D >= 0.5 * copy[HEAD + j * (s->stride + 1)];
        clearly &= D > clear || s->sums[j] <= clear;
    }
    for (ptrdiff_t j = 0; j < s->d && good; j++)
        if (s->prior[j] > 0.0 || (s->prior[j] == 0.0 && clearly && s->sums[j] > clear))
            s->prior[j] = -1.0;
    if (!good)
        memcpy(s->head, copy, size);
    free(copy);
    s->head[ATTEMPT] = 2.0 * fmax(s->head[ROWS], s->head[ATTEMPT]);
}

/* -- learning --------------------------------------------------------------------------------- */

int ls_prepare(LeastSquares *s, const double *x, double log, double weight, double *work,
               const double **scores)
{
    Prediction p = {x, work + PANEL * (s->stride + 1), 0};
    fade(s, log, weight, &p, work);
    const int unsettled = is_unsettled(s);
    if (unsettled) {
        if (has(s->head, UNITS) && !has(s->head, HELD) && s->head[ROWS] >= s->head[ATTEMPT]) {
            predict_before(s, &p, work);
            ls_remove_prior(s, work);
        }
        adapt_prior(s, x, weight, &p, work);
    }
    *scores = p.done ? p.scores : NULL;
    return unsettled;
}

void ls_set_errors(const LeastSquares *s, const double *y, const double *scores, double *errors)
{
    for (ptrdiff_t k = 0; k < s->c && scores; k++)
        errors[k] = y[k] - scores[k];
}

/* The first row with an intercept, which sets the means. */
static void set_means(LeastSquares *s, double *row, double q)
{
    if (q != 0.0) {
        memcpy(s->means, row, s->stride * sizeof *row);
        memset(s->rests, 0, s->stride * sizeof *row);
        if (s->last)
            memcpy(s->last, row, s->stride * sizeof *row);
    }
    for (ptrdiff_t k = 0; k < s->c && s->start; k++)
        row[s->d + k] -= CALL(dot, s->start + k * s->d, row, 0, s->d);
    memset(row, 0, s->d * sizeof *row);
}

void ls_centre(LeastSquares *s, ptrdiff_t n, const double *X, const double *Y, double *q,
               const double *weights, double *block)
{
    double *v = s->head, share[CHUNK], own[CHUNK];
    const ptrdiff_t d = s->d, c = s->c, stride = s->stride;
    for (ptrdiff_t r = 0; r < n; r++) {
        double *row = block + r * stride;
        for (ptrdiff_t l = 0; l < d; l++)
            row[l] = X[r * d + l];
        for (ptrdiff_t k = 0; k < c; k++)
            row[d + k] = Y[r * c + k];
        for (ptrdiff_t l = d + c; l < stride; l++)
            row[l] = 0.0;
        own[r] = weights ? weights[r] : 1.0;
    }
    if (!has(v, FREE)) { /* the means remain 0 */
        for (ptrdiff_t r = 0; r < n; r++) {
            v[MASS] += q[r];
            share[r] = 0.0;
        }
        CALL(centre, s, n, block, share, q, own);
        return;
    }
    for (ptrdiff_t r = 0, m; r < n; r += m) {
        for (m = 0; r + m < n && v[MASS] > 0.0 && q[r + m] <= v[MASS]; m++) {
            const double after = v[MASS] + q[r + m];
            share[m] = q[r + m] / after;
            q[r + m] = v[MASS] * share[m];
            v[MASS] = after;
        }
        if (m) {
            CALL(centre, s, m, block + r * stride, share, q + r, own + r);
            continue;
        }
        const double mass = v[MASS];
        v[MASS] += q[r];
        if (mass == 0.0) {
            set_means(s, block + r * stride, q[r]);
            q[r] = 0.0;
        } else {
            const double over = mass / v[MASS];
            q[r] *= over;
            CALL(centre_near, s, block + r * stride, over, q[r], own[r]);
        }
        m = 1;
    }
}

void ls_rotate_block(LeastSquares *s, ptrdiff_t n, double *block, double *q, ptrdiff_t start)
{
    enum { FEW = 3 }; /* rows that are faster one by one */
    for (ptrdiff_t i = 0; i < n && n <= FEW; i++)
        q[i] = CALL(rotate_one, s->T, s->d, s->stride, block + i * s->stride, q[i], start);
    if (n > FEW)
        CALL(rotate, s->T, s->d, s->c, s->stride, n, block, q, start);
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t k = 0; k < s->c; k++) {
            const double e = block[i * s->stride + s->d + k];
            s->squares[k] += q[i] * e * e;
        }
    s->head[FRESH] = STALE;
}

int ls_is_finite(const LeastSquares *s, int whole)
{
    double sum = 0.0;
    for (ptrdiff_t j = 0; j < s->d && whole; j++) {
        const double *u = s->T + j * s->stride;
        sum += u[j] * 0.0;
        for (ptrdiff_t k = 0; k < s->c; k++)
            sum += u[s->d + k] * 0.0;
    }
    for (ptrdiff_t l = 0; l < s->d + s->c; l++)
        sum += s->means[l] * 0.0 + s->sums[l] * 0.0;
    for (ptrdiff_t k = 0; k < s->c; k++)
        sum += s->squares[k] * 0.0;
    return sum == 0.0;
}

int ls_learn_rows(double *vector, ptrdiff_t n, const double *X, const double *Y,
                  const double *weights, const double *fades, double *errors)
{
    LeastSquares s = ls_of(vector);
    double *v = vector, q[CHUNK + 8], *block, *work, *memory = NULL;
    _Alignas(64) double room[1024];
    const ptrdiff_t d = s.d, c = s.c, width = n < CHUNK ? n : CHUNK;
    const ptrdiff_t rows = n == 1 ? 1 : (width + 7) & -8;
    const ptrdiff_t size = rows * s.stride + ls_work_size(&s) + s.stride;
    const double factor = exp2(v[FACTOR]), due = s.visited ? panel_fade(&s) : -INFINITY;
    block = size <= 1024 ? room : ls_room(size, &memory);
    if (!block)
        return 0;
    work = block + rows * s.stride;
    for (ptrdiff_t i = 0, m; i < n; i += m) {
        double log = 0.0, u = 1.0; /* the fade within these rows */
        const double now = fades ? fades[i] : v[FACTOR];
        const double *scores, *x = X + i * d, *y = Y + i * c;
        const double weight = weights ? weights[i] : 1.0;
        const int unsettled = ls_prepare(&s, x, now, weight, work, &scores);
        for (m = 1; i + m < n && m < CHUNK; m++) {
            const double next = fades ? fades[i + m] : v[FACTOR];
            if (next < SUDDEN || log + next < DEEPEST || v[DUE] + log + next <= due)
                break;
            log += next;
        }
        if (unsettled) {
            m = ls_rows_with_prior(&s, m, x, weights ? weights + i : NULL,
                                   fades ? fades + i : NULL, work + ls_work_size(&s));
            log = 0.0;
            for (ptrdiff_t r = 1; r < m; r++)
                log += fades ? fades[i + r] : v[FACTOR];
        }
        for (ptrdiff_t r = m - 1; r >= 0; r--) { /* in units of the last row, so that none grows */
            q[r] = weights ? weights[i + r] * u : u;
            u *= fades ? exp2(fades[i + r]) : factor;
        }
        ls_rescale(&s, log);
        v[FADED] += log;
        v[DUE] += s.visited ? log : 0.0;
        ls_centre(&s, m, x, y, q, weights ? weights + i : NULL, block);
        ls_rotate_block(&s, m, block, q, 0);
        for (ptrdiff_t r = 0; r < m; r++)
            for (ptrdiff_t k = 0; k < c; k++)
                errors[(i + r) * c + k] = block[r * s.stride + d + k];
        ls_set_errors(&s, y, scores, errors + i * c);
        v[ROWS] += m;
    }
    free(memory);
    return ls_is_finite(&s, n > 1); /* numbers of the triangle affect the squares of the next row */
}

int ls_learn(double *vector, ptrdiff_t n, const double *X, const double *Y, const double *weights,
             const double *fades, const double *leaving, double *errors)
{
    return has(vector, WINDOW)
               ? window_learn(vector, n, X, Y, weights, fades, leaving, errors)
           : has(vector, MIXTURE) ? mixture_learn(vector, n, X, Y, weights, errors)
                                  : ls_learn_rows(vector, n, X, Y, weights, fades, errors);
}

int ls_learn_keys(double *vectors, ptrdiff_t keys, const int *order, const int *ends,
                  const double *X, const double *Y, const double *weights, double *errors)
{
    enum { GATHERED = 32 };
    const ptrdiff_t d = vectors[FEATURES], c = vectors[OUTPUTS], size = ls_size(vectors);
    double *x = malloc(GATHERED * (d + 2 * c + 1) * sizeof *x), *y = x + GATHERED * d;
    double *w = y + GATHERED * c, *e = w + GATHERED;
    int good = x != NULL;
    for (ptrdiff_t k = 0, i = 0; k < keys && good; k++)
        for (ptrdiff_t m; i < ends[k]; i += m) {
            m = ends[k] - i < GATHERED ? ends[k] - i : GATHERED;
            for (ptrdiff_t r = 0; r < m; r++) {
                const ptrdiff_t at = order[i + r];
                memcpy(x + r * d, X + at * d, d * sizeof *x);
                memcpy(y + r * c, Y + at * c, c * sizeof *y);
                w[r] = weights ? weights[at] : 1.0;
            }
            good &= ls_learn_rows(vectors + k * size, m, x, y, weights ? w : NULL, NULL, e);
            for (ptrdiff_t r = 0; r < m; r++)
                memcpy(errors + order[i + r] * c, e + r * c, c * sizeof *e);
        }
    free(x);
    return good;
}

int ls_rotate(double *vector, ptrdiff_t n, const double *rows, const double *weights)
{
    LeastSquares s = ls_of(vector);
    double q[CHUNK + 8], *block = malloc((CHUNK + 8) * s.stride * sizeof *block);
    if (!block)
        return 0;
    for (ptrdiff_t i = 0, m; i < n; i += m) {
        m = n - i < CHUNK ? n - i : CHUNK;
        memcpy(block, rows + i * s.stride, m * s.stride * sizeof *block);
        memcpy(q, weights + i, m * sizeof *q);
        for (ptrdiff_t r = 0; r < m; r++)
            for (ptrdiff_t l = 0; l < s.d + s.c; l++)
                s.sums[l] += q[r] * block[r * s.stride + l] * block[r * s.stride + l];
        ls_rotate_block(&s, m, block, q, 0);
    }
    free(block);
    return ls_is_finite(&s, 1);
}
