/* Tests of native/core alone, without Python: `make core-test`. Each test compares the recursion with
   the normal equations, solved by Gauss-Jordan elimination in long double. */
#include "least_squares.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned long long seed = 88172645463325252ull;
static double normal(void) /* the sum of 12 uniform numbers less 6; xorshift64 */
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        sum += (double)(seed >> 11) * 0x1p-53;
    }
    return sum;
}

/* A new vector; `rows` is the length of a window, or 0. */
static double *start(ptrdiff_t d, ptrdiff_t c, int flags, double factor, double level, double ridge,
                     ptrdiff_t rows)
{
    double head[HEAD] = {0};
    head[FEATURES] = (double)d, head[OUTPUTS] = (double)c, head[FLAGS] = flags;
    head[FACTOR] = log2(factor), head[LEVEL] = level, head[RIDGE] = ridge;
    head[ATTEMPT] = 2.0 * (double)d;
    const ptrdiff_t size = ls_whole_size(head, rows);
    double *vector = calloc((size_t)size, sizeof *vector);
    if (!vector)
        exit(2);
    memcpy(vector, head, sizeof head);
    LeastSquares s = ls_of(vector);
    for (ptrdiff_t j = 0; j < d; j++)
        s.T[j * (s.stride + 1)] = s.sums[j] = ridge;
    if (rows) {
        double *extra = vector + ls_size(vector);
        extra[CAPACITY] = extra[LENGTH] = (double)rows, extra[SHADOWED] = -1.0;
        memcpy(extra + WINDOW_HEAD, vector, (size_t)ls_size(vector) * sizeof *vector);
    }
    return vector;
}

/* The largest difference of the weights from those of the weighted rows with an intercept. */
static double difference(double *vector, ptrdiff_t n, ptrdiff_t first, const double *X,
                         const double *Y, double factor, double ridge)
{
    const ptrdiff_t d = (ptrdiff_t)vector[FEATURES], c = (ptrdiff_t)vector[OUTPUTS], p = d + 1;
    long double *A = calloc((size_t)(p * (p + c)), sizeof *A);
    double *w = malloc((size_t)(d * c + d + c) * sizeof *w), worst = 0.0;
    for (ptrdiff_t i = first; i < n; i++) {
        const long double v = powl(factor, (long double)(n - 1 - i));
        for (ptrdiff_t j = 0; j < p; j++) {
            const long double x = j < d ? X[i * d + j] : 1.0;
            for (ptrdiff_t l = 0; l < p; l++)
                A[j * (p + c) + l] += v * x * (l < d ? X[i * d + l] : 1.0);
            for (ptrdiff_t k = 0; k < c; k++)
                A[j * (p + c) + p + k] += v * x * Y[i * c + k];
        }
    }
    for (ptrdiff_t j = 0; j < d; j++)
        A[j * (p + c) + j] += ridge;
    for (ptrdiff_t j = 0; j < p; j++) /* Gauss-Jordan: the matrix is positive definite */
        for (ptrdiff_t i = 0; i < p; i++) {
            const long double by = A[i * (p + c) + j] / A[j * (p + c) + j];
            for (ptrdiff_t l = j; i != j && l < p + c; l++)
                A[i * (p + c) + l] -= by * A[j * (p + c) + l];
        }
    ls_fitted(vector, w, w + d * c, w + d * c + d);
    for (ptrdiff_t j = 0; j < d; j++)
        for (ptrdiff_t k = 0; k < c; k++) {
            const double exact = (double)(A[j * (p + c) + p + k] / A[j * (p + c) + j]);
            worst = fmax(worst, fabs(w[k * d + j] - exact));
        }
    free(A);
    free(w);
    return worst;
}

static int failures, checks;
static void check(const char *name, ptrdiff_t d, ptrdiff_t c, double value, double most)
{
    checks++;
    if (!(value <= most)) {
        failures++;
        printf("FAILED %s, d = %td, c = %td: expected at most %g, got %g\n", name, d, c, most, value);
    }
}

int main(void)
{
    const ptrdiff_t sizes[][2] = {{1, 1}, {3, 2}, {8, 1}, {13, 3}, {40, 1}, {65, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const ptrdiff_t d = sizes[i][0], c = sizes[i][1], n = 4 * d + 60;
        double *X = malloc((size_t)(n * (d + 3 * c)) * sizeof *X), *Y = X + n * d;
        double *one = Y + n * c, *all = one + n * c, worst = 0.0;
        for (ptrdiff_t l = 0; l < n * (d + c); l++)
            X[l] = normal() + 5.0 * (l % 3 == 0);
        for (int rule = 0; rule < 5; rule++) {
            static const char *const names[] = {"none", "fading", "held", "bounded", "window"};
            const double factor = rule == 0 || rule == 4 ? 1.0 : 0.98, ridge = 1e-6;
            const double level = rule == 3 ? 0.1 : 0.0;
            const int flags = FREE | (rule == 2 || rule == 3 ? HELD : 0) | (rule == 4 ? WINDOW : 0);
            const ptrdiff_t length = rule == 4 ? 2 * d + 20 : 0;
            double *rows = start(d, c, flags, factor, level, ridge, length);
            double *block = start(d, c, flags, factor, level, ridge, length);
            int good = ls_learn(block, n, X, Y, NULL, NULL, NULL, all);
            for (ptrdiff_t r = 0; r < n; r++)
                good &= ls_learn(rows, 1, X + r * d, Y + r * c, NULL, NULL, NULL, one + r * c);
            worst = 0.0;
            for (ptrdiff_t l = 0; l < n * c; l++)
                worst = fmax(worst, fabs(one[l] - all[l]) / (1.0 + fabs(all[l])));
            check(names[rule], d, c, good ? worst : INFINITY, 1e-6); /* rows = block */
            if (rule < 2 || rule == 4) {
                const double rest = rule == 4 ? ridge : ridge * pow(factor, (double)n);
                worst = difference(block, n, rule == 4 ? n - length : 0, X, Y, factor, rest);
                check(names[rule], d, c, worst, 1e-8); /* the normal equations */
            }
            free(rows);
            free(block);
        }
        free(X);
    }
    printf("%d passed, %d failed\n", checks - failures, failures);
    return failures > 0;
}
