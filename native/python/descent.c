/* Linear models: stochastic gradient descent and the perceptron, row by row.
 *
 *     s = W x + b,   delta = clip(rate l'(s, y)),   W <- keep W - delta x^T,   b <- b - delta   (1)
 */
#include "descent.h"

#include <float.h>
#include <math.h>

#include "machine.h"

static const double LEAST = 0.03, RECENT = 0.01, START = 30.0, CAP = 10.0; /* as in step_size.py */

#define at(numbers) (*(const loose *)(numbers))

/* w <- keep w + by x. */
WITHIN void move(double *w, const double *x, ptrdiff_t d, double keep, double by)
{
    if (d < WIDE) {
        for (ptrdiff_t j = 0; j < d; j++)
            w[j] = keep * w[j] + by * x[j];
        return;
    }
    const vector last = keep * at(w + d - WIDE) + by * at(x + d - WIDE);
    for (ptrdiff_t j = 0; j + WIDE <= d; j += WIDE)
        *(loose *)(w + j) = keep * at(w + j) + by * at(x + j);
    *(loose *)(w + d - WIDE) = last;
}

WITHIN double sign(double e)
{
    return (e > 0.0) - (e < 0.0);
}

WITHIN double slope(int loss, double parameter, double s, double y)
{
    const double e = s - y;
    switch (loss) {
    case SQUARED:
        return e;
    case ABSOLUTE:
        return sign(e);
    case HUBER:
        return e > parameter ? parameter : e < -parameter ? -parameter : e;
    case INSENSITIVE:
        return fabs(e) > parameter ? sign(e) : 0.0;
    case -INSENSITIVE:
        return fabs(e) > parameter ? e - sign(e) * parameter : 0.0;
    case HINGE:
        return y * s < 1.0 ? -y : 0.0;
    case -HINGE:
        return y * s < 1.0 ? -y * (1.0 - y * s) : 0.0;
    case LOGISTIC: {
        const double small = exp(-fabs(y * s));
        return -y * (y * s >= 0.0 ? small : 1.0) / (1.0 + small);
    }
    case MISCLASSIFIED:
        return (s >= 0.0) != (y > 0.0) ? -y : 0.0;
    }
    return NAN;
}

/* 1 / length; 0 if the length is 0, nan if it has overflowed. */
WITHIN double inverse(double length)
{
    return length < DBL_MIN ? 0.0 : length <= DBL_MAX ? 1.0 / length : NAN;
}

WITHIN void score_row(const Linear *model, const double *x, double *predictions)
{
    for (ptrdiff_t k = 0; k < model->c; k++)
        predictions[k] = product(model->W + k * model->d, x, model->d) + model->b[k];
}

EVERY_MACHINE void score(const Linear *model, const double *x, double *predictions)
{
    score_row(model, x, predictions);
}

typedef struct {
    double w, b, keep; /* w <- keep w - (w) x,  b <- b - (b) */
} Step;

/* The adaptive step of an output, whose statistics then include the row: the equations are in
   onepass/learners/step_size.py. `length` is |x|^2 with the intercept and the damping. */
WITHIN Step adapt(Statistics *all, int loss, double parameter, double unit, double rate,
                  double keep, double length, double s, double y)
{
    const int margin = loss >= HINGE, first = all->rate == 0.0 && unit != 0.0;
    const double estimate = loss == LOGISTIC ? tanh(0.5 * s)
                            : margin         ? fmax(-1.0, fmin(1.0, s))
                                             : s;
    const double explained = 1.0 - all->error / all->variance;
    const double v = y - all->mean, e = estimate - y, curvature = loss == LOGISTIC ? 4.0 : 1.0;
    all->rate += rate;
    const double gain = rate / all->rate, fast = fmax(gain, fmin(1.0, RECENT * rate));
    const double least = margin ? fmax(LEAST, START / (START + all->rate)) : LEAST;
    const double share = explained > least ? explained : least;
    double l = slope(loss, parameter, s, y);
    if (gain >= 0.5) /* a row that weighs at least as much as all before */
        all->energy = fmin(all->energy, CAP * length);
    const double capped = all->energy > 0.0 ? fmin(length, CAP * all->energy) : length;
    all->energy += fast * (capped - all->energy);
    all->mean += unit * gain * v;
    if (first)
        return (Step){0.0, s - y, 1.0};
    all->variance += fast * (v * v - all->variance);
    all->error += fast * (e * e - all->error);
    if (loss == ABSOLUTE || loss == INSENSITIVE)
        l *= sqrt(all->error);
    else if (loss == HUBER)
        l *= fmax(1.0, sqrt(all->error) / parameter);
    const double by = fmin(share * rate, 1.0) * inverse(length + all->energy);
    return (Step){curvature * by * l, unit * curvature * fmax(by, gain) * l,
                  1.0 - share * (1.0 - keep)};
}

/* The step of output k for the row that follows `i` rows. */
WITHIN Step step_of(const Linear *model, Statistics *statistics, int loss, double parameter,
                    const Pace *pace, ptrdiff_t i, double length, double s, double y)
{
    const double keep = pace->keep ? pace->keep[i] : 1.0, rate = pace->rate[i];
    if (statistics)
        return adapt(statistics, loss, parameter, model->unit, rate, keep, length, s, y);
    double by = (pace->damping ? rate * inverse(length) : rate) * slope(loss, parameter, s, y);
    if (pace->limit)
        by = fmax(-pace->limit[i], fmin(pace->limit[i], by));
    return (Step){by, by * model->unit, keep};
}

EVERY_MACHINE ptrdiff_t descend(const Linear *model, int loss, double parameter, ptrdiff_t n,
                                const double *X, const double *Y, const Pace *pace, double max_step,
                                double *predictions)
{
    const ptrdiff_t d = model->d, c = model->c;
    Statistics *const all = (Statistics *)model->statistics;
    for (ptrdiff_t i = 0; i < n; i++, X += d, Y += c, predictions += c) {
        double length = 0.0;
        score_row(model, X, predictions);
        if (pace->damping)
            length = pace->damping[i] + product(X, X, d) + model->unit;
        for (ptrdiff_t k = 0; max_step > 0.0 && k < c; k++) {
            Statistics copy = all ? all[k] : (Statistics){0.0};
            const Step step = step_of(model, all ? &copy : NULL, loss, parameter, pace, i, length,
                                      predictions[k], Y[k]);
            if (!(fabs(step.w) <= max_step && fabs(step.b) <= max_step &&
                  (!all || fabs(predictions[k] - Y[k]) <= max_step)))
                return i;
        }
        for (ptrdiff_t k = 0; k < c; k++) {
            const Step step = step_of(model, all ? all + k : NULL, loss, parameter, pace, i, length,
                                      predictions[k], Y[k]);
            if (step.w != 0.0 || step.keep != 1.0)
                move(model->W + k * d, X, d, step.keep, -step.w);
            model->b[k] -= step.b;
        }
    }
    return n;
}

EVERY_MACHINE ptrdiff_t correct(const Linear *model, ptrdiff_t n, const double *X, const double *y,
                                const double *moves, const unsigned char *known,
                                double *predictions)
{
    const ptrdiff_t d = model->d, c = model->c;
    ptrdiff_t mistakes = 0;
    for (ptrdiff_t i = 0; i < n; i++, X += d, predictions += c) {
        const ptrdiff_t right = (ptrdiff_t)y[i];
        ptrdiff_t best = -1;
        score_row(model, X, predictions);
        for (ptrdiff_t k = 0; k < c; k++)
            if (!known || known[i * c + k])
                best = best < 0 || predictions[k] >= predictions[best] ? k : best;
        if (best == right)
            continue;
        mistakes++;
        if (best < 0 || right < 0 || right >= c)
            continue;
        move(model->W + right * d, X, d, 1.0, moves[i]);
        move(model->W + best * d, X, d, 1.0, -moves[i]);
        model->b[right] += moves[i] * model->unit;
        model->b[best] -= moves[i] * model->unit;
    }
    return mistakes;
}
