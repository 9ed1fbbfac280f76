/* Linear models that go down the slope of a loss, or correct mistakes, row by row.
 *
 *     s = W x + b,   delta = clip(rate l'(s, y)),   W <- keep W - delta x^T,   b <- b - delta   (1)
 */
#include "descent.h"

#include <math.h>

#include "machine.h"

/* w . x, in as many sums as a vector holds. */
WITHIN double product(const double *w, const double *x, ptrdiff_t d)
{
    loose sum = {0.0};
    ptrdiff_t j = 0;
    double all = 0.0;
    for (; j + WIDE <= d; j += WIDE)
        sum += *(const loose *)(w + j) * *(const loose *)(x + j);
    for (; j < d; j++)
        all += w[j] * x[j];
    for (int i = 0; i < WIDE; i++)
        all += sum[i];
    return all;
}

/* w <- keep w + by x. */
WITHIN void move(double *w, const double *x, ptrdiff_t d, double keep, double by)
{
    for (ptrdiff_t j = 0; j < d; j++)
        w[j] = keep * w[j] + by * x[j];
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

EVERY_MACHINE void descend(const Stream *stream, int loss, double parameter, const double *rate,
                           const double *limit, const double *keep)
{
    const ptrdiff_t d = stream->d, c = stream->c;
    for (ptrdiff_t i = 0; i < stream->n; i++) {
        const double *x = stream->X + i * d;
        for (ptrdiff_t k = 0; k < c; k++) {
            double *w = stream->W + k * d;
            const double s = product(w, x, d) + stream->b[k];
            double change = rate[i] * slope(loss, parameter, s, stream->Y[i * c + k]);
            stream->said[i * c + k] = s;
            if (limit)
                change = fmax(-limit[i], fmin(limit[i], change));
            if (change != 0.0 || keep)
                move(w, x, d, keep ? keep[i] : 1.0, -change);
            stream->b[k] -= change * stream->unit;
        }
    }
}

EVERY_MACHINE ptrdiff_t correct(const Stream *stream, const double *moves,
                                const unsigned char *known)
{
    const ptrdiff_t d = stream->d, c = stream->c;
    ptrdiff_t mistakes = 0;
    for (ptrdiff_t i = 0; i < stream->n; i++) {
        const double *x = stream->X + i * d;
        double *said = stream->said + i * c;
        const ptrdiff_t y = (ptrdiff_t)stream->Y[i];
        ptrdiff_t best = -1;
        for (ptrdiff_t k = 0; k < c; k++) {
            said[k] = product(stream->W + k * d, x, d) + stream->b[k];
            if (!known || known[i * c + k])
                best = best < 0 || said[k] >= said[best] ? k : best;
        }
        if (best == y)
            continue;
        mistakes++;
        if (best < 0 || y < 0 || y >= c)
            continue;
        move(stream->W + y * d, x, d, 1.0, moves[i]);
        move(stream->W + best * d, x, d, 1.0, -moves[i]);
        stream->b[y] += moves[i] * stream->unit;
        stream->b[best] -= moves[i] * stream->unit;
    }
    return mistakes;
}
