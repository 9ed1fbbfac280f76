/* Strips of MANY vectors of LANES doubles, for one MACHINE; strips.c includes this file once for
   each. All functions called here are compiled for the same MACHINE, since a compiler cannot inline
   functions for another target. */

typedef double NAMED(lanes) __attribute__((vector_size(8 * LANES), may_alias));
#define lanes NAMED(lanes)

/* rows.c, (2), for k rows and the rows of the panel, in `many` vectors; sharp rotations use `retain`.
   */
WITHIN MACHINE void NAMED(strip)(const Panel *panel, const double *row, double *next, double *rows,
                                 const Rotation *rotations, const int many, const int k,
                                 const int sharp)
{
    const ptrdiff_t wide = panel->wide;
    lanes x[K][MANY], u[MANY];
#pragma GCC unroll 8
    for (int i = 0; i < k; i++)
#pragma GCC unroll 4
        for (int v = 0; v < many; v++)
            x[i][v] = *(const lanes *)(rows + i * wide + v * LANES);
    for (ptrdiff_t j = panel->from, at = 0; j < panel->to; j++, rotations++) {
#pragma GCC unroll 4
        for (int v = 0; v < many; v++)
            u[v] = *(const lanes *)(row + at + v * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < k; i++)
#pragma GCC unroll 4
            for (int v = 0; v < many; v++) {
                const lanes left = x[i][v] - rotations->a[i] * u[v];
                if (sharp && rotations->sharp)
                    u[v] = rotations->retain[i] * u[v] + rotations->gain[i] * x[i][v];
                else
                    u[v] += rotations->gain[i] * left;
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

WITHIN MACHINE void NAMED(rotate_groups)(const Panel *panel, const int k)
{
    const ptrdiff_t wide = panel->wide;
    for (ptrdiff_t l = panel->stop; l < wide; l += TILE) {
        const ptrdiff_t end = l + TILE < wide ? l + TILE : wide;
        for (ptrdiff_t g = 0; g < panel->groups; g++) {
            double *rows = panel->block + g * k * wide, *next = panel->next - panel->from;
            const double *row = g ? next : panel->row - panel->from;
            const Rotation *rotations = panel->rotations[g];
            ptrdiff_t v = l;
            if (panel->sharp[g])
                for (; v < end; v += LANES)
                    NAMED(strip)(panel, row + v, next + v, rows + v, rotations, 1, k, 1);
            for (; v + MANY * LANES <= end; v += MANY * LANES)
                NAMED(strip)(panel, row + v, next + v, rows + v, rotations, MANY, k, 0);
            for (; v < end; v += LANES)
                NAMED(strip)(panel, row + v, next + v, rows + v, rotations, 1, k, 0);
        }
    }
}

static MACHINE void NAMED(rotate)(const Panel *panel, int k)
{
    if (k == 1)
        NAMED(rotate_groups)(panel, 1);
    else
        NAMED(rotate_groups)(panel, K);
}

#undef lanes
