/* Rotations for one MACHINE, with vectors of LANES doubles; givens.c includes this file once for
   each. All functions called here are compiled for the same MACHINE, since a compiler cannot inline
   functions for another target. */

typedef double NAMED(lanes) __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef long long NAMED(mask) __attribute__((vector_size(8 * LANES)));
#define lanes NAMED(lanes)
#define mask NAMED(mask)
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif

/* The running sums of a vector. */
WITHIN MACHINE lanes NAMED(running_sums)(lanes v)
{
    const lanes zero = {0.0};
#if LANES == 8
    v += SHUFFLE(zero, v, 0, 8, 0, 10, 0, 12, 0, 14);
    v += SHUFFLE(zero, v, 0, 1, 9, 9, 4, 5, 13, 13);
    v += SHUFFLE(zero, v, 0, 1, 2, 3, 11, 11, 11, 11);
#elif LANES == 4
    v += SHUFFLE(zero, v, 0, 4, 0, 6);
    v += SHUFFLE(zero, v, 0, 1, 5, 5);
#else
    v += SHUFFLE(zero, v, 0, 2);
#endif
    return v;
}

/* Move each number to the next lane, and the last one to the first lane. */
WITHIN MACHINE lanes NAMED(turned)(lanes v)
{
#if LANES == 8
    v = SHUFFLE(v, v, 7, 0, 1, 2, 3, 4, 5, 6);
#elif LANES == 4
    v = SHUFFLE(v, v, 3, 0, 1, 2);
#else
    v = SHUFFLE(v, v, 1, 0);
#endif
    __asm__("" : IN_VECTOR(v)); /* or the last number would be taken by a second shuffle */
    return v;
}

/* Transpose LANES rows of LANES numbers; rows and columns begin at these distances. */
WITHIN MACHINE void NAMED(transpose)(const double *rows, ptrdiff_t apart, double *columns,
                                       ptrdiff_t step)
{
    lanes v[LANES];
#define SWAP(half, low, high)                                                                      \
    for (int i = 0; i < LANES; i++)                                                                \
        if (!(i & half)) {                                                                         \
            const lanes a = v[i], b = v[i + half];                                                 \
            v[i] = SHUFFLE(a, b, LIST low);                                                        \
            v[i + half] = SHUFFLE(a, b, LIST high);                                                \
        }
#define LIST(...) __VA_ARGS__
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i++)
        v[i] = *(const lanes *)(rows + i * apart);
#if LANES == 8
#pragma GCC unroll 8
    SWAP(1, (0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15))
#pragma GCC unroll 8
    SWAP(2, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
#pragma GCC unroll 8
    SWAP(4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
#elif LANES == 4
#pragma GCC unroll 8
    SWAP(1, (0, 4, 2, 6), (1, 5, 3, 7))
#pragma GCC unroll 8
    SWAP(2, (0, 1, 4, 5), (2, 3, 6, 7))
#else
    SWAP(1, (0, 2), (1, 3))
#endif
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i++)
        *(lanes *)(columns + i * step) = v[i];
#undef SWAP
#undef LIST
}

/* Store numbers of a unit, given as k vectors, in the order of its rows. */
WITHIN MACHINE void NAMED(order)(const double *vectors, double *rows, const int k)
{
    if (k == K)
        for (int t = 0; t < K; t += LANES)
            NAMED(transpose)(vectors + t * LANES, LANES, rows + t, K);
    else
        for (int i = 0; i < k * LANES; i++)
            rows[i] = vectors[i % k * LANES + i / k];
}

/* (1) for a column of a unit, whose D is `past`; also in the order of the rows if `rotations` is
   not NULL, with those of a group TILE after those before. Returns D after these rows. */
WITHIN MACHINE double NAMED(rotation_of)(const double *column, double *weights, double past,
                                         Factors *factors, Rotation *rotations, const int k)
{
    const lanes *a = (const lanes *)column;
    lanes *q = (lanes *)weights, *weighted = (lanes *)factors->weighted;
    lanes *before = (lanes *)factors->before, D[K + 1], inverse[K + 1], sum = {0.0};
    _Alignas(64) double gain[K * LANES], retain[K * LANES], rows[K * LANES];
#pragma GCC unroll 8
    for (int t = 0; t < k; t++) {
        D[t] = sum;
        sum += (weighted[t] = q[t] * a[t]) * a[t];
    }
    D[k] = sum;
    sum = NAMED(turned)(NAMED(running_sums)(sum));
    const double after = past + sum[0];
    sum[0] = 0.0;
    sum += past;
#pragma GCC unroll 8
    for (int t = 0; t <= k; t++) {
        D[t] += sum;
        inverse[t] = 1.0 / D[t];
    }
    factors->past = past;
    factors->over = 1.0 / after;
    factors->sharp = past <= MUCH * after; /* if these rows together are not sharp, no row is */
#pragma GCC unroll 8
    for (int t = 0; t < k; t++) {
        const lanes share = D[t] * inverse[t + 1];
        before[t] = a[t] * inverse[t];
        q[t] *= share;
        *(lanes *)(gain + t * LANES) = weighted[t] * inverse[t + 1];
        *(lanes *)(retain + t * LANES) = share;
    }
    if (!rotations)
        return after;
    const double *parts[] = {column, gain, retain};
    for (int i = 0; i < (factors->sharp ? 3 : 2); i++) {
        NAMED(order)(parts[i], rows, k);
        for (int g = 0; g < k * LANES / K; g++)
            *(vector *)rotations[g * TILE].parts[i] = *(const vector *)(rows + g * K);
    }
    for (int g = 0; g < k * LANES / K; g++)
        rotations[g * TILE].sharp = factors->sharp;
    return after;
}

/* (6) for a later column of a unit and the number u of the triangle; returns the new u. */
WITHIN MACHINE double NAMED(rotate_column)(const double *column, double *later, double u,
                                           const Factors *factors, const int k, const int sharp)
{
    lanes y[K], sums[K], sum = {0.0}, *x = (lanes *)later;
    const lanes *weighted = (const lanes *)factors->weighted;
    const lanes *before = (const lanes *)factors->before;
    const lanes *a = sharp ? before : (const lanes *)column;
    const double past = factors->past, over = factors->over, v = sharp ? past * u : u;
#pragma GCC unroll 8
    for (int t = 0; t < k; t++) {
        y[t] = x[t] - v * a[t];
        sums[t] = sum;
        sum += weighted[t] * (sharp ? x : y)[t];
    }
    sum = NAMED(turned)(NAMED(running_sums)(sum));
    u = (sharp ? v * over : u) + over * sum[0];
    sum[0] = 0.0;
#pragma GCC unroll 8
    for (int t = 0; t < k; t++)
        x[t] = y[t] - before[t] * (sums[t] + sum);
    return u;
}

/* Rotate the columns of a panel by a unit of k LANES rows: `block`, with weights q. */
WITHIN MACHINE void NAMED(rotate_unit)(const Panel *panel, double *block, double *q, double due,
                                       const double *row, const double *diagonal, double *after,
                                       Rotation *rotations, const int k)
{
    const ptrdiff_t wide = panel->wide, width = panel->stop - panel->from;
    const ptrdiff_t count = panel->to - panel->from;
    _Alignas(64) double tile[TILE * K * LANES], weights[K * LANES], ordered[K * LANES];
    Factors factors[2];
    for (int t = 0; t < k; t++)
        for (ptrdiff_t l = 0; l < width; l += LANES)
            NAMED(transpose)(block + t * wide + l, k * wide, tile + (l * k + t) * LANES,
                             k * LANES);
    for (int i = 0; i < k * LANES; i++)
        weights[i % k * LANES + i / k] = q[i];
    after[0] = NAMED(rotation_of)(tile, weights, due * diagonal[0], factors, rotations, k);
    for (ptrdiff_t j = 0; j < count; j++) {
        const double *u = row + panel->offset[j], *column = tile + j * k * LANES;
        double *next = panel->next + panel->offset[j];
        const Factors *now = factors + j % 2;
        next[j] = 1.0;
        for (ptrdiff_t l = j + 1; l < width; l++) {
            double *later = tile + l * k * LANES;
            next[l] = now->sharp ? NAMED(rotate_column)(column, later, u[l], now, k, 1)
                                 : NAMED(rotate_column)(column, later, u[l], now, k, 0);
            if (l == j + 1 && l < count) /* early, since it takes long */
                after[l] = NAMED(rotation_of)(later, weights, due * diagonal[l], factors + l % 2,
                                              rotations ? rotations + l : NULL, k);
        }
    }
    NAMED(order)(weights, ordered, k);
    memcpy(q, ordered, k * LANES * sizeof *q);
    for (ptrdiff_t l = count; l < width; l++) {
        NAMED(order)(tile + l * k * LANES, ordered, k);
        for (int i = 0; i < k * LANES; i++)
            block[i * wide + l] = ordered[i];
    }
}

/* `rotate_unit` for each k, as functions of their own, so that registers are allocated well. */
#define ROTATE_UNIT(k)                                                                             \
    static MACHINE __attribute__((noinline)) void NAMED(rotate_unit_##k)(                          \
        const Panel *panel, double *block, double *q, double due, const double *row,               \
        const double *diagonal, double *after, Rotation *rotations)                                \
    {                                                                                              \
        NAMED(rotate_unit)(panel, block, q, due, row, diagonal, after, rotations, k);              \
    }
ROTATE_UNIT(8)
ROTATE_UNIT(4)
ROTATE_UNIT(2)
ROTATE_UNIT(1)
#undef ROTATE_UNIT

/* Rotate the columns of a panel. */
WITHIN MACHINE void NAMED(rotate_columns)(Panel *panel, double *q, double due,
                                          const double *diagonal, double *after)
{
    const double *row = panel->row;
    for (ptrdiff_t g = 0, used; g < panel->groups; g += used) {
        double *block = panel->block + g * K * panel->wide + panel->from;
        Rotation *rotations = panel->recorded ? panel->rotations[g] : NULL;
        const ptrdiff_t left = (panel->groups - g) * K;
        const int k = left > 4 * LANES ? K : left > 2 * LANES ? 4 : left > LANES ? 2 : 1;
        used = k * LANES / K;
        if (k == K)
            NAMED(rotate_unit_8)(panel, block, q + g * K, due, row, diagonal, after, rotations);
        else if (k == 4)
            NAMED(rotate_unit_4)(panel, block, q + g * K, due, row, diagonal, after, rotations);
        else if (k == 2)
            NAMED(rotate_unit_2)(panel, block, q + g * K, due, row, diagonal, after, rotations);
        else
            NAMED(rotate_unit_1)(panel, block, q + g * K, due, row, diagonal, after, rotations);
        row = panel->next;
        diagonal = after;
        due = 1.0;
    }
}

/* (2) for K rows and the rows of the panel, in `many` vectors; sharp rotations use `retain`. */
WITHIN MACHINE void NAMED(strip)(const Panel *panel, const double *row, double *next, double *rows,
                                 const Rotation *rotations, const int many, const int sharp)
{
    const ptrdiff_t wide = panel->wide;
    lanes x[K][MANY], u[MANY];
#pragma GCC unroll 8
    for (int i = 0; i < K; i++)
#pragma GCC unroll 4
        for (int v = 0; v < many; v++)
            x[i][v] = *(const lanes *)(rows + i * wide + v * LANES);
    for (ptrdiff_t j = panel->from, at = 0; j < panel->to; j++, rotations++) {
#pragma GCC unroll 4
        for (int v = 0; v < many; v++)
            u[v] = *(const lanes *)(row + at + v * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < K; i++)
#pragma GCC unroll 4
            for (int v = 0; v < many; v++) {
                const lanes left = x[i][v] - rotations->parts[0][i] * u[v];
                if (sharp && rotations->sharp)
                    u[v] = rotations->parts[2][i] * u[v] + rotations->parts[1][i] * x[i][v];
                else
                    u[v] += rotations->parts[1][i] * left;
                x[i][v] = left;
            }
#pragma GCC unroll 4
        for (int v = 0; v < many; v++)
            *(lanes *)(next + at + v * LANES) = u[v];
        at += wide - ((j + 1) & -WIDE); /* a row starts at the vector that contains its diagonal */
    }
#pragma GCC unroll 8
    for (int i = 0; i < K; i++)
#pragma GCC unroll 4
        for (int v = 0; v < many; v++)
            *(lanes *)(rows + i * wide + v * LANES) = x[i][v];
}

/* Rotate the strips of a panel. A stretch of the panel stays in the nearest cache for all groups.
   */
WITHIN MACHINE void NAMED(rotate_strips)(const Panel *panel)
{
    const ptrdiff_t wide = panel->wide;
    for (ptrdiff_t l = panel->stop; l < panel->end; l += STRETCH) {
        const ptrdiff_t end = l + STRETCH < panel->end ? l + STRETCH : panel->end;
        for (ptrdiff_t g = 0; g < panel->groups; g++) {
            double *rows = panel->block + g * K * wide, *next = panel->next - panel->from;
            const double *row = g ? next : panel->row - panel->from;
            const Rotation *rotations = panel->rotations[g];
            int sharp = 0;
            for (ptrdiff_t j = 0; j < panel->to - panel->from; j++)
                sharp |= rotations[j].sharp;
            ptrdiff_t v = l;
            if (sharp)
                for (; v < end; v += LANES)
                    NAMED(strip)(panel, row + v, next + v, rows + v, rotations, 1, 1);
            for (; v + MANY * LANES <= end; v += MANY * LANES)
                NAMED(strip)(panel, row + v, next + v, rows + v, rotations, MANY, 0);
            for (; v < end; v += LANES)
                NAMED(strip)(panel, row + v, next + v, rows + v, rotations, 1, 0);
        }
    }
}

static MACHINE void NAMED(rotate)(Panel *panel, double *q, double due, const double *diagonal,
                                  double *after)
{
    NAMED(rotate_columns)(panel, q, due, diagonal, after);
    NAMED(rotate_strips)(panel);
}

#undef lanes
#undef mask
#undef SHUFFLE
