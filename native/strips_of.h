/* Strips of MANY vectors of LANES doubles, for one MACHINE; strips.c includes this file once for
   each. All functions called here are compiled for the same MACHINE, since a compiler cannot inline
   functions for another target. */

typedef double NAMED(lanes) __attribute__((vector_size(8 * LANES), may_alias));
#define lanes NAMED(lanes)

/* rows.c, (2), for k rows and the rows of the panel, in `many` vectors; sharp rotations use `kept`.
   */
WITHIN MACHINE void NAMED(strip)(const Panel *panel, const double *row, double *next, double *rows,
                                 const Turn *turns, const int many, const int k, const int sharp)
{
    const ptrdiff_t wide = panel->wide;
    lanes x[K][MANY], u[MANY];
#pragma GCC unroll 8
    for (int i = 0; i < k; i++)
#pragma GCC unroll 4
        for (int v = 0; v < many; v++)
            x[i][v] = *(const lanes *)(rows + i * wide + v * LANES);
    for (ptrdiff_t j = panel->from, at = 0; j < panel->to; j++, turns++) {
#pragma GCC unroll 4
        for (int v = 0; v < many; v++)
            u[v] = *(const lanes *)(row + at + v * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < k; i++)
#pragma GCC unroll 4
            for (int v = 0; v < many; v++) {
                const lanes left = x[i][v] - turns->a[i] * u[v];
                if (sharp && turns->sharp)
                    u[v] = turns->kept[i] * u[v] + turns->gain[i] * x[i][v];
                else
                    u[v] += turns->gain[i] * left;
                x[i][v] = left;
            }
#pragma GCC unroll 4
        for (int v = 0; v < many; v++)
            *(lanes *)(next + at + v * LANES) = u[v];
        at += wide - ((j + 1) & -WIDE); /* a row begins with the vector that contains its diagonal */
    }
#pragma GCC unroll 8
    for (int i = 0; i < k; i++)
#pragma GCC unroll 4
        for (int v = 0; v < many; v++)
            *(lanes *)(rows + i * wide + v * LANES) = x[i][v];
}

WITHIN MACHINE void NAMED(turn_of)(const Panel *panel, const int k)
{
    const ptrdiff_t wide = panel->wide;
    for (ptrdiff_t l = panel->stop; l < wide; l += TILE) {
        const ptrdiff_t end = l + TILE < wide ? l + TILE : wide;
        for (ptrdiff_t g = 0; g < panel->groups; g++) {
            double *rows = panel->block + g * k * wide, *next = panel->next - panel->from;
            const double *row = g ? next : panel->row - panel->from;
            const Turn *turns = panel->turns[g];
            ptrdiff_t v = l;
            if (panel->sharp[g])
                for (; v < end; v += LANES)
                    NAMED(strip)(panel, row + v, next + v, rows + v, turns, 1, k, 1);
            for (; v + MANY * LANES <= end; v += MANY * LANES)
                NAMED(strip)(panel, row + v, next + v, rows + v, turns, MANY, k, 0);
            for (; v < end; v += LANES)
                NAMED(strip)(panel, row + v, next + v, rows + v, turns, 1, k, 0);
        }
    }
}

static MACHINE void NAMED(turn)(const Panel *panel, int k)
{
    if (k == 1)
        NAMED(turn_of)(panel, 1);
    else
        NAMED(turn_of)(panel, K);
}

#undef lanes
