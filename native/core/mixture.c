/* Experts that forget at different rates, weighted by their prequential errors: the equations (1)
   to (3) of src/onepass/forgetting/auto.py.

   The vectors of the experts follow one after the other; they are followed by the weights of the
   experts (EXPERTS, c), and the numerators (c) and the denominator of (1). */
#include "least_squares.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double SHARE = 0.005, RATE = 0.5, LIMIT = 16.0, CAP = 1000.0;
static const double DECAY = 1.0 - 1.0 / 200.0, ROUNDING = 1e-16;

ptrdiff_t mixture_size(const double *head)
{
    const ptrdiff_t c = head[OUTPUTS];
    return EXPERTS * ls_size(head) + (((EXPERTS + 1) * c + 8) & -8);
}

/* Write the errors (n, c) of the mixture of k <= 16 experts with errors `each` (k, n, c), and update its
   numbers. */
void mixture_weigh(ptrdiff_t k, ptrdiff_t n, ptrdiff_t c, int indicators, const double *Y,
                   const double *weights, const double *each, double *numbers, double *errors)
{
    double *shares = numbers, *squares = numbers + k * c, *count = squares + c;
    double loss[16];
    for (ptrdiff_t i = 0; i < n; i++) {
        const int skipped = *count < 0.0;
        const double weight = weights ? weights[i] : 1.0;
        for (ptrdiff_t o = 0; o < c; o++) {
            const double y = Y[i * c + o];
            double sum = 0.0, least = INFINITY, total = 0.0, largest = -1.0, leading = 0.0;
            for (ptrdiff_t e = 0; e < k; e++)
                sum += shares[e * c + o] * each[(e * n + i) * c + o];
            errors[i * c + o] = sum;
            if (skipped)
                continue;
            const double v = squares[o] > 0.0 ? squares[o] / fmax(*count, 1e-300) : INFINITY;
            for (ptrdiff_t e = 0; e < k; e++) {
                double error = each[(e * n + i) * c + o];
                if (indicators)
                    error = y - fmin(fmax(y - error, 0.0), 1.0);
                loss[e] = error * error * weight;
                least = fmin(least, fmin(loss[e] / v, LIMIT));
            }
            for (ptrdiff_t e = 0; e < k; e++) {
                double *share = shares + e * c + o;
                const double worse = fmin(loss[e] / v, LIMIT) - least;
                *share = ((1.0 - SHARE) * *share + SHARE / k) * exp(-0.5 * RATE * worse);
                total += *share;
            }
            for (ptrdiff_t e = 0; e < k; e++) {
                double *share = shares + e * c + o;
                *share /= total;
                if (*share > largest) {
                    largest = *share;
                    leading = loss[e];
                }
            }
            const double counted = fmax(fmin(leading, CAP * v), ROUNDING * y * y * weight);
            squares[o] = DECAY * squares[o] + counted;
        }
        *count = skipped ? *count + 1.0 : DECAY * *count + 1.0;
    }
}

int mixture_learn(double *vector, ptrdiff_t n, const double *X, const double *Y,
                  const double *weights, double *errors)
{
    const ptrdiff_t d = vector[FEATURES], c = vector[OUTPUTS], size = ls_size(vector);
    const ptrdiff_t width = n < CHUNK ? n : CHUNK; /* so that the rows remain in the nearest cache */
    double *each = malloc(EXPERTS * width * c * sizeof *each), *numbers = vector + EXPERTS * size;
    const int indicators = ((int)vector[FLAGS] & INDICATORS) != 0;
    int good = each != NULL;
    for (ptrdiff_t i = 0, m; i < n && each; i += m) {
        m = n - i < width ? n - i : width;
        const double *own = weights ? weights + i : NULL;
        for (ptrdiff_t e = 0; e < EXPERTS; e++)
            good &= ls_learn_rows(vector + e * size, m, X + i * d, Y + i * c, own, NULL,
                                  each + e * m * c);
        mixture_weigh(EXPERTS, m, c, indicators, Y + i * c, own, each, numbers, errors + i * c);
    }
    free(each);
    return good;
}
