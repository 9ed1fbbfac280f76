/* Columns of one type of NUMBER; columns.c includes this file once for each type. */

enum { NAMED(LANES) = LINE / sizeof(NUMBER) };

typedef NUMBER NAMED(lanes) __attribute__((vector_size(LINE), aligned(sizeof(NUMBER)), may_alias));

#define LANES NAMED(LANES)
#define lanes NAMED(lanes)
#define at(numbers) (*(lanes *)(numbers))
#define of(numbers) (*(const lanes *)(numbers))

WITHIN double NAMED(all)(lanes v)
{
    double sum = 0.0;
    for (int i = 0; i < LANES; i++)
        sum += v[i];
    return sum;
}

/* sums += the products of some columns with x, n numbers each; prefetches `ahead` numbers later. */
WITHIN void NAMED(products)(const NUMBER *const *rows, int many, const NUMBER *x, ptrdiff_t n,
                            ptrdiff_t ahead, double *sums)
{
    lanes sum[TOGETHER] = {{0}};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
#pragma GCC unroll 4
        for (int j = 0; j < many; j++) {
            sum[j] += of(rows[j] + i) * of(x + i);
            if (ahead)
                __builtin_prefetch(rows[j] + i + ahead, 0, 2);
        }
    for (int j = 0; j < many; j++) {
        double rest = NAMED(all)(sum[j]);
        for (ptrdiff_t k = i; k < n; k++)
            rest += (double)rows[j][k] * x[k];
        sums[j] += rest;
    }
}

/* x += c rows, and y += d rows unless d is NULL. */
WITHIN void NAMED(combine)(const NUMBER *const *rows, int many, const NUMBER *c, const NUMBER *d,
                           NUMBER *x, NUMBER *y, ptrdiff_t n)
{
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes u = of(x + i), v = d ? of(y + i) : u;
#pragma GCC unroll 4
        for (int j = 0; j < many; j++) {
            const lanes row = of(rows[j] + i);
            u += c[j] * row;
            if (d)
                v += d[j] * row;
        }
        at(x + i) = u;
        if (d)
            at(y + i) = v;
    }
    for (; i < n; i++)
        for (int j = 0; j < many; j++) {
            x[i] += c[j] * rows[j][i];
            if (d)
                y[i] += d[j] * rows[j][i];
        }
}

WITHIN double NAMED(square)(const NUMBER *x, ptrdiff_t n)
{
    double sum = 0.0;
    NAMED(products)(&x, 1, x, n, 0, &sum);
    return sum;
}

EVERY_MACHINE
double NAMED(into)(const Extent *e, const NUMBER *rows, const NUMBER *g, double *C)
{
    double squares = 0.0;
    for (ptrdiff_t j = 0; j < e->q; j++)
        C[j] = 0.0;
    const ptrdiff_t stretch = 4 * LONG;
    for (ptrdiff_t from = e->first; from < e->last; from += stretch) {
        const ptrdiff_t to = from + stretch < e->last ? from + stretch : e->last;
        for (ptrdiff_t j = 0; j < e->q; j += TOGETHER) {
            const int many = e->q - j < TOGETHER ? (int)(e->q - j) : TOGETHER;
            for (ptrdiff_t i = from; i < to; i += LONG) {
                const ptrdiff_t n = i + LONG < to ? LONG : to - i;
                const NUMBER *these[TOGETHER] = {0};
                for (int k = 0; k < many; k++)
                    these[k] = rows + (j + k) * e->p + i;
                if (many == TOGETHER)
                    NAMED(products)(these, TOGETHER, g + i, n, 0, C + j);
                else
                    NAMED(products)(these, many, g + i, n, 0, C + j);
            }
        }
        for (ptrdiff_t i = from; i < to; i += LONG)
            squares += NAMED(square)(g + i, i + LONG < to ? LONG : to - i);
    }
    return squares;
}

EVERY_MACHINE
void NAMED(lengths)(const Extent *e, const NUMBER *rows, double *squares)
{
    for (ptrdiff_t j = 0; j < e->q; j++) {
        squares[j] = 0.0;
        for (ptrdiff_t i = e->first; i < e->last; i += LONG)
            squares[j] +=
                NAMED(square)(rows + j * e->p + i, i + LONG < e->last ? LONG : e->last - i);
    }
}

/* without() for one piece: n numbers of each column. */
WITHIN void NAMED(piece)(const NUMBER *rows, ptrdiff_t q, ptrdiff_t p, ptrdiff_t n, ptrdiff_t ahead,
                         const NUMBER *c, const NUMBER *d, NUMBER *rest, NUMBER *lifted,
                         double *again)
{
    const NUMBER *these[TOGETHER] = {0};
    for (ptrdiff_t j = 0; j < q; j += TOGETHER) {
        const int many = q - j < TOGETHER ? (int)(q - j) : TOGETHER;
        for (int k = 0; k < many; k++)
            these[k] = rows + (j + k) * p;
        if (many == TOGETHER && d)
            NAMED(combine)(these, TOGETHER, c + j, d + j, rest, lifted, n);
        else
            NAMED(combine)(these, many, c + j, d ? d + j : NULL, rest, lifted, n);
    }
    if (d) /* up to here `lifted` contains d B only */
        for (ptrdiff_t i = 0; i < n; i++)
            lifted[i] += rest[i];
    for (ptrdiff_t j = 0; again && j < q; j += TOGETHER) {
        const int many = q - j < TOGETHER ? (int)(q - j) : TOGETHER;
        for (int k = 0; k < many; k++)
            these[k] = rows + (j + k) * p;
        if (many == TOGETHER)
            NAMED(products)(these, TOGETHER, rest, n, ahead, again + j);
        else
            NAMED(products)(these, many, rest, n, ahead, again + j);
    }
}

EVERY_MACHINE
double NAMED(without)(const Extent *e, const NUMBER *rows, const NUMBER *g, const NUMBER *c,
                      const NUMBER *d, NUMBER *rest, NUMBER *lifted, double *again)
{
    const ptrdiff_t width = width_of(e->q, sizeof(NUMBER));
    double squares = 0.0;
    for (ptrdiff_t j = 0; again && j < e->q; j++)
        again[j] = 0.0;
    for (ptrdiff_t i = e->first; i < e->last; i += width) {
        const ptrdiff_t n = i + width < e->last ? width : e->last - i;
        const ptrdiff_t ahead = i + 2 * width <= e->last ? width : 0;
        for (ptrdiff_t k = i; k < i + n; k++) {
            rest[k] = g[k];
            if (d)
                lifted[k] = 0;
        }
        NAMED(piece)(rows + i, e->q, e->p, n, ahead, c, d, rest + i, d ? lifted + i : NULL, again);
        squares += NAMED(square)(rest + i, n);
    }
    return squares;
}

#undef LANES
#undef lanes
#undef at
#undef of
